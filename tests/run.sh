#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test and check.
#
#   tests/run.sh             everything
#   tests/run.sh STAGE...    some of: lint release tests asan tsan clang
#
#   lint     clang-format, include rules, clocks, one definition of each type, what
#            documents say of the repository, the wire contract against the last
#            release's, the mirror of tests and sources
#   release  gcc, optimised: all binaries and tests
#   tests    every test of the release build
#   asan     clang with address and undefined-behaviour sanitizers: unit tests
#            without gRPC, RocksDB and kernels, and fuzz targets (60 s together)
#   tsan     thread sanitizer: what threads share, but for gRPC's and RocksDB's
#   clang    clang and clang-tidy over every source but tests, which clang compiles
#            with its warnings anyway: thread safety and the checks of .clang-tidy
#            are errors
#   asan_long  only where it is named: the rest of asan's tests, those of kernels,
#            operators (the emulated GPU's among them) and of a ps's state
#
# Goes on after a failed stage and exits 1 if any failed. Real data is taken
# from $SYNCLINE_TEST_DATA, else ../shared/data; tests say so where it is absent.
# $SYNCLINE_CUDA_ARCHITECTURES, if set, are those that the release build is for.
# With $SYNCLINE_TESTS_ONCE=ON the release build leaves out the tests that the
# stage asan runs, but for seeded ones, of which asan runs an eighth. With
# $SYNCLINE_TESTS_TOGETHER=ON the tests of a folder are one program, which takes a
# third of the time to build; ctest has the same tests.
set -uo pipefail
cd "$(dirname "$0")/.."

readonly JOBS="$(nproc)"
# A second clone of the same sources, wherever it lies, compiles nothing again.
export CCACHE_SLOPPINESS=pch_defines,time_macros
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
# Precompiled headers, 200 MB each, are not read again for each source.
export CCACHE_INODECACHE=1
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
export CTEST_OUTPUT_ON_FAILURE=1
mkdir -p build/logs

readonly TOGETHER="-DSYNCLINE_TESTS_TOGETHER=${SYNCLINE_TESTS_TOGETHER:-OFF}"

# A quickstart may have configured it without tests.
configure_release() {
  cmake --preset release -DSYNCLINE_BUILD_TESTS=ON "$TOGETHER" \
    -DSYNCLINE_TESTS_ONCE="${SYNCLINE_TESTS_ONCE:-OFF}" \
    ${SYNCLINE_CUDA_ARCHITECTURES:+-DSYNCLINE_CUDA_ARCHITECTURES=$SYNCLINE_CUDA_ARCHITECTURES}
}
stage_lint() {
  tests/lint/format.sh && python3 tests/lint/layers.py &&
    python3 tests/lint/clocks.py &&
    python3 tests/lint/one_definition_test.py &&
    python3 tests/lint/one_definition.py &&
    python3 tests/lint/documents_test.py &&
    python3 tests/lint/documents.py &&
    python3 tests/lint/proto_compatibility_test.py &&
    python3 tests/lint/proto_compatibility.py &&
    cmake --preset lint >/dev/null &&
    python3 tests/lint/mirror_test.py &&
    python3 tests/lint/mirror.py build/lint
}
stage_release() {
  configure_release && cmake --build --preset release -j "$JOBS"
}
stage_asan() {
  cmake --preset asan "$TOGETHER" &&
    cmake --build --preset asan --target address_tests -j "$JOBS" &&
    ctest --preset asan -L '^sanitize-address$' -j "$JOBS"
}
stage_asan_long() {
  cmake --preset asan "$TOGETHER" &&
    cmake --build --preset asan --target address_long_tests -j "$JOBS" &&
    ctest --preset asan -L '^sanitize-address_long$' -j "$JOBS"
}
stage_tsan() {
  cmake --preset tsan "$TOGETHER" &&
    cmake --build --preset tsan --target thread_tests -j "$JOBS" &&
    ctest --preset tsan -L sanitize-thread -j "$JOBS"
}
stage_clang() {
  configure_release >/dev/null &&
    cmake --build --preset release --target proto_grpc -j "$JOBS" &&
    python3 tests/lint/clang_check_test.py &&
    python3 tests/lint/clang_check.py build/release --without tests
}
# Tests with real processes wait more than they compute: one more than there are
# processors.
stage_tests() {
  ctest --preset release -LE '^left-to-asan$' -j "$((JOBS + 1))"
}

stages=("$@")
((${#stages[@]})) || stages=(lint release tests asan tsan clang)
for stage in "${stages[@]}"; do
  declare -F "stage_$stage" >/dev/null && continue
  echo "tests/run.sh: no stage '$stage'; see the top of this file" >&2
  exit 2
done

deploy/install-deps.sh test || exit 1
touch build/logs/start
failed=0
summary=()
for stage in "${stages[@]}"; do
  echo "=== $stage"
  start=$SECONDS
  "stage_$stage" 2>&1 | tee "build/logs/$stage.log"
  if ((PIPESTATUS[0] == 0)); then verdict=passed; else verdict=FAILED; fi
  [[ $verdict == passed ]] || failed=1
  summary+=("$(printf '%-8s %-7s %4d s' "$stage" "$verdict" $((SECONDS - start)))")
done

echo "=== summary"
printf '%s\n' "${summary[@]}"
# ctest counts a test that skipped itself as passed; say what was not looked at.
skipped=$(find build/*/Testing/Temporary -name LastTest.log -newer build/logs/start \
  -exec grep -hoE '^\[  SKIPPED \] [[:alnum:]_/]+\.[[:alnum:]_/]+' {} + 2>/dev/null |
  sort -u)
if [[ -n $skipped ]]; then
  echo "skipped, most likely for want of data (see tests/README.md):"
  echo "$skipped"
fi
for stage in "${stages[@]}"; do
  grep -qE '^[0-9]+% tests passed' "build/logs/$stage.log" || continue
  echo "=== ctest in stage $stage"
  grep -E '^[0-9]+% tests passed|^Total Test time' "build/logs/$stage.log"
done
exit "$failed"

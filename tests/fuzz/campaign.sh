#!/usr/bin/env bash
# Fuzzes for long: all targets, some at a time, each for the same number of
# executions or until its time is over, and then what it has grown once more
# under the sanitizers of the asan preset, if that is built.
#
#   tests/fuzz/campaign.sh EXECUTIONS SECONDS [JOBS] [TARGET...]
#
# EXECUTIONS and SECONDS are of each target; JOBS (1) run at a time. Prints a line
# for each target and the sum; exits 1 if one of them failed. What fails is in
# build/fuzz/fuzz_failures, what was found new in build/fuzz/corpus.
set -uo pipefail
cd "$(dirname "$0")/../.."

(($# >= 2)) || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
readonly EXECUTIONS=$1 SECONDS_MAX=$2 JOBS=${3:-1}
shift 2
(($#)) && shift
targets=("$@")
if ((${#targets[@]} == 0)); then
  mapfile -t targets < <(cd tests/fuzz && ls -- *_fuzz.cc | sed 's/\.cc$//')
fi

export CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
cmake --preset fuzz >/dev/null && cmake --build --preset fuzz --target "${targets[@]}" || exit 1
mkdir -p build/logs build/fuzz/fuzz_failures

# Entropic scheduling counts each feature of each input: with thousands of inputs it
# takes nine tenths of a fast target's time.
run() {
  local name=$1 log=build/logs/campaign-$1.log
  mkdir -p "build/fuzz/corpus/$name"
  "build/fuzz/tests/$name" -runs="$EXECUTIONS" -max_total_time="$SECONDS_MAX" \
    -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 -verbosity=0 \
    -entropic=0 -reload=0 -artifact_prefix="build/fuzz/fuzz_failures/$name-" \
    "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1
  local verdict=$?
  if ((verdict == 0)) && [[ -x build/asan/tests/$name ]]; then
    "build/asan/tests/$name" -runs=0 -timeout=60 -rss_limit_mb=4096 -verbosity=0 \
      -artifact_prefix="build/fuzz/fuzz_failures/$name-asan-" \
      "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" >>"$log" 2>&1
    verdict=$?
  fi
  printf '%s %s %s %s\n' "$name" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | head -1)" \
    "$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log" | head -1)" "$verdict"
}
export -f run
export EXECUTIONS SECONDS_MAX

printf '%s\n' "${targets[@]}" | xargs -P "$JOBS" -I{} bash -c 'run {}' |
  awk '{ printf "%-26s %14d executions %9d a second  %s\n", $1, $2, $3, $4 == 0 ? "ok" : "FAILED"
         sum += $2; if ($4 != 0) failed = 1; fflush() }
       END { printf "%-26s %14d executions\n", "all", sum; exit failed }'

#!/usr/bin/env bash
# Installs the packages Syncline needs on Debian 12 and does nothing when they
# are there. The only list of packages: the quickstart, the tests, continuous
# integration and containers all call this. What Debian does not have, other
# frameworks that tests compare with, comes from PyPI into build/python; where
# PyPI cannot be reached these tests are skipped.
#
#   deploy/install-deps.sh [build|test]    default: test (which includes build)
#
# Needs root, or sudo, only when something is missing.
set -euo pipefail

readonly BUILD_PACKAGES=(
  build-essential cmake ninja-build ccache pkg-config
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev
  libabsl-dev
  librocksdb-dev
  prometheus-cpp-dev libcivetweb-dev
  libonnx-dev libdnnl-dev
  libcli11-dev
  zlib1g-dev libzstd-dev
  patchelf xz-utils python3  # deploy/bundle.sh
)
# On top of those: the test libraries, the second compiler with its
# sanitizers and linters, and what the test scripts call.
readonly TEST_PACKAGES=(
  libgtest-dev libgmock-dev libbenchmark-dev
  clang clang-14 libclang-rt-14-dev clang-format clang-tidy
  libclang-14-dev llvm-14-dev  # headers for tests/lint/tidy_scope.cc
  lld
  libboost-context-dev  # threads of the emulated GPU
  iproute2
  prometheus  # promtool too; tests start their own
  python3-torch  # the peer of tests/peers: 139 MB to fetch, 593 MB on disk
  libopenblas0-pthread  # with which it is several times faster
  python3-venv
  chromium fonts-dejavu-core  # the status page, in a browser without a screen
  groff mandoc man-db  # the manual pages, checked
)
# For /usr/bin/python3, Debian's 3.11: 68 MB to fetch, 346 MB on disk.
readonly PYTHON_PACKAGES=(
  numpy==1.26.4 onnx==1.22.0 onnxruntime==1.20.1 safetensors==0.4.5
)
readonly PYTHON_DIR="$(dirname "$(readlink -f "$0")")/../build/python"

case "${1:-test}" in
  build) wanted=("${BUILD_PACKAGES[@]}") ;;
  test) wanted=("${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}") ;;
  *)
    echo "usage: $0 [build|test]" >&2
    exit 2
    ;;
esac

installed() {
  [[ "$(dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null)" == "ii "* ]]
}

install_debian_packages() {
  local missing=() as_root=()
  for package in "${wanted[@]}"; do
    installed "$package" || missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then
    echo "install-deps: all ${#wanted[@]} packages are installed"
    return
  fi
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      echo "install-deps: needs root to install: ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  echo "install-deps: installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# The list is kept beside what it has installed, and compared.
install_python_packages() {
  local list="${PYTHON_PACKAGES[*]}" stamp="$PYTHON_DIR/installed"
  [[ "$(cat "$stamp" 2>/dev/null)" == "$list" ]] && return
  echo "install-deps: installing $list into build/python"
  rm -rf "$PYTHON_DIR"
  if /usr/bin/python3 -m venv "$PYTHON_DIR" &&
    "$PYTHON_DIR/bin/pip" install --quiet --disable-pip-version-check \
      --no-input --retries 1 --only-binary :all: "${PYTHON_PACKAGES[@]}"; then
    echo "$list" >"$stamp"
    return
  fi
  rm -rf "$PYTHON_DIR"
  echo "install-deps: PyPI cannot be reached, or lacks one of these; the tests" \
    "that need them will be skipped" >&2
}

install_debian_packages
[[ "${1:-test}" == build ]] || install_python_packages

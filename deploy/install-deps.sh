#!/usr/bin/env bash
# Installs the packages Syncline needs on Debian 12 and does nothing when they
# are there. The only list of packages: the quickstart, the tests, continuous
# integration and containers all call this.
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
)
# On top of those: the test libraries, the second compiler with its
# sanitizers and linters, and what the test scripts call.
readonly TEST_PACKAGES=(
  libgtest-dev libgmock-dev libbenchmark-dev
  clang clang-14 libclang-rt-14-dev clang-format clang-tidy
  python3 iproute2
  python3-torch  # the peer of tests/peers: 139 MB to fetch, 593 MB on disk
)

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

missing=()
for package in "${wanted[@]}"; do
  installed "$package" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "install-deps: all ${#wanted[@]} packages are installed"
  exit 0
fi

as_root=()
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

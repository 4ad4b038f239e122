#!/usr/bin/env bash
# Packs a build into one file that runs on Linux without Debian's packages; the
# text below is its --help.
set -euo pipefail
shopt -s inherit_errexit
export LC_ALL=C

usage() {
  cat <<'TEXT'
deploy/bundle.sh [--build-dir DIR] [--out FILE] [--level N]

Packs the programs of a build, and all libraries that they need, into one
archive. It runs from any folder of any x86-64 Linux whose glibc is not older
than that of the machine that built it. Nothing is installed there.

  --build-dir DIR  the build to pack             (default: build/release)
  --out FILE       the archive                   (default: in the build folder,
                   syncline-VERSION-linux-x86_64.tar.xz)
  --level N        of xz, 0 to 9: 0 takes a twentieth of the time of 6 and makes
                   an archive a third larger      (default: 6)

To build what is packed, and to use it elsewhere:

  cmake --preset release && cmake --build --preset release
  deploy/bundle.sh
  tar xf syncline-VERSION-linux-x86_64.tar.xz
  syncline-VERSION-linux-x86_64/bin/synctl local --help

What is in it
  bin/             synctl, the daemons, syncline-bench
  lib/             their libraries, libstdc++ among them. Not in it: glibc, and
                   CUDA's libraries, which are loaded at run time
  tests/           gpu.sh and the tests that it runs on a machine with a GPU; a
                   build without tests (SYNCLINE_BUILD_TESTS=OFF) has none
  share/man/       the manual pages of all programs and of synctl's commands:
                   man -M share/man synctl-submit
  deploy/examples/ jobs, with their models
  licenses/        of each package that a library comes from
  VERSION, README, LICENSE

The same build, repository and packages give the same bytes. The archive may
have 48 MiB; a larger one is an error. Needs patchelf, strip, xz, dpkg and
python3: deploy/install-deps.sh installs them.
TEXT
}

fail() {
  printf 'bundle.sh: %s\n' "$@" >&2
  exit 1
}

readonly SIZE_MAX=$((48 << 20))
readonly PROGRAMS=(
  synctl syncline-scheduler syncline-ps syncline-worker syncline-bench
)
# What tests/gpu.sh runs.
readonly TESTS=(gpu_test training_accuracy_test gpt_test ctr_accuracy_test)
# glibc's and its loader, which are of one build: the host's.
readonly HOST_LIBRARIES='^(ld-linux-x86-64|libc|libm|libmvec|libpthread|libdl|librt|libresolv|libutil|libanl)\.so\.[0-9]+$'
# Users have them with their GPU, in gigabytes.
readonly CUDA_LIBRARIES='^lib(cuda|cudart|cublas|cublasLt|cudnn[a-z_]*|nccl|nvidia-ml|nvrtc)\.so'
# Compiled into the programs, so that ldd does not name them.
readonly COMPILED_IN=(libcli11-dev libgtest-dev libgmock-dev)

repository="$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)"
build=''
out=''
level=6
while (($#)); do
  case "$1" in
    --build-dir | --out | --level)
      (($# > 1)) || fail "$1 wants a value; see deploy/bundle.sh --help"
      case "$1" in
        --build-dir) build=$2 ;;
        --out) out=$2 ;;
        --level) level=$2 ;;
      esac
      shift 2
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) fail "no option '$1'; see deploy/bundle.sh --help" ;;
  esac
done
[[ $level =~ ^[0-9]$ ]] || fail "--level is a number from 0 to 9, not '$level'"
build="$(readlink -m "${build:-$repository/build/release}")"

for tool in patchelf strip readelf xz tar ldd dpkg-query python3; do
  command -v "$tool" >/dev/null ||
    fail "there is no $tool; deploy/install-deps.sh build installs it"
done

check_build() {
  [[ -e $build/CMakeCache.txt ]] ||
    fail "$build is no build folder" \
      "configure and build one: cmake --preset release && cmake --build --preset release"
  local missing=() program
  for program in "${PROGRAMS[@]}"; do
    [[ -x $build/bin/$program ]] || missing+=("$program")
  done
  # The benchmark is one of the tests' targets.
  if [[ "${missing[*]}" == syncline-bench ]] && ! with_tests; then
    echo "bundle.sh: a build without tests: no syncline-bench, no tests/gpu.sh" >&2
    return
  fi
  ((${#missing[@]} == 0)) ||
    fail "$build/bin lacks: ${missing[*]}" \
      "build them: cmake --build $build --target ${missing[*]}"
  missing=()
  for program in "${TESTS[@]}"; do
    [[ -x $build/tests/$program ]] || missing+=("$program")
  done
  ((${#missing[@]} == 0)) ||
    fail "$build/tests lacks: ${missing[*]}" \
      "build them: cmake --build $build --target ${missing[*]}"
}
cached() {
  sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"
}
with_tests() {
  [[ "$(cached SYNCLINE_BUILD_TESTS)" == ON ]]
}

copy_programs() {
  local program
  mkdir -p "$root/bin" "$root/lib"
  for program in "${PROGRAMS[@]}"; do
    if [[ -e $build/bin/$program ]]; then
      cp "$build/bin/$program" "$root/bin/"
    fi
  done
  with_tests || return 0
  mkdir -p "$root/tests"
  for program in "${TESTS[@]}"; do
    cp "$build/tests/$program" "$root/tests/"
  done
  cp "$repository/tests/gpu.sh" "$root/tests/"
}

elf_files() {
  find "$root" -type f -path "$root/*/*" ! -name '*.sh' |
    grep -E "^$root/(bin|lib|tests)/" | sort
}

# All libraries that the programs load, also by way of others: their names, and
# where this machine has them.
copy_libraries() {
  local found
  found="$(elf_files | xargs ldd |
    awk '$2 == "=>" { print $1, ($3 ~ "^/" ? $3 : "absent") }' | sort -u)"
  local name path
  while read -r name path; do
    [[ $name =~ $HOST_LIBRARIES ]] && continue
    [[ $name =~ $CUDA_LIBRARIES ]] &&
      fail "a program is linked to CUDA's $name, which no bundle has" \
        "load it at run time, as kernels/cuda/cublaslt_product.cc does"
    [[ $path == /* ]] || fail "a program needs $name, which is not on this machine" \
      "run deploy/install-deps.sh build, and build again"
    cp -L "$path" "$root/lib/$name"
    libraries+=("$path")
  done <<<"$found"
}

# Linker flags could give the programs their RUNPATH, but not Debian's
# libraries, and a RUNPATH is not for what those load in turn. So patchelf sets
# both. It moves sections, so strip comes first.
make_relocatable() {
  local file
  while read -r file; do
    chmod 755 "$file"
    strip --strip-unneeded "$file"
    case "$file" in
      "$root"/lib/*) patchelf --set-rpath '$ORIGIN' "$file" ;;
      *) patchelf --set-rpath '$ORIGIN/../lib' "$file" ;;
    esac
  done < <(elf_files)
}

# The packages that the libraries are from. Debian has merged /lib into
# /usr/lib, and its lists of files may name either.
packages() {
  local path patterns=()
  for path in "${libraries[@]}"; do
    path="$(readlink -f "$path")"
    patterns+=("$path" "${path#/usr}" "/usr${path#/usr}")
  done
  { dpkg-query -S "${patterns[@]}" 2>/dev/null || true; } |
    sed 's/: .*//; s/:amd64//' | sort -u
  printf '%s\n' "${COMPILED_IN[@]}"
}

# Of the part of CUDA that is linked into the programs: its runtime.
copy_cuda_license() {
  local toolkit text
  toolkit="$(dirname "$(dirname "$nvcc")")"
  echo "CUDA's runtime (cudart) is part of the programs here that use a GPU. It"
  echo "is NVIDIA's, under the licence of the CUDA Toolkit:"
  for text in "$toolkit"/EULA.txt \
    "$toolkit"/dist-info/nvidia_cuda_runtime-*/licenses/License.txt; do
    [[ -f $text ]] || continue
    cat "$text"
    return
  done
  echo "https://docs.nvidia.com/cuda/eula"
}

copy_licenses() {
  local package of_package count=0
  mkdir -p "$root/licenses"
  while read -r package; do
    of_package="/usr/share/doc/$package/copyright"
    [[ -e $of_package ]] || fail "there is no licence at $of_package" \
      "install it: apt-get install --reinstall $package"
    cp -L "$of_package" "$root/licenses/$package"
    count=$((count + 1))
  done < <(packages | sort -u)
  ((count > ${#COMPILED_IN[@]})) || fail "dpkg knows none of the libraries" \
    "build on Debian, whose packages say under which licence a library is"
  # The texts that those refer to.
  local name
  { grep -rhoE '/usr/share/common-licenses/[A-Za-z0-9.+-]*[A-Za-z0-9]' \
    "$root/licenses" || true; } | sort -u | while read -r name; do
    [[ -f $name ]] || continue
    mkdir -p "$root/licenses/common-licenses"
    cp -L "$name" "$root/licenses/common-licenses/"
  done
  [[ $cuda == none ]] || copy_cuda_license >"$root/licenses/cuda-runtime"
}

copy_examples() {
  mkdir -p "$root/deploy"
  cp -r "$repository/deploy/examples" "$root/deploy/"
  find "$root/deploy" -name __pycache__ -prune -exec rm -rf {} +
  cp "$repository/LICENSE" "$root/"
}

# From what the programs' --help says.
write_manpages() {
  mkdir -p "$root/share/man"
  SOURCE_DATE_EPOCH="$commit_time" python3 "$repository/deploy/make_manpages.py" \
    "$build/bin" "$root/share/man"
}

# The latest glibc whose functions something in the bundle calls.
needed_glibc() {
  elf_files | xargs readelf -V | grep -oE 'GLIBC_2\.[0-9]+' | sed 's/GLIBC_//' |
    sort -V | tail -1
}

git_says() {
  git -C "$repository" "$@" 2>/dev/null
}

# Two lines of README.
about_gpus() {
  if with_tests; then
    echo "With a GPU: tests/gpu.sh tests it (8 minutes) and writes a report. CUDA's"
  else
    echo "The tests of GPUs are not in here: it was built without tests. CUDA's"
  fi
  echo "libraries are not in here; LD_LIBRARY_PATH leads to those of the machine."
}

write_texts() {
  local commit glibc compiler
  commit="$(git_says rev-parse HEAD || echo unknown)"
  if [[ -n "$(git_says status --porcelain --untracked-files=no)" ]]; then
    commit+=" with changes"
  fi
  glibc="$(needed_glibc)"
  compiler="$("$(cached CMAKE_CXX_COMPILER)" --version | head -1)"
  cat >"$root/VERSION" <<TEXT
version:   $version
commit:    $commit
date:      $(date -u -d "@$commit_time" '+%Y-%m-%d %H:%M:%S UTC'), of the commit
compiler:  $compiler
cuda:      $cuda
glibc:     $glibc or later
processor: x86-64-v3: AVX2, as every x86 server since 2015 has
TEXT
  cat >"$root/README" <<TEXT
Syncline $version: trains models on a cluster, through parameter servers.
It runs from this folder, wherever that is: x86-64 Linux, glibc $glibc or later.
To train a classifier of digits on a cluster of this machine's own:
  bin/synctl local deploy/examples/mnist/digits.textproto --ps 2 --workers 3
To run a cluster: bin/syncline-scheduler, bin/syncline-ps and bin/syncline-worker
on their hosts (--help), then bin/synctl submit JOB --watch; "bin/synctl help job"
explains a job file, and bin/synctl model writes models. Manual pages:
man -M share/man synctl
$(about_gpus)
There is no authentication: let only trusted networks in. Licences: licenses/.
TEXT
}

# Sorted, with one time and no owner, so that the same files are the same bytes.
# docs/adr/045 has the sizes of xz and zstd.
pack() {
  chmod -R u=rwX,go=rX "$root"
  tar --create --file - --directory "$work" --format=ustar --sort=name \
    --mtime="@$commit_time" --owner=0 --group=0 --numeric-owner "$bundle" |
    xz --threads=1 --lzma2="preset=$level,dict=128MiB" >"$work/archive"
}

check_build
version="$(sed -n 's/.*kVersion\[\] = "\(.*\)".*/\1/p' "$repository/common/base/version.h")"
commit_time="$(git_says log -1 --format=%ct || echo 0)"
cuda=none
nvcc="$(cached SYNCLINE_NVCC)"
if [[ -x $nvcc && "$(cached SYNCLINE_ENABLE_CUDA)" == ON ]]; then
  cuda="$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')"
fi
readonly bundle="syncline-$version-linux-x86_64"
out="$(readlink -m "${out:-$build/$bundle.tar.xz}")"
mkdir -p "$(dirname "$out")"
work="$(mktemp -d "$(dirname "$out")/.bundle.XXXXXX")"
trap 'rm -rf "$work"' EXIT
root="$work/$bundle"
mkdir "$root"
libraries=()

copy_programs
copy_libraries
copy_licenses
make_relocatable
copy_examples
write_manpages
write_texts
pack

size="$(stat -c %s "$work/archive")"
if ((size > SIZE_MAX)); then
  echo "bundle.sh: the largest files, in bytes:" >&2
  find "$root" -type f -printf '%s %P\n' | sort -rn | head -5 >&2 || true
  fail "the archive has $size bytes, more than $SIZE_MAX" \
    "make a program smaller, or take a test out of TESTS in deploy/bundle.sh"
fi
mv "$work/archive" "$out"
chmod 644 "$out"
echo "bundle.sh: $out, $(((size + 1048575) >> 20)) MiB: ${#libraries[@]} libraries; CUDA: $cuda"

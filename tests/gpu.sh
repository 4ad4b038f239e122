#!/usr/bin/env bash
# Tests Syncline on the GPU of this machine; the text below is its --help.
set -uo pipefail
export LC_ALL=C

usage() {
  cat <<'TEXT'
tests/gpu.sh [--report FILE] [--data DIR] [--cuda DIR] [--build-dir DIR]

Tests Syncline on the first GPU of this machine, in less than 8 minutes, and
writes a report: each operator and whole steps against this machine's
processors, compute-sanitizer where it is installed, example jobs through
parameter servers to their goals, and the benchmark. CUDA_VISIBLE_DEVICES
chooses another GPU.

  --report FILE    the report, beside its logs in FILE.logs/
                   (default: gpu-report.txt)
  --data DIR       has mnist/ and text/ for the jobs that train on them; without
                   them those are skipped  (default: $SYNCLINE_TEST_DATA)
  --cuda DIR       where CUDA is, for cuBLAS and cuDNN in its lib64/ and for
                   compute-sanitizer in its bin/  (default: /usr/local/cuda)
  --build-dir DIR  a build instead of the bundle that this file is in

deploy/bundle.sh makes the bundle. It needs no compiler and no package where it
is unpacked; cuBLAS is that machine's, and so is cuDNN, without which
convolutions are tested by kernels of Syncline's own.

Exits with 0 if all that ran has passed, 1 if something failed, 2 if the command
line is wrong, and 3 if there is no GPU.
TEXT
}

readonly SECONDS_MAX=470
readonly EXIT_WITHOUT_GPU=3
root="$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)"
report=gpu-report.txt
data="${SYNCLINE_TEST_DATA:-}"
cuda=/usr/local/cuda

wrong() {
  echo "gpu.sh: $*; see tests/gpu.sh --help" >&2
  exit 2
}
while (($#)); do
  case "$1" in
    --report | --data | --cuda | --build-dir)
      (($# > 1)) || wrong "$1 wants a value"
      case "$1" in
        --report) report=$2 ;;
        --data) data="$(readlink -m "$2")" ;;
        --cuda) cuda=$2 ;;
        --build-dir) root="$(readlink -m "$2")" ;;
      esac
      shift 2
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) wrong "no option '$1'" ;;
  esac
done
readonly bin="$root/bin" tests="$root/tests"
[[ -x $tests/gpu_test ]] ||
  wrong "there is no $tests/gpu_test: run this from a bundle (deploy/bundle.sh), or name a build"
if [[ -d $cuda/lib64 ]]; then
  export LD_LIBRARY_PATH="$cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
export PATH="$PATH:$cuda/bin"

gpu="$("$tests/gpu_test" --describe 2>&1)"
case $? in
  0) ;;
  "$EXIT_WITHOUT_GPU")
    echo "gpu.sh: no GPU: ${gpu#gpu_test: no GPU: }; nothing was tested"
    exit "$EXIT_WITHOUT_GPU"
    ;;
  *)
    echo "gpu.sh: the GPU cannot be used: ${gpu#gpu_test: no GPU: }"
    exit 1
    ;;
esac

report="$(readlink -m "$report")"
readonly logs="$report.logs"
mkdir -p "$logs" || exit 2
passed=0
failed=0
skipped=0

say() {
  printf '%s\n' "$*" | tee -a "$report"
}
line() {
  say "$(printf '%-7s %7.1f s  %s' "$1" "$2" "$3")"
}
skip() {
  skipped=$((skipped + 1))
  line skipped 0 "$1: $2"
}

# What a gtest program says it did: "312 passed, 6 skipped".
counts() {
  sed -nE 's/^\[  (PASSED|SKIPPED|FAILED)  ?\] ([0-9]+) tests?[.,].*/\2 \1/p' "$1" |
    tr 'A-Z\n' 'a-z,' | sed 's/,$//; s/,/, /g'
}

# check NAME LIMIT COMMAND...: runs it for LIMIT seconds at most, less where the
# time of the whole is up, and reports it. What skips all that it has is skipped.
check() {
  local name=$1 limit=$2 left=$((SECONDS_MAX - SECONDS)) log code begin verdict
  shift 2
  log="$logs/$((passed + failed + skipped + 1)).log"
  if ((left < 5)); then
    failed=$((failed + 1))
    line FAILED 0 "$name: no time is left of $SECONDS_MAX s"
    return
  fi
  begin=$EPOCHREALTIME
  timeout --kill-after=5 "$((limit < left ? limit : left))" "$@" >"$log" 2>&1 </dev/null
  code=$?
  local took said
  took="$(awk "BEGIN { print $EPOCHREALTIME - $begin }")"
  said="$(counts "$log")"
  if ((code == 0)) && [[ $said =~ ^0\ passed ]]; then
    skip "$name" "$(grep -m1 -A1 ': Skipped' "$log" | tail -1)"
    return
  fi
  if ((code == 0)); then
    passed=$((passed + 1))
    verdict=passed
  else
    failed=$((failed + 1))
    verdict=FAILED
    ((code == 124 || code == 137)) && said="longer than its time${said:+; $said}"
  fi
  line "$verdict" "$took" "$name${said:+ ($said)}"
  ((code == 0)) || { tail -n 25 "$log" | sed 's/^/    | /' | tee -a "$report"; }
}

# The first words: what this is, and where it runs.
head_of_report() {
  local gpus
  gpus="$(nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap \
    --format=csv,noheader 2>/dev/null ||
    sed -n 's/^NVRM version: /no nvidia-smi; driver /p' /proc/driver/nvidia/version 2>/dev/null)"
  : >"$report"
  say "Syncline on a GPU"
  [[ -e $root/VERSION ]] && say "$(grep -E '^(version|commit|cuda):' "$root/VERSION")"
  say "gpu:       $gpu"
  sed 's/^/machine:   /' <<<"${gpus:-no nvidia-smi}" | tee -a "$report"
  say "host:      $(nproc) cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)"
  say "date:      $(date -u '+%Y-%m-%d %H:%M UTC')"
  say ""
}

check_kernels() {
  check "the GPU as a device" 60 "$tests/gpu_test" \
    --gtest_filter='GpuTest.*:CudaDeviceTest.*'
  check "operators, against this machine's processors" 150 "$tests/gpu_test" \
    --gtest_filter='*/OpGpuTest.*:NarrowOpGpuTest.*'
  check "convolutions, by cuDNN and by our kernels" 60 "$tests/gpu_test" \
    --gtest_filter='CudnnGpuTest.*'
  check "steps of whole models, likewise" 90 "$tests/gpu_test" \
    --gtest_filter='StepGpuTest.*:FusionGpuTest.*:*/ZooGpuTest.*'
  local name="operators and steps under compute-sanitizer"
  if ! command -v compute-sanitizer >/dev/null; then
    skip "$name" "it is not installed"
    return
  fi
  check "$name" 120 compute-sanitizer --tool memcheck --error-exitcode 9 \
    --report-api-errors no "$tests/gpu_test" \
    --gtest_filter='*/OpGpuTest.AddsToGradients/*:StepGpuTest.*'
}

# Through real daemons, as the tests of clusters do; their goals are the tests'.
check_jobs() {
  export SYNCLINE_TEST_DEVICE=cuda:0
  # gpu_test has said what computes the GPU's; without any, workers refuse jobs.
  if [[ $gpu == *"convolutions: none"* ]]; then
    export SYNCLINE_TEST_CONVOLUTIONS=own
  fi
  # Any folder does for the jobs that draw their data.
  export SYNCLINE_TEST_DATA="${data:-$root}"
  if [[ "$("$bin/syncline-worker" --help 2>&1)" != *--device* ]]; then
    skip "jobs on the GPU" "this syncline-worker has no --device yet"
    return
  fi
  check "job: ResNet-18, 512 digits by heart" 60 "$tests/training_accuracy_test" \
    --gtest_filter='*/resnet_job'
  local name="job: convolutional network, MNIST"
  if [[ -e $SYNCLINE_TEST_DATA/mnist/train-images-idx3-ubyte.gz ]]; then
    check "$name" 90 "$tests/training_accuracy_test" --gtest_filter='*/mnist_cnn_job'
  else
    skip "$name" "no mnist/ in '$data'; name its folder with --data"
  fi
  check "job: GPT, Shakespeare" 90 "$tests/gpt_test"
  check "job: DLRM, generated clicks" 90 "$tests/ctr_accuracy_test" \
    --gtest_filter='*/dlrm'
}

check_speed() {
  check "benchmark" 90 "$bin/syncline-bench" --repetitions 3 kernels train
  # It is the last log.
  local log
  log="$logs/$((passed + failed + skipped)).log"
  say ""
  sed 's/^/    /' "$log" | tee -a "$report"
}

head_of_report
check_kernels
check_jobs
check_speed
say ""
if ((failed > 0)); then
  say "$failed of $((passed + failed)) checks FAILED, $skipped skipped, in $SECONDS s"
else
  say "all $passed checks passed, $skipped skipped, in $SECONDS s"
fi
echo "gpu.sh: $report, $logs/"
((failed == 0))

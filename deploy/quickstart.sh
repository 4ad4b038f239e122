#!/usr/bin/env bash
# From a fresh clone on Debian 12 to a trained model: installs what is missing,
# builds, and trains a digit classifier on a cluster of this machine: one
# scheduler, two parameter servers and three workers, as separate processes.
#
#   deploy/quickstart.sh
#
# Trains on MNIST where it is: in $SYNCLINE_DATA, else in ../shared/data, in a
# folder mnist/ (IDX files, gzip). Otherwise on digits that the workers draw
# themselves, so that no network is needed. Leaves no process behind; results
# are in syncline-out/.
set -euo pipefail
cd "$(dirname "$0")/.."

deploy/install-deps.sh build

echo "quickstart: building (a few minutes the first time)"
# A build folder that is there keeps its choice; a new one goes without tests,
# whose libraries are not installed yet.
choice=()
[[ -e build/release/CMakeCache.txt ]] || choice=(-DSYNCLINE_BUILD_TESTS=OFF)
cmake --preset release "${choice[@]}" >/dev/null
cmake --build --preset release -j "$(nproc)" \
  --target synctl syncline-scheduler syncline-ps syncline-worker

data="${SYNCLINE_DATA:-../shared/data}"
if [[ -e "$data/mnist/train-images-idx3-ubyte.gz" ]]; then
  job=deploy/examples/mnist/job.textproto
  echo "quickstart: training on MNIST from $data"
else
  job=deploy/examples/mnist/digits.textproto
  echo "quickstart: no MNIST in $data; training on drawn digits"
  data=.
fi
# Not --data-root, which reads nothing that links of the folder lead to.
export SYNCLINE_DATA="$data"
exec build/release/bin/synctl local "$job" --ps 2 --workers 3

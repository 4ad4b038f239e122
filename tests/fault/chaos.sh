#!/bin/sh
# Chaos for as long as it is told, after a build: faults at seeded random
# moments under the daemons, and a check of what they leave
# (tests/fault/chaos/chaos_test.cc).
#
#   tests/fault/chaos.sh [--seconds N] [--seed N]    one hour, a seed of its own
#
# BUILD: the build's folder. Exit code: that of the test. A failure prints its
# seed; the same seed gives the same faults, at about the same moments.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build/release}
seconds=3600
seed=$(date +%s)
while [ $# -gt 1 ]; do
  case $1 in
    --seconds) seconds=$2 ;;
    --seed) seed=$2 ;;
    *) break ;;
  esac
  shift 2
done
if [ $# -gt 0 ]; then
  sed -n '6p' "$0" >&2
  exit 2
fi
if [ ! -x "$build/tests/chaos_test" ]; then
  echo "$build/tests/chaos_test is not there: ninja -C $build chaos_test" >&2
  exit 2
fi
echo "chaos for $seconds s, seed $seed"
exec "$build/tests/chaos_test" --gtest_filter='ChaosTest.*' \
  --seconds "$seconds" --seed "$seed"

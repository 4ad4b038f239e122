#!/usr/bin/env python3
"""Holds the clocks apart.

Deadlines, leases, time-outs and durations are counted in MonotonicNow()
(common/base/clock.h): setting the wall clock must not move them. The wall clock
is for records, logs and the edge to gRPC, in the files named below. Waits of
Abseil follow the wall clock, so common/base/mutex.h has the only ones.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Path -> why it may read the wall clock.
WALL = {
    "common/base/clock.cc": "the monotonic clock begins as the wall clock",
    "common/base/clock.h": "names it",
    "common/system/log.cc": "the time of a line",
    "common/base/mutex.h": "the thread sanitizer knows no other wait",
    "common/base/random.cc": "a seed",
    "common/base/slewed_clock.cc": "the times of records follow it slowly",
    "common/daemon/daemon.cc": "the validity of certificates",
    "common/rpc/grpc_channel.cc": "the edge to gRPC",
    "common/rpc/grpc_channel.h": "the edge to gRPC",
    "common/rpc/transport_security.cc": "the validity of certificates",
    "common/rpc/user_calls.cc": "the validity of tokens",
    "common/rpc/grpc_timers.cc": "looks for steps of it",
    "scheduler/service/daemons_service.cc": "the time of a record",
    "scheduler/service/jobs_service.cc": "the time of a record",
    "scheduler/service/log_relay.cc": "the time of a line",
    "scheduler/service/member_certificates.cc": "the validity of certificates",
    "scheduler/service/scheduler.cc": "the time of a record",
    "scheduler/service/status_pages.cc": "the validity of tokens",
    "scheduler/ctl/token_command.cc": "the validity of tokens",
    "scheduler/ctl/certs_command.cc": "the validity of certificates",
    "scheduler/ctl/synctl.cc": "the validity of certificates",
    "scheduler/ctl/commands.cc": "the age of a record",
    "scheduler/ctl/local_command.cc": "the name of a folder",
    "scheduler/ctl/watch.cc": "the age of a record",
    "worker/evaluation/evaluator.cc": "the time of a record",
    "worker/export/kept_results.cc": "the age of files",
    "worker/training/checkpointer.cc": "the time of a record",
    "worker/training/regime_changer.cc": "the time of a record",
    "worker/training/result_export.cc": "the times of events",
}
READS = re.compile(r"absl::Now\(|system_clock|gettimeofday|CLOCK_REALTIME|"
                   r"absl::ToChronoTime|\btime\((nullptr|NULL|0)\)")
WAITS = re.compile(r"absl::(Mutex|CondVar|Notification|BlockingCounter|SleepFor)"
                   r"\b|absl/synchronization/(?!mutex\.h)|WaitWith(Deadline|Timeout)")
ROLES = ("common/", "kernels/", "server/", "worker/", "scheduler/")


def problems_of(path):
    for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
        code = line.split("//")[0]
        if READS.search(code) and path not in WALL:
            yield (f"{path}:{number}: reads the wall clock; use MonotonicNow() of "
                   "common/base/clock.h, ToGrpcTime() towards gRPC, or say in "
                   "tests/lint/clocks.py why it is a record")
        if WAITS.search(code):
            yield (f"{path}:{number}: waits by the wall clock; use Mutex and "
                   "CondVar of common/base/mutex.h")


def main():
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.cc", "*.cu", "*.h"],
        cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    files = [f for f in listed if f.startswith(ROLES) and (ROOT / f).exists()]
    problems = [p for path in files for p in problems_of(path)]
    problems += [f"tests/lint/clocks.py: there is no {path}"
                 for path in WALL if not (ROOT / path).exists()]
    print("\n".join(problems) if problems else f"clocks: {len(files)} files")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

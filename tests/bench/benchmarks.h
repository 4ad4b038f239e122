#ifndef SYNCLINE_TESTS_BENCH_BENCHMARKS_H_
#define SYNCLINE_TESTS_BENCH_BENCHMARKS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "tests/bench/report.h"

namespace syncline {

struct BenchOptions {
  // Seconds instead of minutes: shows that it works, not how fast it is.
  bool smoke = false;
  // Of everything that is compared, taken in turn.
  int repetitions = 9;
  // Compute threads of a worker.
  int threads = 1;
  // The large tensor of `pushpull`.
  int64_t large_mib = 1024;
  // `pushpull`: TLS against plain text too.
  bool tls = false;
  // `train`: with everything that watches it, against nothing that does.
  bool observed = false;
  // `regime`: MiB of values of the job whose regime changes.
  int64_t state_mib = 256;
  // Of `sparse`, `step`, `collective`, `strategies`, `regime`, `compressed` and
  // `failover`: only what has this in its name.
  std::string only = {};
  // How long `spill` goes on after it has measured.
  int seconds = 120;
};

// Each is one file and one line in main.cc. It verifies results before it
// times, and fills *report. Errors: a wrong result, or what went wrong.

// Samples of drawn digits into batches, against a memcpy of the same floats.
absl::Status RunReadBench(const BenchOptions& options, Report* report);

// Optimizer kernels, and values to 16 bits and back: bytes read and written a
// second, against a memcpy.
absl::Status RunKernelsBench(const BenchOptions& options, Report* report);

// An MLP 784-256-10 at batch 1,024: one worker through one ps, daemons of their
// own, against the same worker's parts in this process.
absl::Status RunTrainBench(const BenchOptions& options, Report* report);

// MLPs with two workers in SYNC, by ALL_REDUCE and SHARDED against two ps,
// daemons of their own; all end with the same bits.
absl::Status RunStrategyBench(const BenchOptions& options, Report* report);

// Modes against SYNC with slow workers; the pause of a change of the regime,
// against a memcpy.
absl::Status RunRegimeBench(const BenchOptions& options, Report* report);

// Shipped examples with each compression of gradients against none: time, bytes
// and what is learned. Without their data only generated digits.
absl::Status RunCompressedBench(const BenchOptions& options, Report* report);

// Tensors of several sizes through one ps in another process, over TCP and
// through shared memory, against gRPC echoing the same bytes and a memcpy.
absl::Status RunPushPullBench(const BenchOptions& options, Report* report);

// Rows of an embedding table in real ps processes, against a
// std::unordered_map behind the same calls; memory of a row.
absl::Status RunSparseBench(const BenchOptions& options, Report* report);

// A table of eight times its memory against one that fits, under Zipf's keys;
// and the memory of its process, over a long run.
absl::Status RunSpillBench(const BenchOptions& options, Report* report);

// Training steps of several models, executor and optimizer kernels alone,
// against PyTorch's. Errors: Unimplemented: there is no PyTorch.
absl::Status RunStepBench(const BenchOptions& options, Report* report);

// All-reduces among 2 and 4 processes of this host: through shared memory
// against OpenMPI's, over TCP against Gloo's. What is not installed is left
// out.
absl::Status RunCollectiveBench(const BenchOptions& options, Report* report);

// A checkpoint of a shard against the same bytes written and synced; a restore
// into two ps against reading them.
absl::Status RunCheckpointBench(const BenchOptions& options, Report* report);

// A job with checkpoints against one without, and how long a job is held up by
// the loss of a worker and of a ps; daemons of their own.
absl::Status RunFailoverBench(const BenchOptions& options, Report* report);

// The cost of idle members to a scheduler: its control loop with real messages,
// and no gRPC.
absl::Status RunSchedulerBench(const BenchOptions& options, Report* report);

}  // namespace syncline

#endif  // SYNCLINE_TESTS_BENCH_BENCHMARKS_H_

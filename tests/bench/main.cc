// syncline-bench: what Syncline promises to be fast at, measured. Run by hand
// at full size on an idle machine, and in smoke size by ctest.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/system/malloc_policy.h"
#include "kernels/threads.h"
#include "tests/bench/benchmarks.h"
#include "tests/bench/report.h"
#include "tests/bench/serve.h"

namespace syncline {
namespace {

struct Benchmark {
  const char* name;
  const char* what;
  absl::Status (*run)(const BenchOptions&, Report*);
};

constexpr Benchmark kBenchmarks[] = {
    {"read", "drawn digits into batches against a memcpy of the same floats",
     RunReadBench},
    {"kernels",
     "bytes/s that each optimizer reads and writes, on 64 MiB of parameters, "
     "against a memcpy",
     RunKernelsBench},
    {"train",
     "samples/s of an MLP 784-256-10 with one worker and one ps against the "
     "same worker alone",
     RunTrainBench},
    {"strategies",
     "samples/s of MLPs with two workers, by ALL_REDUCE and SHARDED against ps",
     RunStrategyBench},
    {"regime",
     "samples/s by BOUNDED_STALENESS, ASYNC and SYNC_WITH_BACKUPS with a slow "
     "worker against SYNC; the pause where a regime changes",
     RunRegimeBench},
    {"compressed",
     "shipped examples with gradients compressed by each method against whole "
     "ones: time, bytes, loss and accuracy",
     RunCompressedBench},
    {"pushpull",
     "64 MiB and other sizes through one ps, against gRPC echoing the bytes "
     "and a memcpy",
     RunPushPullBench},
    {"sparse",
     "rows of embedding tables in real ps processes against a "
     "std::unordered_map behind the same calls",
     RunSparseBench},
    {"spill", "a table of eight times its memory against one that fits",
     RunSpillBench},
    {"checkpoint",
     "a checkpoint against the same bytes written and synced; a restore into "
     "two ps against reading them; one of changed rows against one of all",
     RunCheckpointBench},
    {"failover",
     "training with a checkpoint every 30 s against none; how long a job is "
     "held up by the loss of a worker and of a ps",
     RunFailoverBench},
    {"step", "one training step on this machine against PyTorch's",
     RunStepBench},
    {"scheduler",
     "processor time that 11,000 idle members cost a scheduler's control loop",
     RunSchedulerBench},
    {"collective",
     "all-reduces of 4 KiB to 64 MiB through shared memory against OpenMPI's, "
     "over TCP against Gloo's",
     RunCollectiveBench},
};

// As ctest takes it: what is compared with is not installed.
constexpr int kExitSkipped = 77;

int Main(int argc, char** argv) {
  CLI::App app("Measures Syncline: ratios within one run, interleaved.");
  BenchOptions options;
  bool json = false;
  // One core is left to the ps, the other side of what is measured.
  options.threads =
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()) - 1);
  app.add_flag("--smoke", options.smoke, "small sizes, few repetitions");
  app.add_flag("--json", json, "one JSON array instead of tables");
  app.add_option("--repetitions", options.repetitions, "of each measurement")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "compute threads of a worker")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--large-mib", options.large_mib,
                 "pushpull: MiB of the large tensor")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_flag("--tls", options.tls,
               "pushpull: TLS too, and the rate of its cipher alone");
  app.add_flag("--observed", options.observed,
               "train: metrics scraped, page read, logs at info and kept, "
               "against none of these");
  app.add_option(
      "--only", options.only,
      "sparse, step, collective, strategies, regime, compressed, failover: "
      "only what has this in its name");
  app.add_option("--state-mib", options.state_mib,
                 "regime: MiB of values whose job changes its regime")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "spill: of the long run")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  app.require_subcommand();
  app.fallthrough();
  for (const Benchmark& benchmark : kBenchmarks) {
    app.add_subcommand(benchmark.name, benchmark.what);
  }
  CLI11_PARSE(app, argc, argv);
  if (options.smoke) options.repetitions = std::min(options.repetitions, 2);

  int exit_code = 0;
  std::vector<std::string> objects;
  for (const Benchmark& benchmark : kBenchmarks) {
    if (!app.got_subcommand(benchmark.name)) continue;
    Report report(benchmark.name, benchmark.what);
    report.ShowProgress(&std::cerr);
    const absl::Status status = benchmark.run(options, &report);
    if (!status.ok()) {
      std::fprintf(stderr, "%s: %s\n", benchmark.name,
                   status.ToString().c_str());
      exit_code = absl::IsUnimplemented(status) ? kExitSkipped : 1;
      continue;
    }
    if (json) {
      objects.push_back(report.ToJson());
    } else {
      std::fputs(report.ToTable().c_str(), stdout);
    }
  }
  if (json) std::printf("[%s]\n", absl::StrJoin(objects, ",\n").c_str());
  return exit_code;
}

}  // namespace
}  // namespace syncline

int main(int argc, char** argv) {
  if (syncline::IsServeCommand(argc, argv)) return syncline::Serve(argc, argv);
  // Both as the worker's daemon does: the two must differ in the ps alone, and
  // clients must not be busy with page faults that a worker does not have.
  syncline::KeepMessageMemory(/*arenas=*/4);
  syncline::RestartWithPassiveWaiting(argv);
  return syncline::Main(argc, argv);
}

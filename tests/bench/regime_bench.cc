// Measures what regimes are for, and what a change of one costs.
//
//   slow by turns   4 workers, one after another at random 3 times as slow for
//                   0.4 s: BOUNDED_STALENESS and ASYNC against SYNC
//   slow for good   one of 4 workers is 3 times as slow: SYNC_WITH_BACKUPS, 3
//                   needed, against SYNC, by the samples whose gradients count
//   pause           how long a running job with a large state stands still
//                   where its regime changes, beside a memcpy of the bytes that
//                   have to move
//
// Jobs run on daemons of this machine. Samples per second are of the training
// loops, as in strategy_bench.cc.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "tests/bench/benchmarks.h"
#include "tests/bench/slowed_workers.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

constexpr int kInputs = 784;
constexpr int kClasses = 10;
constexpr absl::Duration kPatience = absl::Minutes(5);

// --- Slow workers ------------------------------------------------------------

constexpr uint32_t kWorkers = 4;
constexpr uint32_t kNeeded = 3;
constexpr uint32_t kBound = 32;
// A step takes several turns of SlowedWorkers.
constexpr int kHidden = 1024;
constexpr int kBatch = 256;
// The rank that is slow for good; not the chief.
constexpr size_t kSlow = kWorkers - 1;

JobSpec PacedJob(ConsistencySpec::Mode mode, int clocks) {
  JobSpec job = DigitsJob();
  job.set_name(absl::StrCat("regime-", ConsistencySpec::Mode_Name(mode)));
  DataSpec& data = *job.mutable_data();
  data.mutable_train()->mutable_digits()->set_count(
      static_cast<uint64_t>(clocks) * kBatch * kWorkers);
  data.mutable_test()->mutable_digits()->set_count(2000);
  data.mutable_test()->mutable_digits()->set_seed(2);
  job.mutable_learning_rate()->set_base(0.02f);
  job.mutable_training()->set_batch_size(kBatch);
  job.mutable_training()->set_threads(1);
  job.mutable_consistency()->set_mode(mode);
  if (mode == ConsistencySpec::BOUNDED_STALENESS) {
    job.mutable_consistency()->set_staleness_bound(kBound);
  }
  if (mode == ConsistencySpec::SYNC_WITH_BACKUPS) {
    job.mutable_consistency()->set_needed(kNeeded);
  }
  job.mutable_resources()->set_workers(kWorkers);
  job.mutable_resources()->set_ps(1);
  return job;
}

struct Result {
  double samples_per_second = 0;  // whose gradients were applied
  double test_loss = 0;
};

double LoopSeconds(const WorkerProgress& worker) {
  return worker.compute_seconds() + worker.push_seconds() +
         worker.wait_seconds() + worker.pull_seconds() + worker.data_seconds();
}

// Trains with one worker slow: `slow`, or one after the other.
absl::StatusOr<Result> TrainSlowed(TestCluster* cluster, const JobSpec& job,
                                   std::optional<size_t> slow, uint64_t seed) {
  const std::string file =
      WriteJob(cluster->dir(), job, MlpModel(kInputs, kHidden, kClasses));
  std::vector<ChildProcess*> workers = {&cluster->daemon("chief-0")};
  for (uint32_t i = 1; i < kWorkers; ++i) {
    workers.push_back(&cluster->daemon(absl::StrCat("worker-", i - 1)));
  }
  std::string id;
  {
    const SlowedWorkers slowed(workers, slow, seed);
    SYNCLINE_ASSIGN_OR_RETURN(id, cluster->Submit(file));
    SYNCLINE_RETURN_IF_ERROR(
        cluster->Synctl({"watch", id}, kPatience).status());
  }
  // The last reports of the ps come behind the end.
  absl::SleepFor(absl::Seconds(1));
  SYNCLINE_ASSIGN_OR_RETURN(const JobStatus status, cluster->Get(id));
  const JobProgress& progress = status.progress();
  if (status.state() != SUCCEEDED || status.evaluations().empty() ||
      progress.workers_size() != static_cast<int>(kWorkers)) {
    return absl::InternalError(
        absl::StrCat("the job did not end well: ", status.ShortDebugString()));
  }
  Result result;
  result.test_loss = status.evaluations().rbegin()->loss();
  uint64_t samples =
      static_cast<uint64_t>(progress.clock()) * kBatch * kWorkers;
  for (const auto& blame : progress.blame()) {
    samples -= blame.left_behind_clocks() * kBatch;
  }
  // Nobody waits for a worker that is left behind.
  const bool may_lag =
      job.consistency().mode() == ConsistencySpec::SYNC_WITH_BACKUPS;
  double seconds = 0;
  for (size_t rank = 0; rank < kWorkers; ++rank) {
    if (may_lag && rank == slow) continue;
    seconds = std::max(seconds,
                       LoopSeconds(progress.workers(static_cast<int>(rank))));
  }
  result.samples_per_second = static_cast<double>(samples) / seconds;
  return result;
}

// Each of `modes` with workers that are slow in the same way, and its ratio to
// SYNC, the first one.
struct Compared {
  ConsistencySpec::Mode mode;
  std::optional<Goal> goal;
};
absl::Status CompareSlowed(const BenchOptions& options, absl::string_view name,
                           std::optional<size_t> slow,
                           const std::vector<Compared>& others,
                           TestCluster* cluster, Report* report) {
  const int clocks = options.smoke ? 6 : 120;
  const auto name_of = [&](ConsistencySpec::Mode mode) {
    return absl::StrCat(name, ", ", ConsistencySpec::Mode_Name(mode));
  };
  std::vector<ConsistencySpec::Mode> modes = {ConsistencySpec::SYNC};
  for (const Compared& other : others) modes.push_back(other.mode);
  for (int i = 0; i < options.repetitions; ++i) {
    for (const ConsistencySpec::Mode mode : modes) {
      SYNCLINE_ASSIGN_OR_RETURN(
          const Result result,
          TrainSlowed(cluster, PacedJob(mode, clocks), slow,
                      /*seed=*/static_cast<uint64_t>(i) + 1));
      if (!options.smoke && !(result.test_loss < std::log(kClasses))) {
        return absl::InternalError(absl::StrCat(
            name_of(mode), " does not learn: test loss ", result.test_loss));
      }
      report->Add(name_of(mode), "samples/s", result.samples_per_second);
      report->Add(absl::StrCat(name_of(mode), ": loss"), "", result.test_loss);
    }
  }
  for (const Compared& other : others) {
    report->AddRatio(absl::StrCat(name_of(other.mode), " / SYNC"),
                     name_of(other.mode), name_of(ConsistencySpec::SYNC),
                     other.goal);
  }
  return absl::OkStatus();
}

// --- Pauses ------------------------------------------------------------------

constexpr uint32_t kRanks = 2;
constexpr int kArrays = 3;  // values and Adam's two moments

// A change, and the bytes that it has to copy, in sizes of all values.
struct Change {
  const char* name;
  std::vector<std::string> flags;
  double copies;
};

std::vector<Change> Changes() {
  return {
      {"SYNC to BOUNDED_STALENESS",
       {"--mode", "bounded-staleness", "--bound", "2"},
       0},
      {"BOUNDED_STALENESS to SYNC", {"--mode", "sync"}, 0},
      // Each rank has all of it: the values already.
      {"PARAMETER_SERVER to ALL_REDUCE",
       {"--strategy", "all-reduce"},
       kRanks * kArrays},
      // Each rank copies its values, and the slots of the blocks that it owns.
      {"ALL_REDUCE to SHARDED",
       {"--strategy", "sharded"},
       kRanks + (kArrays - 1)},
      // Each rank writes what it owns.
      {"SHARDED to PARAMETER_SERVER",
       {"--strategy", "parameter-server"},
       kArrays},
  };
}

// Of the last change, which must have been made.
absl::StatusOr<double> PauseOfLast(TestCluster* cluster, const std::string& id,
                                   const Change& change) {
  std::vector<std::string> arguments = {"regime", id};
  arguments.insert(arguments.end(), change.flags.begin(), change.flags.end());
  SYNCLINE_ASSIGN_OR_RETURN(const auto result,
                            cluster->Synctl(arguments, kPatience));
  if (result.exit.code != 0) {
    return absl::InternalError(
        absl::StrCat(change.name, ": ", result.out, result.err));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const JobStatus status, cluster->Get(id));
  if (status.regimes().empty() || !status.regimes().rbegin()->error().empty() ||
      !(status.regimes().rbegin()->pause_seconds() > 0)) {
    return absl::InternalError(absl::StrCat(
        change.name, " has no pause: ", status.ShortDebugString()));
  }
  const int64_t clock = status.regimes().rbegin()->regime().first_clock();
  // The job goes on by it.
  SYNCLINE_RETURN_IF_ERROR(
      cluster->WaitForClock(id, clock + 2, kPatience).status());
  return status.regimes().rbegin()->pause_seconds();
}

double MemcpySeconds(const std::vector<char>& from, std::vector<char>* to) {
  const absl::Time begin = absl::Now();
  std::memcpy(to->data(), from.data(), from.size());
  return absl::ToDoubleSeconds(absl::Now() - begin);
}

absl::Status MeasurePauses(const BenchOptions& options, Report* report) {
  const int64_t mib = options.smoke ? 8 : options.state_mib;
  const auto bytes = static_cast<size_t>(mib) << 20;
  // A layer's weights and biases, and those of the classes.
  const auto hidden = static_cast<int>((bytes / sizeof(float) - kClasses) /
                                       (kInputs + 1 + kClasses));
  TestCluster cluster({.ps = 1, .workers = kRanks});
  SYNCLINE_RETURN_IF_ERROR(cluster.Start());
  JobSpec job = EndlessJob();
  job.set_name("regime-pause");
  job.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  job.mutable_learning_rate()->set_base(1e-5f);
  job.mutable_training()->set_batch_size(1);
  job.mutable_training()->set_threads(1);
  job.mutable_resources()->set_workers(kRanks);
  job.mutable_resources()->set_ps(1);
  SYNCLINE_ASSIGN_OR_RETURN(
      const std::string id,
      cluster.Submit(
          WriteJob(cluster.dir(), job, MlpModel(kInputs, hidden, kClasses))));
  SYNCLINE_RETURN_IF_ERROR(cluster.WaitForClock(id, 2, kPatience).status());
  report->Set("state_mib", mib * kArrays);
  const std::vector<char> from(bytes, 1);
  std::vector<char> to(bytes, 0);
  const std::string copy = absl::StrCat("memcpy of ", mib, " MiB");
  for (int i = 0; i < options.repetitions; ++i) {
    report->Add(copy, "s", MemcpySeconds(from, &to));
    for (const Change& change : Changes()) {
      SYNCLINE_ASSIGN_OR_RETURN(const double pause,
                                PauseOfLast(&cluster, id, change));
      report->Add(absl::StrCat("pause ", change.name), "s", pause);
    }
  }
  SYNCLINE_RETURN_IF_ERROR(cluster.Synctl({"cancel", id}).status());
  for (const Change& change : Changes()) {
    const std::string pause = absl::StrCat("pause ", change.name);
    report->SetGoal(pause, AtMost(1.0));
    if (change.copies == 0) continue;
    const std::string copies = absl::StrCat("memcpy of ", change.copies, " x ",
                                            mib, " MiB, ", change.name);
    report->AddScaled(copies, "s", copy, change.copies);
    report->AddRatio(absl::StrCat(pause, " / memcpy"), pause, copies);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunRegimeBench(const BenchOptions& options, Report* report) {
  const auto wants = [&](absl::string_view name) {
    return absl::StrContains(name, options.only);
  };
  if (wants("slow by turns") || wants("slow for good")) {
    TestCluster cluster({.ps = 1, .workers = kWorkers});
    SYNCLINE_RETURN_IF_ERROR(cluster.Start());
    report->Set("workers", kWorkers);
    report->Set("batch", kBatch);
    report->Set("slowed", SlowedWorkers::Describe(kWorkers));
    if (wants("slow by turns")) {
      SYNCLINE_RETURN_IF_ERROR(
          CompareSlowed(options, "by turns", std::nullopt,
                        {{ConsistencySpec::BOUNDED_STALENESS, 1.7},
                         {ConsistencySpec::ASYNC, std::nullopt}},
                        &cluster, report));
    }
    if (wants("slow for good")) {
      SYNCLINE_RETURN_IF_ERROR(CompareSlowed(
          options, "for good", kSlow,
          {{ConsistencySpec::SYNC_WITH_BACKUPS, 2.0}}, &cluster, report));
    }
  }
  if (wants("pause")) return MeasurePauses(options, report);
  return absl::OkStatus();
}

}  // namespace syncline

// Goal: under kills, freezes, lost answers, partitions and full disks nothing
// that was acknowledged in a checkpoint is lost and nothing counts twice, in
// SYNC, BOUNDED_STALENESS and ASYNC, for dense values, rows of tables and the
// optimizer's slots. Two bugs that are switched on are found. Method: the real
// executables train jobs whose gradients name their push (history_checker.h),
// faults strike at seeded random moments, then every checkpoint and the trained
// model are compared with what they must be.
//
//   chaos_test [--seconds N] [--seed N]     chaos.sh runs it by hand

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_contents.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "tests/fault/chaos/chaos_cluster.h"
#include "tests/fault/chaos/history_checker.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

// Of the command line.
double chaos_seconds = 60;
uint64_t chaos_seed = 1;
bool has_disks = false;

constexpr int64_t kSamples = 600;
constexpr int64_t kWorkers = 2;
constexpr int64_t kEpochs = 12;
constexpr int64_t kCheckpointEvery = 150;
constexpr int64_t kCheckpointsKept = 12;
constexpr int kStrikesOfAJob = 5;
// A job that nobody disturbs any more ends; machines may be busy.
constexpr absl::Duration kPatience = absl::Minutes(10);

// Each sample's logit is its elements' sum, 1,000 below 0: the logistic
// function's slope is exactly 0 there, so the gradient of each element is -1.
constexpr char kCountingModel[] = R"(
  <ir_version: 8, opset_import: ["" : 13]>
  counting (int64[N, 1] id, float[600, 1] a, float[600, 1] b, float[600, 1] c,
            float[600, 1] rows) => (float[N, 1] logit)
  <int64[1] one = {1}>
  {
    ga = Gather (a, id)
    gb = Gather (b, id)
    gc = Gather (c, id)
    gr = Gather (rows, id)
    all = Sum (ga, gb, gc, gr)
    sum = ReduceSum <keepdims = 0> (all, one)
    low = Constant <value = float[1] {-1000.0}> ()
    logit = Add (sum, low)
  })";

struct JobKind {
  ConsistencySpec::Mode mode;
  OptimizerSpec::Kind optimizer;
};

std::string NameOf(const JobKind& kind) {
  std::string name = absl::StrCat(ConsistencySpec::Mode_Name(kind.mode), "-",
                                  OptimizerSpec::Kind_Name(kind.optimizer));
  for (char& c : name) c = c == '_' ? '-' : absl::ascii_tolower(c);
  return name;
}

// A job on the cluster, from its submission to the check of what it left.
class ChaosJob {
 public:
  ChaosJob(ChaosCluster* chaos, const JobKind& kind)
      : chaos_(chaos), kind_(kind) {
    counting_.rule = kind.optimizer == OptimizerSpec::SGD
                         ? CountingJob::Rule::kSgd
                         : CountingJob::Rule::kAdagrad;
    counting_.workers = kWorkers;
    counting_.samples = kSamples;
    counting_.epochs = kEpochs;
  }

  absl::Status Submit() {
    SYNCLINE_ASSIGN_OR_RETURN(
        id_, chaos_->cluster().Submit(
                 WriteJob(chaos_->cluster().dir(), Spec(), kCountingModel)));
    return absl::OkStatus();
  }

  // Asks the scheduler, if it can be asked. True: the job has ended.
  bool Look() {
    const absl::StatusOr<JobStatus> job = chaos_->Get(id_);
    if (!job.ok()) return false;
    status_ = *job;
    if (job->state() == RUNNING) {
      sightings_.push_back({.time = absl::Now(),
                            .attempt = job->attempt(),
                            .clock = job->progress().clock(),
                            .checkpoint = Newest(*job)});
    }
    return ctl::HasEnded(job->state());
  }
  bool HasCheckpoint() const { return status_.checkpoints_size() > 0; }

  // Waits for the end, with what is left of the faults. A job that has failed
  // by name goes on as a new one, from its last checkpoint, as a user would.
  void Finish() {
    const bool ended = Eventually(kPatience, [&] {
      absl::SleepFor(absl::Milliseconds(100));
      chaos_->Revive();
      if (!Look()) return false;
      if (status_.state() == SUCCEEDED || resumed_ == kResumedMax) return true;
      return !Resume();
    });
    chaos_->DisarmScheduler();
    EXPECT_TRUE(ended) << status_.ShortDebugString();
    EXPECT_EQ(status_.state(), SUCCEEDED) << status_.ShortDebugString();
  }

  // All that it has left.
  Verdict Check() {
    Verdict verdict = CheckAttempts(sightings_, Starts());
    if (status_.state() != SUCCEEDED) {
      ++verdict.broken;
      verdict.Say(absl::StrCat(id_, " ended as ", status_.ShortDebugString()));
      return verdict;
    }
    CheckCheckpoints(&verdict);
    const absl::StatusOr<CountedValues> trained = Trained();
    if (!trained.ok()) {
      ++verdict.broken;
      verdict.Say(trained.status().ToString());
      return verdict;
    }
    verdict.Add(CheckState(
        counting_, id_,
        std::vector<int64_t>(kWorkers, counting_.clocks_total()), *trained));
    return verdict;
  }

  // Of a job that has succeeded.
  absl::StatusOr<CountedValues> Trained() {
    SYNCLINE_ASSIGN_OR_RETURN(const std::string file,
                              chaos_->cluster().FetchModel(id_));
    SYNCLINE_ASSIGN_OR_RETURN(const Weights weights, ReadWeights(file));
    CountedValues values;
    for (const char* name : {"a", "b", "c", "rows"}) {
      const auto weight = weights.find(name);
      if (weight == weights.end()) {
        return absl::NotFoundError(absl::StrCat(file, " has no ", name));
      }
      values[name] = weight->second;
    }
    return values;
  }

  HistoryTotals Totals() const {
    return Summarize(counting_, sightings_, Starts());
  }
  const std::string& id() const { return id_; }
  const JobStatus& status() const { return status_; }
  int resumed() const { return resumed_; }

 private:
  static constexpr int kResumedMax = 5;

  static int64_t Newest(const JobStatus& job) {
    return job.checkpoints_size() > 0 ? job.checkpoints().rbegin()->clock()
                                      : -1;
  }

  JobSpec Spec() const {
    const std::string csv = chaos_->cluster().dir().File("samples.csv");
    std::ofstream train(csv);
    for (int64_t i = 0; i < kSamples; ++i) train << "1," << i << "\n";
    train.close();
    const std::string test_csv = chaos_->cluster().dir().File("test.csv");
    std::ofstream(test_csv) << "1,0\n1,1\n";
    JobSpec job;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        R"pb(
          model {
            initialize { pattern: "a" scheme: ZEROS }
            initialize { pattern: "b" scheme: ZEROS }
            initialize { pattern: "c" scheme: ZEROS }
          }
          data {
            feeds { input: "id" field: "1:2" }
            label { field: "0" }
            shuffle: false
          }
          loss { kind: SIGMOID_CROSS_ENTROPY }
          tables { name: "rows" scheme: ZEROS }
          training { batch_size: 1 seed: 7 threads: 1 }
          resources { workers: 2 ps: 2 }
          limits { step_timeout_seconds: 20 }
          restart { max: 50 backoff_seconds: 0.1 }
        )pb",
        &job));
    job.set_name(NameOf(kind_));
    job.mutable_data()->mutable_train()->mutable_csv()->set_path(csv);
    job.mutable_data()->mutable_test()->mutable_csv()->set_path(test_csv);
    job.mutable_training()->set_epochs(kEpochs);
    job.mutable_consistency()->set_mode(kind_.mode);
    if (kind_.mode == ConsistencySpec::BOUNDED_STALENESS) {
      job.mutable_consistency()->set_staleness_bound(3);
    }
    job.mutable_optimizer()->set_kind(kind_.optimizer);
    // In SYNC a clock's sum is over the samples of all workers.
    const bool halves = kind_.mode == ConsistencySpec::SYNC &&
                        kind_.optimizer == OptimizerSpec::SGD;
    job.mutable_learning_rate()->set_base(kind_.optimizer == OptimizerSpec::ADAM
                                              ? 0.01f
                                          : halves ? kWorkers
                                                   : 1);
    job.mutable_checkpoint()->set_every_clocks(kCheckpointEvery);
    job.mutable_checkpoint()->set_keep_last(kCheckpointsKept);
    job.mutable_checkpoint()->set_directory(chaos_->checkpoint_folder());
    return job;
  }

  bool Resume() {
    const std::string reason = status_.transitions_size() > 0
                                   ? status_.transitions().rbegin()->reason()
                                   : "";
    EXPECT_FALSE(reason.empty()) << "a failure without a name";
    std::printf("[chaos] %s has failed: %s\n", id_.c_str(), reason.c_str());
    ++resumed_;
    chaos_->DisarmScheduler();
    if (!HasCheckpoint()) {
      const absl::Status again = Submit();
      EXPECT_OK(again);
      return again.ok();
    }
    const auto resumed = chaos_->cluster().Synctl({"resume", id_});
    EXPECT_OK(resumed);
    if (!resumed.ok()) return false;
    const size_t at = resumed->out.find("submitted j-");
    EXPECT_NE(at, std::string::npos) << resumed->out << resumed->err;
    if (at == std::string::npos) return false;
    id_ = resumed->out.substr(at + 10, 6);
    // Attempts count from 1 again.
    sightings_.clear();
    return true;
  }

  // As the transitions to the next attempt say it.
  AttemptStarts Starts() const {
    AttemptStarts starts;
    for (const JobTransition& transition : status_.transitions()) {
      const std::string& reason = transition.reason();
      const size_t at = reason.find(" goes on from the checkpoint at clock ");
      if (at == std::string::npos) continue;
      const size_t attempt = reason.rfind("attempt ", at);
      if (attempt == std::string::npos) continue;
      starts[static_cast<uint32_t>(
          std::atoi(reason.c_str() + attempt + strlen("attempt ")))] =
          std::atoll(reason.c_str() + at +
                     strlen(" goes on from the checkpoint at clock "));
    }
    return starts;
  }

  void CheckCheckpoints(Verdict* verdict) const {
    if (kind_.optimizer == OptimizerSpec::ADAM) return;
    const auto all =
        ListCheckpoints(absl::StrCat(chaos_->checkpoint_folder(), "/", id_));
    if (!all.ok()) {
      ++verdict->broken;
      return verdict->Say(all.status().ToString());
    }
    for (const CheckpointFolder& one : *all) {
      // One without a manifest was being written, and is none.
      if (absl::IsNotFound(one.manifest.status())) continue;
      const absl::StatusOr<CountedValues> values =
          one.manifest.ok() ? ValuesOf(one) : one.manifest.status();
      if (!values.ok()) {
        ++verdict->broken;
        verdict->Say(values.status().ToString());
        continue;
      }
      std::vector<int64_t> clocks;
      for (const auto& worker : one.manifest->workers()) {
        clocks.push_back(worker.clock());
      }
      verdict->Add(CheckState(counting_, one.path, clocks, *values));
    }
  }

  static absl::StatusOr<CountedValues> ValuesOf(const CheckpointFolder& one) {
    CountedValues values;
    values["rows"].resize(kSamples);
    TensorValues tensors;
    SYNCLINE_RETURN_IF_ERROR(
        ReadCheckpoint(one.path, *one.manifest, &tensors,
                       [&](uint32_t /*table*/, absl::Span<const int64_t> keys,
                           absl::Span<const float> rows) {
                         for (size_t i = 0; i < keys.size(); ++i) {
                           if (keys[i] < 0 || keys[i] >= kSamples) {
                             return absl::DataLossError(absl::StrCat(
                                 one.path, ": a row of the key ", keys[i]));
                           }
                           values["rows"][keys[i]] = rows[i];
                         }
                         return absl::OkStatus();
                       }));
    for (int i = 0; i < one.manifest->parameters_size(); ++i) {
      values[one.manifest->parameters(i).name()] = tensors[i];
    }
    return values;
  }

  ChaosCluster* const chaos_;
  const JobKind kind_;
  CountingJob counting_;
  std::string id_;
  JobStatus status_;
  std::vector<Sighting> sightings_;
  int resumed_ = 0;
};

void ExpectOk(const Verdict& verdict) {
  EXPECT_TRUE(verdict.ok()) << [&] {
    std::string text =
        absl::StrCat(verdict.lost, " lost, ", verdict.doubled, " doubled, ",
                     verdict.torn, " torn, ", verdict.broken,
                     " broken; replay: tests/fault/chaos.sh "
                     "--seed ",
                     chaos_seed, "\n");
    for (const std::string& problem : verdict.problems) {
      absl::StrAppend(&text, "  ", problem, "\n");
    }
    return text;
  }();
}

TEST(ChaosTest, NothingIsLostAndNothingCountsTwice) {
  constexpr JobKind kKinds[] = {
      {ConsistencySpec::ASYNC, OptimizerSpec::ADAGRAD},
      {ConsistencySpec::SYNC, OptimizerSpec::ADAM},
      {ConsistencySpec::BOUNDED_STALENESS, OptimizerSpec::SGD},
      {ConsistencySpec::SYNC, OptimizerSpec::ADAGRAD},
      {ConsistencySpec::ASYNC, OptimizerSpec::SGD},
      {ConsistencySpec::BOUNDED_STALENESS, OptimizerSpec::ADAGRAD},
      {ConsistencySpec::SYNC, OptimizerSpec::SGD},
  };
  ChaosCluster chaos(has_disks);
  ASSERT_OK(chaos.Start());
  const absl::Time end = absl::Now() + absl::Seconds(chaos_seconds);
  Random random(chaos_seed);
  Verdict all;
  HistoryTotals totals;
  int jobs = 0;
  int failed = 0;
  int attempts = 0;
  CountedValues reference;  // of Adam, from a run that nothing disturbs
  for (size_t turn = chaos_seed; jobs == 0 || absl::Now() < end; ++turn) {
    const JobKind kind = kKinds[turn % std::size(kKinds)];
    SCOPED_TRACE(NameOf(kind));
    const bool is_adam = kind.optimizer == OptimizerSpec::ADAM;
    if (is_adam && reference.empty()) {
      ChaosJob calm(&chaos, kind);
      ASSERT_OK(calm.Submit());
      calm.Finish();
      ASSERT_OK_AND_ASSIGN(reference, calm.Trained());
    }
    ChaosJob job(&chaos, kind);
    ASSERT_OK(job.Submit());
    const auto look = [&] { job.Look(); };
    for (int i = 0; i < kStrikesOfAJob && !job.Look(); ++i) {
      // Between two faults the job gets on.
      const absl::Time next =
          absl::Now() + absl::Seconds(0.2 + 2 * random.Uniform());
      while (absl::Now() < next) {
        look();
        chaos.Revive();
        absl::SleepFor(absl::Milliseconds(100));
      }
      const std::string what = chaos.Strike(&random, look);
      std::printf("[chaos] %s %s\n", job.id().c_str(), what.c_str());
      std::fflush(stdout);
      chaos.Revive();
    }
    job.Finish();
    ++jobs;
    failed += job.resumed();
    attempts += static_cast<int>(job.status().attempt());
    if (is_adam) {
      const auto trained = job.Trained();
      EXPECT_OK(trained);
      EXPECT_TRUE(trained.ok() && *trained == reference)
          << "not the bits of the undisturbed run; replay: "
             "tests/fault/chaos.sh --seed "
          << chaos_seed;
    } else {
      all.Add(job.Check());
    }
    const HistoryTotals of_job = job.Totals();
    totals.acknowledged += of_job.acknowledged;
    totals.made_again += of_job.made_again;
    totals.longest_pause = std::max(totals.longest_pause, of_job.longest_pause);
    if (HasFailure()) break;
  }
  ExpectOk(all);
  std::printf("[chaos] seed %lu: %d jobs, %d attempts, %d failed by name\n",
              static_cast<unsigned long>(chaos_seed), jobs, attempts, failed);
  for (const auto& [kind, times] : chaos.strikes()) {
    std::printf("[chaos]   %s: %d\n", kind.c_str(), times);
  }
  std::printf(
      "[chaos] states checked %ld, pushes acknowledged %ld, made again %ld, "
      "lost %ld, doubled %ld, longest pause %s\n",
      static_cast<long>(all.states), static_cast<long>(totals.acknowledged),
      static_cast<long>(totals.made_again), static_cast<long>(all.lost),
      static_cast<long>(all.doubled),
      absl::FormatDuration(totals.longest_pause).c_str());
}

// --- Bugs that must be found -------------------------------------------------

TEST(ChaosMutantTest, APsThatAppliesRepeatsIsFound) {
  // An answer that is an error after its push was applied is asked for again.
  ChaosCluster chaos(/*has_disks=*/false,
                     {"--fault=push.skip_deduplication:1:mutate",
                      "--fault=push.answer:500:error"});
  ASSERT_OK(chaos.Start());
  ChaosJob job(&chaos, {ConsistencySpec::ASYNC, OptimizerSpec::SGD});
  ASSERT_OK(job.Submit());
  job.Finish();
  const Verdict verdict = job.Check();
  EXPECT_GT(verdict.doubled, 0);
  EXPECT_EQ(verdict.lost, 0);
}

TEST(ChaosMutantTest, ACheckpointWithoutSlotsIsFound) {
  ChaosCluster chaos(/*has_disks=*/false,
                     {"--fault=checkpoint.forget_slots:1:mutate"});
  ASSERT_OK(chaos.Start());
  ChaosJob job(&chaos, {ConsistencySpec::SYNC, OptimizerSpec::ADAGRAD});
  ASSERT_OK(job.Submit());
  const auto look = [&] { job.Look(); };
  // Behind the first epoch, so that there are slots.
  ASSERT_TRUE(Eventually(kPatience, [&] {
    look();
    return job.HasCheckpoint() && job.status().checkpoints().rbegin()->clock() >
                                      2 * kSamples / kWorkers;
  }));
  chaos.Kill("ps-0", absl::Milliseconds(100), look);
  chaos.Kill("ps-1", absl::Milliseconds(100), look);
  job.Finish();
  const Verdict verdict = job.Check();
  EXPECT_GT(verdict.torn + verdict.lost + verdict.doubled, 0);
}

}  // namespace
}  // namespace syncline

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i + 1 < argc; i += 2) {
    const absl::string_view name = argv[i];
    const bool good =
        name == "--seconds"
            ? absl::SimpleAtod(argv[i + 1], &syncline::chaos_seconds)
            : name == "--seed" &&
                  absl::SimpleAtoi(argv[i + 1], &syncline::chaos_seed);
    if (!good) {
      std::fprintf(stderr, "usage: chaos_test [--seconds N] [--seed N]\n");
      return 2;
    }
  }
  const absl::Status mounts = syncline::EnterMountNamespace();
  syncline::has_disks = mounts.ok();
  if (!mounts.ok()) {
    std::printf("[chaos] no full disks: %s\n", mounts.ToString().c_str());
  }
  return RUN_ALL_TESTS();
}

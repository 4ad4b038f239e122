// Goal: one step of the trainer makes its calls in order, a step that is
// skipped closes its clock without samples, and clocks and epochs' ends are
// those of the job. Method: a trainer with a real executor and 64 generated
// samples, whose only ps is a fake that logs every call and answers values.

#include "worker/training/trainer.h"

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/rpc/grpc_status.h"
#include "common/wire/routing_table.h"
#include "common/wire/smallest_cut.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/assigned_job.h"
#include "tests/testing/fakes/fake_ps.h"
#include "tests/testing/fakes/wait_log.h"
#include "tests/testing/job_builder.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int kHidden = 4;

// Two steps an epoch, of 32 samples each.
JobSpec SmallJob(uint32_t epochs) {
  JobSpec spec = DigitsJob();
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(64);
  spec.mutable_data()->clear_test();
  spec.mutable_training()->set_batch_size(32);
  spec.mutable_training()->set_epochs(epochs);
  return spec;
}

// A ps that answers every pull with one value, and writes down what it was
// asked.
class ValuePs {
 public:
  ValuePs() : ps_([this](const FakePs::Call& call) { return Serve(call); }) {}

  const std::string& address() const { return ps_.address(); }
  void UseMap(const BlockMap* map) { map_ = map; }
  // Refuses the first cut: it can be at these clocks.
  void BePast(std::vector<int64_t> smallest) {
    smallest_ = std::move(smallest);
  }
  // The other workers are this many clocks ahead of whoever reads.
  // Answers name these ranks as lost, from these clocks on.
  void Lose(std::vector<std::pair<uint32_t, int64_t>> lost) {
    lost_ = std::move(lost);
  }
  void BeAhead(int64_t clocks) { ahead_ = clocks; }
  // Values that are not finite are read for this clock.
  void SpoilValuesOf(int64_t clock) { spoilt_clock_ = clock; }

  // The calls so far, in words: "push 0: 32 samples, pull 1".
  std::vector<std::string> log() { return log_.Await(0); }

 private:
  FakePs::Answer Serve(const FakePs::Call& call) {
    if (call.method == "PushPull") {
      const auto request = call.As<PushPullRequest>();
      log_.Add(absl::StrCat(Described(request.header().push()), ", pull ",
                            request.header().pull().clock()));
      return Values(request.header().pull());
    }
    if (call.method == "Push") {
      const auto request = call.As<PushRequest>();
      log_.Add(Described(request.header()));
      return {};
    }
    if (call.method == "Pull") {
      const auto request = call.As<PullRequest>();
      log_.Add(
          absl::StrCat("pull ", request.header().clock(),
                       request.header().cut_id() != 0 ? " at the cut" : ""));
      return Values(request.header());
    }
    if (call.method == "BeginCut") {
      const auto request = call.As<BeginCutRequest>();
      log_.Add(absl::StrCat("announce cut ", request.clocks(0)));
      if (smallest_.empty()) return {};
      return {.status = ToGrpcStatus(
                  WithSmallestCut(absl::OutOfRangeError("a worker is past it"),
                                  std::exchange(smallest_, {})))};
    }
    log_.Add(call.method);
    return {};
  }

  static std::string Described(const PushHeader& push) {
    return absl::StrCat("push ", push.clock(), ": ", push.sample_count(),
                        " samples", push.non_finite() ? ", not finite" : "",
                        push.finished() ? ", finished" : "");
  }

  FakePs::Answer Values(const PullHeader& pull) const {
    PullResponse response;
    const float value = pull.clock() == spoilt_clock_
                            ? std::numeric_limits<float>::quiet_NaN()
                            : 0.01f;
    if (ahead_ > 0) {
      response.mutable_header()->set_open_clock(pull.clock() + ahead_);
    }
    for (const auto& [rank, first_clock] : lost_) {
      if (first_clock > pull.clock()) continue;
      LostWorker* const lost = response.mutable_header()->add_lost_workers();
      lost->set_rank(rank);
      lost->set_first_clock(first_clock);
    }
    for (const uint32_t id : pull.blocks()) {
      response.mutable_header()->add_blocks(id);
      const std::vector<float> values(
          static_cast<size_t>(map_->blocks()[id].count), value);
      response.mutable_payload()->append(
          reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(float));
    }
    return {.response = response.SerializeAsString()};
  }

  const BlockMap* map_ = nullptr;
  int64_t spoilt_clock_ = -1;
  int64_t ahead_ = 0;
  std::vector<std::pair<uint32_t, int64_t>> lost_;
  std::vector<int64_t> smallest_;  // one call at a time uses it
  WaitLog<std::string> log_;
  FakePs ps_;  // last: its threads use the rest
};

class TrainerTest : public ::testing::Test {
 protected:
  // Prepares rank `rank` of `workers`.
  void Prepare(const JobSpec& spec, uint32_t rank = 0, int workers = 1) {
    const std::string text = MlpModel(784, kHidden, 10);
    AssignedJob assigned = AssignToOne(spec, text);
    while (assigned.assignment.workers_size() < workers) {
      assigned.assignment.add_workers();
    }
    assigned.assignment.mutable_ps(0)->mutable_member()->set_address(
        ps_.address());
    PrepareOptions options;
    options.shared_memory = false;
    std::vector<std::string> problems;
    job_ = PrepareJob(assigned.assignment, rank, text, options, &problems);
    ASSERT_THAT(problems, IsEmpty());
    map_ = RoutingTable::Create(assigned.assignment)->blocks();
    ps_.UseMap(&map_);
    Trainer::Options trainer;
    trainer.metrics = &metrics_;
    trainer.on_progress = [](const WorkerProgress&) {};
    trainer_ = std::make_unique<Trainer>(
        *job_,
        *MakeJobExchange(*job_, {.shared_memory = false, .metrics = &metrics_}),
        trainer);
  }

  BlockMap map_;
  ValuePs ps_;
  WorkerMetrics metrics_{nullptr};
  std::unique_ptr<PreparedJob> job_;
  std::unique_ptr<Trainer> trainer_;
};

TEST_F(TrainerTest, TheChiefsCallsComeInOrder) {
  Prepare(SmallJob(/*epochs=*/1));
  ASSERT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_THAT(ps_.log(),
              ElementsAre("announce cut 2", "Init", "pull 0",
                          "push 0: 32 samples, pull 1",
                          // The chief reads the cut, not the next values.
                          "push 1: 32 samples, finished", "pull 2 at the cut",
                          "EndCut"));
  EXPECT_EQ(trainer_->Totals().clock(), 2);
  EXPECT_EQ(trainer_->Totals().samples(), 64u);
}

TEST_F(TrainerTest, TheNextCutIsAnnouncedBeforeOneEnds) {
  Prepare(SmallJob(/*epochs=*/2));
  ASSERT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_THAT(
      ps_.log(),
      ElementsAre("announce cut 2", "Init", "pull 0",
                  "push 0: 32 samples, pull 1", "push 1: 32 samples",
                  "pull 2 at the cut", "announce cut 4", "EndCut",
                  "push 2: 32 samples, pull 3", "push 3: 32 samples, finished",
                  "pull 4 at the cut", "EndCut"));
}

TEST_F(TrainerTest, ACutThatAnotherWorkerIsPastIsRaised) {
  JobSpec spec = SmallJob(/*epochs=*/1);
  spec.mutable_training()->set_batch_size(16);
  spec.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  Prepare(spec, /*rank=*/0, /*workers=*/2);
  ps_.BePast({0, 3});
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_THAT(ps_.log(),
              ElementsAre("announce cut 2", "EndCut", "announce cut 2", "Init",
                          "pull 0", "push 0: 16 samples, pull 1",
                          "push 1: 16 samples, finished", "pull 2 at the cut",
                          "EndCut"));
}

// A shard says that the chief is past its epoch's end: it makes the steps below
// the raised cut before it reads.
TEST_F(TrainerTest, TheChiefReadsARaisedCutAfterItsOwnSteps) {
  Prepare(SmallJob(/*epochs=*/2));
  ps_.BePast({3});
  ASSERT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_THAT(ps_.log(),
              ElementsAre("announce cut 2", "EndCut", "announce cut 3", "Init",
                          "pull 0", "push 0: 32 samples, pull 1",
                          "push 1: 32 samples, pull 2", "push 2: 32 samples",
                          "pull 3 at the cut", "announce cut 4", "EndCut",
                          "push 3: 32 samples, finished", "pull 4 at the cut",
                          "EndCut"));
}

TEST_F(TrainerTest, AnotherRankPushesAndPullsOnly) {
  JobSpec spec = SmallJob(/*epochs=*/2);
  spec.mutable_training()->set_batch_size(16);
  Prepare(spec, /*rank=*/1, /*workers=*/2);
  ASSERT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_THAT(ps_.log(), ElementsAre("pull 0", "push 0: 16 samples, pull 1",
                                     "push 1: 16 samples, pull 2",
                                     "push 2: 16 samples, pull 3",
                                     "push 3: 16 samples, finished"));
}

TEST_F(TrainerTest, TheSamplesOfLostWorkersAreSharedFromTheirFirstClockOn) {
  JobSpec spec = SmallJob(/*epochs=*/2);
  spec.mutable_training()->set_batch_size(8);
  spec.mutable_resources()->set_workers(4);
  spec.mutable_resources()->set_min_workers(1);
  Prepare(spec, /*rank=*/2, /*workers=*/4);
  ps_.Lose({{3, 1}, {1, 2}});
  ASSERT_EQ(trainer_->Run(), absl::OkStatus());
  // Of the 32 samples of a clock.
  EXPECT_THAT(ps_.log(), ElementsAre("pull 0", "push 0: 8 samples, pull 1",
                                     "push 1: 11 samples, pull 2",
                                     "push 2: 16 samples, pull 3",
                                     "push 3: 16 samples, finished"));
}

// Clocks that end without some workers, at 16 samples of each of two workers.
JobSpec JobWithBackups(uint32_t epochs) {
  JobSpec spec = SmallJob(epochs);
  spec.mutable_training()->set_batch_size(16);
  spec.mutable_resources()->set_workers(2);
  spec.mutable_consistency()->set_mode(ConsistencySpec::SYNC_WITH_BACKUPS);
  spec.mutable_consistency()->set_needed(1);
  return spec;
}

TEST_F(TrainerTest, AStepThatIsNotLeftOutHasItsValues) {
  Prepare(JobWithBackups(/*epochs=*/10), /*rank=*/1, /*workers=*/2);
  ps_.BeAhead(2);
  ASSERT_EQ(trainer_->Run(), absl::OkStatus());
  // After four tries it goes on where it is, and at the job's last clock.
  EXPECT_THAT(ps_.log(),
              ElementsAre("pull 0", "push 0: 16 samples, pull 1", "pull 3",
                          "pull 5", "pull 7", "pull 9",
                          "push 9: 16 samples, pull 10", "pull 12", "pull 14",
                          "pull 16", "pull 18", "push 18: 16 samples, pull 19",
                          "push 19: 16 samples, finished"));
  EXPECT_EQ(trainer_->Totals().clock(), 20);
}

TEST_F(TrainerTest, TheChiefMakesTheLastStepThoughTheJobIsPastIt) {
  JobSpec spec = JobWithBackups(/*epochs=*/1);
  spec.mutable_training()->set_batch_size(8);
  Prepare(spec, /*rank=*/0, /*workers=*/2);
  ps_.BeAhead(3);
  ASSERT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_THAT(ps_.log(), ElementsAre("announce cut 4", "Init", "pull 0",
                                     "push 0: 8 samples, pull 1", "pull 3",
                                     "push 3: 8 samples, finished",
                                     "pull 4 at the cut", "EndCut"));
  EXPECT_EQ(trainer_->Totals().clock(), 4);
}

TEST_F(TrainerTest, MaxClocksEndsTheJobInsideAnEpoch) {
  JobSpec spec = SmallJob(/*epochs=*/5);
  spec.mutable_training()->set_max_clocks(1);
  Prepare(spec);
  ASSERT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_THAT(ps_.log(), ElementsAre("announce cut 1", "Init", "pull 0",
                                     "push 0: 32 samples, finished",
                                     "pull 1 at the cut", "EndCut"));
}

TEST_F(TrainerTest, TheHistoryHasTheRateOfEachClocksRegime) {
  JobSpec spec = SmallJob(/*epochs=*/2);
  spec.mutable_learning_rate()->set_base(0.5f);
  Prepare(spec);
  ASSERT_EQ(job_->regimes.Add({.first_clock = 2, .learning_rate_factor = 0.5},
                              /*begun=*/0),
            absl::OkStatus());
  ASSERT_EQ(trainer_->Run(), absl::OkStatus());
  std::vector<double> rates;
  for (const HistoryPoint& point : trainer_->History(absl::UnixEpoch())) {
    rates.push_back(point.learning_rate);
  }
  EXPECT_THAT(rates, ElementsAre(0.5, 0.5, 0.25, 0.25));
  const std::vector<std::string> lines =
      absl::StrSplit(trainer_->HistoryCsv(), '\n');
  ASSERT_GE(lines.size(), 5u);
  EXPECT_THAT(lines[2], EndsWith(",0.5"));
  EXPECT_THAT(lines[3], EndsWith(",0.25"));
}

TEST_F(TrainerTest, ASkippedStepClosesItsClockWithoutSamples) {
  JobSpec spec = SmallJob(/*epochs=*/1);
  spec.set_non_finite(SKIP_STEP);
  Prepare(spec);
  ps_.SpoilValuesOf(0);
  ASSERT_EQ(trainer_->Run(), absl::OkStatus());
  // The close and the pull of the next values are under way together.
  EXPECT_THAT(ps_.log(),
              UnorderedElementsAre("announce cut 2", "Init", "pull 0",
                                   "push 0: 0 samples, not finite", "pull 1",
                                   "push 1: 32 samples, finished",
                                   "pull 2 at the cut", "EndCut"));
  // The step counts as a clock, but its samples were not trained on.
  EXPECT_EQ(trainer_->Totals().clock(), 2);
  EXPECT_EQ(trainer_->Totals().samples(), 32u);
}

TEST_F(TrainerTest, ALossThatIsNotFiniteEndsAJobThatWantsThat) {
  Prepare(SmallJob(/*epochs=*/1));
  ps_.SpoilValuesOf(0);
  const absl::Status status = trainer_->Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("step at clock 0: the loss is nan"));
  EXPECT_THAT(ps_.log(), ElementsAre("announce cut 2", "Init", "pull 0"));
}

TEST_F(TrainerTest, AStoppedTrainerMakesNoStep) {
  Prepare(SmallJob(/*epochs=*/1));
  trainer_->Stop();
  EXPECT_EQ(trainer_->Run(), absl::CancelledError("stopped"));
  EXPECT_THAT(ps_.log(), IsEmpty());
}

}  // namespace
}  // namespace syncline::worker

// Goal: workers are held at a cut until the next one is announced, also where
// some cannot be had; one that the chief cannot know ends the job by name.
// Method: an evaluator with a real executor and eight generated samples, whose
// exchange writes its calls down and refuses or raises cuts as a test says.

#include "worker/training/evaluation_loop.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/cuts/cut_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assigned_job.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint32_t kEvaluatorRank = 1;

struct Cuts {
  std::vector<std::string> log;
  std::set<int64_t> refused;          // at these clocks there is none
  std::map<int64_t, int64_t> raised;  // to this clock
};

// A cut is known by the clock at which it was wanted: "end 2".
class LoggingExchange final : public ParameterExchange {
 public:
  LoggingExchange(uint32_t attempt, Cuts* cuts)
      : attempt_(attempt), cuts_(*cuts) {}

  void Cancel(const absl::Status&) override {}
  absl::Status Init(int64_t) override { return Unexpected(); }
  absl::Status Pull(int64_t clock) override {
    return Log(absl::StrCat("pull ", clock));
  }
  absl::Status PullRows(int64_t, uint64_t,
                        absl::Span<RowBatch* const>) override {
    return Unexpected();
  }
  absl::Status ReportActivity(int64_t clock, absl::string_view what, uint64_t,
                              uint64_t) override {
    // The evaluator's own, by time.
    if (what != "announcing a cut") return absl::OkStatus();
    return Log(absl::StrCat("busy at ", clock));
  }
  absl::StatusOr<std::vector<int64_t>> BeginCut(const Cut& cut) override {
    const int64_t clock = cut.clocks[0];
    EXPECT_EQ(cut.id, IdOf(clock));
    Log(absl::StrCat("announce ", clock)).IgnoreError();
    if (cuts_.refused.count(clock) > 0) {
      return absl::DeadlineExceededError("the shards did not agree");
    }
    const auto raised = cuts_.raised.find(clock);
    ids_[cut.id] = clock;
    return std::vector<int64_t>(cut.clocks.size(), raised != cuts_.raised.end()
                                                       ? raised->second
                                                       : clock);
  }
  absl::Status PullCut(uint64_t cut_id, int64_t clock) override {
    return Log(absl::StrCat("read ", NameOf(cut_id), " at ", clock));
  }
  absl::Status ScanTable(uint32_t, int64_t, uint64_t, int64_t,
                         RowSink) override {
    return Unexpected();
  }
  absl::Status EndCut(uint64_t cut_id, int64_t) override {
    return Log(absl::StrCat("end ", NameOf(cut_id)));
  }
  void BeginStep(const Step&) override { ADD_FAILURE(); }
  void PullEarly(absl::Span<RowBatch* const>, int64_t) override {
    ADD_FAILURE();
  }
  void AbandonStep(bool) override { ADD_FAILURE(); }
  bool step_abandoned() const override { return false; }
  bool was_skipped(int64_t) const override { return false; }
  void OnGradientReady(uint32_t) override { ADD_FAILURE(); }
  void EndBackward(absl::Span<RowBatch* const>) override { ADD_FAILURE(); }
  absl::Status Wait() override { return Unexpected(); }
  WaitTimes wait_times() const override { return {}; }

 private:
  absl::Status Log(const std::string& call) {
    cuts_.log.push_back(call);
    return absl::OkStatus();
  }
  static absl::Status Unexpected() {
    return absl::InternalError("an evaluator does not call this here");
  }
  uint64_t IdOf(int64_t clock) const {
    return MakeCutId(attempt_, clock, CutSeries::kEpochEnds, 0);
  }
  // The chief has announced the first.
  int64_t NameOf(uint64_t cut_id) const {
    const auto found = ids_.find(cut_id);
    return found != ids_.end() ? found->second : 2;
  }

  const uint32_t attempt_;
  Cuts& cuts_;
  std::map<uint64_t, int64_t> ids_;
};

class EvaluationLoopTest : public ::testing::Test {
 protected:
  // Of a job with four epochs, of two clocks each.
  absl::Status Run() {
    JobSpec spec = DigitsJob();
    spec.mutable_data()->mutable_train()->mutable_digits()->set_count(64);
    spec.mutable_data()->mutable_test()->mutable_digits()->set_count(8);
    const std::string text = MlpModel(784, 4, 10);
    JobAssignment assignment = AssignToOne(spec, text).assignment;
    assignment.mutable_evaluator()->set_rank(kEvaluatorRank);
    std::vector<std::string> problems;
    const std::unique_ptr<PreparedJob> job =
        PrepareJob(assignment, kEvaluatorRank, text, {}, &problems);
    EXPECT_THAT(problems, IsEmpty());
    WorkerMetrics metrics(nullptr);
    EvaluationLoop loop(
        *job, {.steps_per_epoch = 2, .clocks_total = 8},
        {.parameters =
             std::make_unique<LoggingExchange>(assignment.attempt(), &cuts_),
         .folds = nullptr},
        &metrics, [](const Evaluation&, const StoringProgress&) {},
        /*on_activity=*/nullptr);
    absl::Status status = loop.Run();
    for (const Evaluation& evaluation : loop.evaluations()) {
      clocks_.push_back(evaluation.clock());
    }
    return status;
  }

  Cuts cuts_;
  std::vector<int64_t> clocks_;  // of the evaluations
};

TEST_F(EvaluationLoopTest, TheNextCutIsAnnouncedBeforeOneEnds) {
  ASSERT_OK(Run());
  EXPECT_THAT(cuts_.log,
              ElementsAre("pull 0", "read 2 at 2", "announce 4", "end 2",
                          "read 4 at 4", "announce 6", "end 4", "read 6 at 6",
                          "announce 8", "end 6", "read 8 at 8"));
  EXPECT_THAT(clocks_, ElementsAre(2, 4, 6, 8));
}

// Workers that no cut holds run to the last clock, whose cut the chief reads.
TEST_F(EvaluationLoopTest, ACutThatIsNotToBeHadLetsNoWorkerGo) {
  cuts_.refused = {4, 6};
  ASSERT_OK(Run());
  EXPECT_THAT(cuts_.log, ElementsAre("pull 0", "read 2 at 2", "announce 4",
                                     "busy at 2", "announce 6", "busy at 2",
                                     "announce 8", "end 2", "read 8 at 8"));
  EXPECT_THAT(clocks_, ElementsAre(2, 8)) << "the others are not evaluated";
}

TEST_F(EvaluationLoopTest, TheLastCutIsOneThatTheJobCannotDoWithout) {
  cuts_.refused = {8};
  EXPECT_EQ(Run().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(clocks_, ElementsAre(2, 4));
}

TEST_F(EvaluationLoopTest, ARaisedCutIsEvaluatedUnlessItIsTheLast) {
  cuts_.raised = {{4, 5}, {8, 9}};
  const absl::Status status = Run();
  EXPECT_THAT(cuts_.log, ElementsAre("pull 0", "read 2 at 2", "announce 4",
                                     "end 2", "read 4 at 5", "announce 6",
                                     "end 4", "read 6 at 6", "announce 8"));
  EXPECT_THAT(clocks_, ElementsAre(2, 5));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the cut at the last clock, 8, can only be had at "
                        "clocks 9, and the chief"));
}

}  // namespace
}  // namespace syncline::worker

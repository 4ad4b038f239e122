// Goal: an answer of ps rank 0, the root, is believed only where it can be;
// after Close nothing of a NormAllReduce is left on gRPC's threads. Method: a
// fake ps that answers what it is told, or never, and a callback that owns
// something and takes its time.

#include "server/shard/norm_all_reduce.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fakes/fake_ps.h"
#include "tests/testing/fakes/wait_log.h"
#include "tests/testing/status_matchers.h"

namespace syncline::ps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(20);

// Never answers.
FakePs::Answer Hold(const FakePs::Call&) { return {.is_held = true}; }

// Answers every call with `count` sums.
FakePs::AnswerFunction Sums(int count) {
  FoldNormResponse response;
  for (int i = 0; i < count; ++i) response.add_sums(i + 1);
  return [text = response.SerializeAsString()](const FakePs::Call&) {
    return FakePs::Answer{.response = text};
  };
}

// A job of one tensor on two ps, and the second one's part in its norms, while
// the first is a fake that answers as it is told.
class Fixture {
 public:
  explicit Fixture(FakePs::AnswerFunction root) : root_(std::move(root)) {
    const JobAssignment assignment = AssignmentBuilder({}, "j")
                                         .Parameter("w", {4096})
                                         .PsAt(root_.address())
                                         .PsAt(root_.address())
                                         .Build();
    const auto routing = RoutingTable::Create(assignment);
    EXPECT_TRUE(routing.ok()) << routing.status();
    all_reduce_ = std::make_shared<NormAllReduce>(
        assignment, *routing, 1, "job j on ps:1", kTimeout,
        [this](PeerUnreachable report) { told.Add(std::move(report)); });
  }
  ~Fixture() {
    // The connection must not end on one of gRPC's threads.
    all_reduce_->Close(absl::CancelledError("the test is over"));
  }

  NormAllReduce* operator->() { return all_reduce_.get(); }
  FakePs& root() { return root_; }
  std::vector<double> Norms(ReductionStage stage) const {
    return std::vector<double>(
        map_.shard_blocks(1).size() * NormsPerBlock(stage), 1);
  }
  NormAllReduce::Sums Answer(ReductionStage stage) {
    NormAllReduce::Sums answer;
    absl::Notification answered;
    all_reduce_->AllReduce({.clock = 3, .stage = stage}, Norms(stage),
                           [&](NormAllReduce::Sums sums) {
                             answer = std::move(sums);
                             answered.Notify();
                           });
    answered.WaitForNotification();
    return answer;
  }

  WaitLog<PeerUnreachable> told;

 private:
  const BlockMap map_ = *BlockMap::Create({TensorSize{"w", 4096}}, 2);
  FakePs root_;
  std::shared_ptr<NormAllReduce> all_reduce_;
};

// The sums of another version, or of another job.
TEST(NormAllReduceTest, AnAnswerHasAsManySumsAsWereAskedFor) {
  for (const ReductionStage stage :
       {ReductionStage::kGradient, ReductionStage::kTrust}) {
    const int expected = NormsPerBlock(stage);
    for (int sums = 0; sums <= 3; ++sums) {
      SCOPED_TRACE(absl::StrCat(sums, " sums, expected ", expected));
      Fixture fixture(Sums(sums));
      const NormAllReduce::Sums answer = fixture.Answer(stage);
      if (sums == expected) {
        ASSERT_OK(answer.status());
        EXPECT_EQ(answer->size(), static_cast<size_t>(sums));
        continue;
      }
      EXPECT_EQ(answer.status().code(), absl::StatusCode::kInternal);
      EXPECT_THAT(std::string(answer.status().message()),
                  AllOf(HasSubstr("ps:0 at 127.0.0.1:"), HasSubstr("clock 3"),
                        HasSubstr(absl::StrCat("answered ", sums,
                                               " sums, expected ", expected))));
    }
  }
}

TEST(NormAllReduceTest, AShardThatIsOutOfReachIsReported) {
  Fixture fixture(Sums(1));
  ASSERT_OK(fixture.Answer(ReductionStage::kGradient).status());
  fixture.root().Shutdown();
  // Its outage is told once it has lasted for a while.
  ASSERT_TRUE(Eventually(kTimeout, [&] {
    EXPECT_EQ(fixture.Answer(ReductionStage::kGradient).status().code(),
              absl::StatusCode::kUnavailable);
    return !fixture.told.Await(0).empty();
  }));
  const PeerUnreachable report = fixture.told.Await(1).at(0);
  EXPECT_EQ(report.job_id(), "j");
  EXPECT_EQ(report.peer().incarnation(), 500u);
  EXPECT_GE(report.seconds(), 2);
  EXPECT_FALSE(report.error().empty());
}

TEST(NormAllReduceTest, AClosedAllReduceHasReleasedItsCallbacks) {
  Fixture fixture(Hold);
  auto owned = std::make_shared<absl::Status>();
  absl::Notification closing, go_on;
  fixture->AllReduce({.clock = 0}, fixture.Norms(ReductionStage::kGradient),
                     [&, owned](NormAllReduce::Sums norm) {
                       closing.Notify();
                       go_on.WaitForNotification();
                       *owned = norm.status();
                     });
  ASSERT_EQ(fixture.root().calls().Await(1).size(), 1u);
  std::atomic<bool> closed = false;
  std::thread close([&] {
    fixture->Close(absl::CancelledError("over"));
    closed = true;
  });
  ASSERT_TRUE(closing.WaitForNotificationWithTimeout(kTimeout));
  EXPECT_FALSE(closed);  // it waits for the callback
  go_on.Notify();
  close.join();
  ASSERT_EQ(owned.use_count(), 1);
  EXPECT_EQ(owned->code(), absl::StatusCode::kCancelled);
  // Later reductions end at once.
  fixture->AllReduce({.clock = 1}, {}, [owned](NormAllReduce::Sums norm) {
    *owned = norm.status();
  });
  ASSERT_EQ(owned.use_count(), 1);
  EXPECT_EQ(*owned, absl::CancelledError("over"));
}

}  // namespace
}  // namespace syncline::ps

// Goal: every call of an owner is answered once, by the sums, by its deadline
// or by the end of the job; after AwaitCallbacks no callback runs or is kept.
// Method: two workers that own a block each, and callbacks that note what they
// hear, or take their time.

#include "common/update/pending_norms.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kTimeout = absl::Seconds(20);

class PendingNormsTest : public ::testing::Test {
 protected:
  void Reduce(uint32_t rank, double norm, PendingNorms::Done done,
              absl::Time deadline = absl::InfiniteFuture()) {
    norms_.Reduce(rank, 10 + rank, {.clock = 4}, {rank}, {norm}, deadline,
                  std::move(done));
  }
  PendingNorms::Done Note() {
    return
        [this](PendingNorms::Sums sums) { heard_.push_back(std::move(sums)); };
  }

  std::vector<PendingNorms::Sums> heard_;
  PendingNorms norms_{NormReducer(
      "worker", {{10, "worker:0 at a:1", {0}}, {11, "worker:1 at b:1", {1}}},
      {0, 0}, "job j on worker:0")};
};

TEST_F(PendingNormsTest, AllHearTheSumWhenTheLastHasCome) {
  Reduce(1, 2, Note());
  EXPECT_THAT(heard_, IsEmpty());
  Reduce(0, 1, Note());
  ASSERT_EQ(heard_.size(), 2u);
  for (const PendingNorms::Sums& sums : heard_) {
    ASSERT_TRUE(sums.ok());
    EXPECT_THAT(*sums, ElementsAre(3));
  }
}

TEST_F(PendingNormsTest, AnOverdueCallNamesWhoIsMissing) {
  const absl::Time now = MonotonicNow();
  Reduce(0, 1, Note(), now + absl::Seconds(1));
  norms_.Tick(now + absl::Seconds(2), /*frozen=*/absl::Seconds(1.5));
  EXPECT_THAT(heard_, IsEmpty());
  norms_.Tick(now + absl::Seconds(3), absl::ZeroDuration());
  ASSERT_EQ(heard_.size(), 1u);
  EXPECT_EQ(heard_[0].status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(heard_[0].status().message()),
              AllOf(HasSubstr("job j on worker:0"),
                    HasSubstr("missing: worker:1 at b:1")));
}

TEST_F(PendingNormsTest, ARankThatIsNotThereIsNamedByItsRole) {
  Reduce(2, 1, Note());
  ASSERT_EQ(heard_.size(), 1u);
  EXPECT_EQ(heard_[0].status(),
            absl::InvalidArgumentError(
                "job j on worker:0: norms from worker rank 2, the job has "
                "ranks 0 to 1"));
}

TEST_F(PendingNormsTest, TheEndEndsWhatWaitsAndWhatComes) {
  Reduce(0, 1, Note());
  norms_.Close(absl::CancelledError("over"));
  Reduce(1, 1, Note());
  ASSERT_EQ(heard_.size(), 2u);
  EXPECT_EQ(heard_[0].status(), absl::CancelledError("over"));
  EXPECT_EQ(heard_[1].status(), absl::CancelledError("over"));
  EXPECT_TRUE(norms_.AwaitCallbacks(MonotonicNow()));
}

TEST_F(PendingNormsTest, ACallbackIsWaitedFor) {
  auto owned = std::make_shared<int>();
  absl::Notification running, go_on;
  Reduce(0, 1, [&, owned](PendingNorms::Sums) {
    running.Notify();
    go_on.WaitForNotification();
  });
  std::thread closing([&] { norms_.Close(absl::CancelledError("over")); });
  ASSERT_TRUE(running.WaitForNotificationWithTimeout(kTimeout));
  EXPECT_FALSE(norms_.AwaitCallbacks(MonotonicNow() + absl::Milliseconds(20)));
  go_on.Notify();
  EXPECT_TRUE(norms_.AwaitCallbacks(MonotonicNow() + kTimeout));
  EXPECT_EQ(owned.use_count(), 1);
  closing.join();
}

}  // namespace
}  // namespace syncline

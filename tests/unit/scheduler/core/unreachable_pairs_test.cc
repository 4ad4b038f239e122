// Goal: the pair of members that has been apart for longest is named, once it
// has been so for long enough, and not after it has come together. Method:
// reports at invented times.

#include "scheduler/core/unreachable_pairs.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kGrace = absl::Seconds(10);

class UnreachablePairsTest : public ::testing::Test {
 protected:
  static Member MemberOf(TaskType type, uint32_t index) {
    Member member;
    member.mutable_task()->set_type(type);
    member.mutable_task()->set_index(index);
    member.set_address("h:" + std::to_string(100 * type + index));
    member.set_incarnation(100 * type + index);
    return member;
  }
  void Report(uint32_t worker, uint32_t ps, double seconds,
              const std::string& error = "connection refused") {
    PeerUnreachable report;
    report.set_seconds(seconds);
    report.set_error(error);
    pairs_.OnReport(MemberOf(WORKER, worker), MemberOf(PS, ps), report, now_);
  }

  UnreachablePairs pairs_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
};

TEST_F(UnreachablePairsTest, ThePairIsNamedAfterTheGrace) {
  EXPECT_EQ(pairs_.Longest(kGrace, now_), std::nullopt);
  Report(1, 0, 7);
  EXPECT_EQ(pairs_.Longest(kGrace, now_), std::nullopt);
  now_ += absl::Seconds(3);
  EXPECT_EQ(pairs_.Longest(kGrace, now_), std::nullopt)
      << "it may have been reached since";
  Report(1, 0, 10);
  EXPECT_EQ(pairs_.Longest(kGrace, now_),
            "worker 1 at h:" + std::to_string(100 * WORKER + 1) +
                " cannot reach ps 0 at h:" + std::to_string(100 * PS) +
                " since 10.0 s: connection refused");
}

TEST_F(UnreachablePairsTest, OfSeveralTheLongest) {
  Report(1, 0, 11);
  Report(2, 3, 12);
  Report(4, 5, 11.5);
  EXPECT_THAT(*pairs_.Longest(kGrace, now_), HasSubstr("worker 2 at "));
}

TEST_F(UnreachablePairsTest, AReportThatIsNotRepeatedIsOver) {
  Report(1, 0, 7);
  now_ += UnreachablePairs::kFresh + absl::Milliseconds(1);
  EXPECT_EQ(pairs_.Longest(absl::ZeroDuration(), now_), std::nullopt);
}

TEST_F(UnreachablePairsTest, NoReportMakesTroubleWithItsNumbers) {
  for (const double seconds :
       {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    Report(1, 0, seconds);
    EXPECT_EQ(pairs_.Longest(kGrace, now_), std::nullopt) << seconds;
  }
  Report(1, 0, std::numeric_limits<double>::infinity(),
         std::string(100'000, 'x'));
  ASSERT_TRUE(pairs_.Longest(kGrace, now_).has_value());
  EXPECT_LT(pairs_.Longest(kGrace, now_)->size(), 2000u);
}

}  // namespace
}  // namespace syncline::scheduler

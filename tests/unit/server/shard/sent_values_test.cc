// Goal: workers that follow the changes have what the shard says it has sent,
// bit for bit, and nothing that rounding loses is lost for good.
// Method: random values that drift, read whole and by changes, in the order of
// any worker; calls that come late or have missed a clock.

#include "server/shard/sent_values.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/match.h"
#include "common/base/random.h"
#include "common/wire/compression.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline::ps {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kGroup = 32;
const std::vector<size_t> kCounts = {1, 100, 5000};

// A shard's own values, and what a worker makes of what it is sent.
class Pair {
 public:
  Pair() : sent_(kCounts, kGroup) {
    for (const size_t count : kCounts) {
      std::vector<float>& own = own_.emplace_back(count);
      for (float& value : own) value = static_cast<float>(random_.Normal());
    }
    worker_ = own_;
  }

  void Update() {
    for (std::vector<float>& own : own_) {
      for (float& value : own) {
        value += static_cast<float>(random_.Normal()) * 0.01f;
      }
    }
  }
  // True: all blocks have come.
  bool FollowTo(int64_t clock) {
    for (uint32_t b = 0; b < kCounts.size(); ++b) {
      const auto bytes = sent_.ChangeAt(b, clock, own_[b]);
      if (!bytes.ok()) return false;
      EXPECT_EQ(bytes->size(), Int8Bytes(kCounts[b], kGroup));
      const auto change = CompressedBlock::Parse(*bytes, kCounts[b]);
      EXPECT_OK(change.status());
      change->AddTo(worker_[b].data());
    }
    return true;
  }
  void ReadAt(int64_t clock) {
    for (uint32_t b = 0; b < kCounts.size(); ++b) {
      const auto whole = sent_.At(b, clock, own_[b]);
      worker_[b].assign(whole.begin(), whole.end());
    }
  }
  double LargestError() const {
    double largest = 0;
    for (size_t b = 0; b < kCounts.size(); ++b) {
      for (size_t i = 0; i < kCounts[b]; ++i) {
        largest =
            std::max<double>(largest, std::abs(own_[b][i] - worker_[b][i]));
      }
    }
    return largest;
  }

  SentValues& sent() { return sent_; }
  std::vector<std::vector<float>>& own() { return own_; }
  const std::vector<std::vector<float>>& worker() const { return worker_; }

 private:
  Random random_{7};
  std::vector<std::vector<float>> own_;
  std::vector<std::vector<float>> worker_;
  SentValues sent_;
};

TEST(SentValuesTest, WhoFollowsHasWhatIsSentAndErrorsDoNotAddUp) {
  Pair pair;
  pair.ReadAt(4);
  EXPECT_EQ(pair.worker(), pair.own()) << "the first ones are whole";
  for (int64_t clock = 5; clock < 200; ++clock) {
    pair.Update();
    ASSERT_TRUE(pair.FollowTo(clock));
    for (uint32_t b = 0; b < kCounts.size(); ++b) {
      const auto sent = pair.sent().At(b, clock, pair.own()[b]);
      ASSERT_EQ(std::vector<float>(sent.begin(), sent.end()), pair.worker()[b]);
    }
    // Half a step of the largest change of a group, some 0.05 / 127.
    EXPECT_LT(pair.LargestError(), 0.001) << clock;
  }
}

TEST(SentValuesTest, TheFirstReadOfAClockMakesItsChange) {
  Pair pair;
  pair.ReadAt(0);
  pair.Update();
  // One worker asks for all of it first; the change is there for another.
  const auto whole = pair.sent().At(1, 1, pair.own()[1]);
  const std::vector<float> sent(whole.begin(), whole.end());
  ASSERT_TRUE(pair.FollowTo(1));
  EXPECT_EQ(pair.worker()[1], sent);
  EXPECT_NE(pair.worker()[1], pair.own()[1]);
}

TEST(SentValuesTest, AChangeFromWhatWasNotSentIsRefused) {
  Pair pair;
  EXPECT_THAT(pair.sent().ChangeAt(1, 3, pair.own()[1]).status().message(),
              HasSubstr("clock 3 from those of clock 2 was asked for"));
  EXPECT_THAT(pair.sent().ChangeAt(1, 5, pair.own()[1]).status().message(),
              HasSubstr("clock 5's are the latest"));
  // A call that comes late.
  EXPECT_FALSE(pair.sent().ChangeAt(1, 4, pair.own()[1]).ok());
  const auto late = pair.sent().At(1, 4, pair.own()[1]);
  EXPECT_EQ(late.size(), kCounts[1]);
  pair.Update();
  EXPECT_OK(pair.sent().ChangeAt(1, 6, pair.own()[1]).status());
}

// However far values have gone meanwhile.
TEST(SentValuesTest, BehindAGapValuesAreWhole) {
  Pair pair;
  pair.ReadAt(0);
  for (int i = 0; i < 5; ++i) pair.Update();
  pair.ReadAt(5);
  EXPECT_EQ(pair.worker(), pair.own());
  pair.Update();
  EXPECT_TRUE(pair.FollowTo(6));
}

TEST(SentValuesTest, AValueThatIsNotFiniteIsSeenByWhoFollows) {
  Pair pair;
  pair.ReadAt(0);
  pair.own()[2][40] = std::numeric_limits<float>::infinity();
  ASSERT_TRUE(pair.FollowTo(1));
  for (size_t i = 0; i < kCounts[2]; ++i) {
    EXPECT_EQ(std::isnan(pair.worker()[2][i]), i / kGroup == 1) << i;
  }
}

}  // namespace
}  // namespace syncline::ps

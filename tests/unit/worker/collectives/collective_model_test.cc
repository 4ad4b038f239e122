// The model of costs: fitted, written and read, and what it chooses.

#include "worker/collectives/collective_model.h"

#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

constexpr CollectiveModel kModel = {1e-5, 1e-9};  // 10 us, 1 GB/s

TEST(CollectiveModelTest, AFitGivesBackTheTimesThatItWasMadeOf) {
  const CollectiveModel model =
      FitModel({64, 1.0064e-5}, {1'000'064, 1.010064e-3});
  EXPECT_NEAR(model.alpha_seconds, 1e-5, 1e-12);
  EXPECT_NEAR(model.beta_seconds_per_byte, 1e-9, 1e-15);
}

TEST(CollectiveModelTest, ALargeMessageThatWasNoSlowerCostsNothingByTheByte) {
  const CollectiveModel model = FitModel({64, 2e-5}, {1000, 1e-5});
  EXPECT_EQ(model.beta_seconds_per_byte, 0);
  EXPECT_EQ(model.alpha_seconds, 2e-5);
}

TEST(CollectiveModelTest, TheSlowestRankCounts) {
  const CollectiveModel slowest = SlowestOf({{1, 20}, {3, 10}, {2, 5}});
  EXPECT_EQ(slowest.alpha_seconds, 3);
  EXPECT_EQ(slowest.beta_seconds_per_byte, 20);
}

TEST(CollectiveModelTest, AModelThatWasWrittenDownChoosesTheSame) {
  const CollectiveModel model = {1.0 / 3e5, 1.0 / 3e9};
  const auto read = CollectiveModel::Parse(model.ToText());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->alpha_seconds, model.alpha_seconds);
  EXPECT_EQ(read->beta_seconds_per_byte, model.beta_seconds_per_byte);
  for (const char* text :
       {"", "alpha 1 s, beta x s/byte", "alpha -1 s, beta 1 s/byte",
        "alpha nan s, beta 1 s/byte", "alpha 1 s"}) {
    EXPECT_EQ(CollectiveModel::Parse(text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(CollectiveModelTest, ShortVectorsTakeOneRoundAndLongOnesTwo) {
  const auto choice = [](size_t count, uint32_t ranks) {
    return ChooseAlgorithm(kModel, CollectiveBits::kRankOrder,
                           CollectiveKind::kAllReduce, count, ranks);
  };
  EXPECT_EQ(choice(16, 4), CollectiveAlgorithm::kExchange);
  EXPECT_EQ(choice(1 << 20, 4), CollectiveAlgorithm::kDirect);
  // Both send a vector of two ranks once: the one of fewer rounds is chosen.
  EXPECT_EQ(choice(16, 2), CollectiveAlgorithm::kExchange);
}

TEST(CollectiveModelTest, OtherBitsAreChosenOnlyWhereTheyAreAllowed) {
  // A tree has fewer messages.
  EXPECT_EQ(ChooseAlgorithm(kModel, CollectiveBits::kAny,
                            CollectiveKind::kAllReduce, 1, 64),
            CollectiveAlgorithm::kTree);
  for (const size_t count : {1, 1000, 1'000'000}) {
    for (uint32_t ranks = 2; ranks <= 64; ranks *= 2) {
      const CollectiveAlgorithm chosen =
          ChooseAlgorithm(kModel, CollectiveBits::kRankOrder,
                          CollectiveKind::kAllReduce, count, ranks);
      EXPECT_TRUE(chosen == CollectiveAlgorithm::kExchange ||
                  chosen == CollectiveAlgorithm::kDirect);
    }
  }
}

TEST(CollectiveModelTest, ReduceScatterIsDirect) {
  EXPECT_EQ(ChooseAlgorithm(kModel, CollectiveBits::kAny,
                            CollectiveKind::kReduceScatter, 1, 4),
            CollectiveAlgorithm::kDirect);
}

}  // namespace
}  // namespace syncline::worker

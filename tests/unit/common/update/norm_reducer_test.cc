// Goal: the global norm is the sum over blocks in block order, whatever the
// shards and their order of arrival; every call ends once.
// Method: random placements and orders against one serial sum; examples of the
// refusals.

#include "common/update/norm_reducer.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const absl::Time kStart = absl::UnixEpoch();
const absl::Time kDeadline = kStart + absl::Seconds(5);

TEST(NormReducerTest, SumsInBlockOrder) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    const uint32_t shard_count = 1 + random.Below(4);
    const uint32_t block_count = 1 + random.Below(20);
    std::vector<double> norms(block_count);
    std::vector<NormReducer::Owner> shards(shard_count);
    std::vector<std::vector<double>> shard_norms(shard_count);
    double expected = 0;
    for (uint32_t block = 0; block < block_count; ++block) {
      norms[block] = random.Uniform() * 1e10 / (1 + random.Below(1000000));
      expected += norms[block];
      const uint64_t shard = random.Below(shard_count);
      shards[shard].blocks.push_back(block);
      shard_norms[shard].push_back(norms[block]);
    }
    for (uint32_t shard = 0; shard < shard_count; ++shard) {
      shards[shard].incarnation = 10 + shard;
    }
    // Blocks of one tensor; the rest are slots.
    const uint32_t dense_count = 1 + random.Below(block_count);
    NormReducer reducer("ps", shards, std::vector<uint32_t>(dense_count),
                        "job");
    for (int64_t clock = 3; clock < 6; ++clock) {
      std::vector<uint32_t> order;
      for (uint32_t shard = 0; shard < shard_count; ++shard) {
        if (shards[shard].blocks.empty()) continue;
        order.push_back(shard);
        if (random.Below(3) == 0) order.push_back(shard);  // a repeat
      }
      for (size_t i = order.size(); i > 1; --i) {
        std::swap(order[i - 1], order[random.Below(i)]);
      }
      NormReducer::Answers answers;
      for (size_t i = 0; i < order.size(); ++i) {
        reducer.OnNorms(i, order[i], 10 + order[i], {clock},
                        shards[order[i]].blocks, shard_norms[order[i]],
                        kDeadline, &answers);
      }
      ASSERT_EQ(answers.size(), order.size());
      for (const NormReducer::Answer& answer : answers) {
        ASSERT_TRUE(answer.status.ok());
        ASSERT_THAT(answer.sums, ElementsAre(expected));
      }
    }
  }
}

// Three tensors of 2, 1 and 3 blocks, in any placement, and slots, which have
// no part in it.
TEST(NormReducerTest, SumsByTensorInBlockOrder) {
  const std::vector<uint32_t> tensors = {0, 0, 1, 2, 2, 2};
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    const uint32_t shard_count = 1 + random.Below(3);
    std::vector<NormReducer::Owner> shards(shard_count);
    std::vector<std::vector<double>> norms(shard_count);
    std::vector<double> expected(6);
    for (uint32_t block = 0; block < tensors.size(); ++block) {
      const uint64_t shard = random.Below(shard_count);
      shards[shard].blocks.push_back(block);
      for (int k = 0; k < 2; ++k) {
        norms[shard].push_back(random.Uniform() / (1 + random.Below(100000)));
        expected[2 * tensors[block] + k] += norms[shard].back();
      }
    }
    const std::vector<NormReducer::Owner> dense = shards;
    for (uint32_t slot = 6; slot < 12; ++slot) {
      shards[random.Below(shard_count)].blocks.push_back(slot);
    }
    NormReducer reducer("ps", shards, tensors, "job");
    NormReducer::Answers answers;
    for (uint32_t shard = shard_count; shard-- > 0;) {
      if (dense[shard].blocks.empty()) continue;
      reducer.OnNorms(shard, shard, 0, {4, ReductionStage::kTrust},
                      dense[shard].blocks, norms[shard], kDeadline, &answers);
    }
    ASSERT_FALSE(answers.empty());
    for (const NormReducer::Answer& answer : answers) {
      EXPECT_EQ(answer.status, absl::OkStatus());
      EXPECT_EQ(answer.sums, expected);
    }
  }
}

// A shard that has slots alone has no part in the second stage, which the
// others may have reduced before it asks again for an answer that was lost.
TEST(NormReducerTest, ARepeatOfAnEarlierStageIsAnsweredWithItsSums) {
  NormReducer reducer(
      "ps", {{10, "ps:0 at a:1", {0}}, {11, "ps:1 at b:2", {1}}}, {0}, "job");
  NormReducer::Answers answers;
  const ReductionRound gradient = {4, ReductionStage::kGradient};
  reducer.OnNorms(1, 0, 10, gradient, {0}, {2.0}, kDeadline, &answers);
  reducer.OnNorms(2, 1, 11, gradient, {1}, {3.0}, kDeadline, &answers);
  reducer.OnNorms(3, 0, 10, {4, ReductionStage::kTrust}, {0}, {7.0, 8.0},
                  kDeadline, &answers);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_THAT(answers[2].sums, ElementsAre(7.0, 8.0));
  answers.clear();
  reducer.OnNorms(4, 1, 11, gradient, {1}, {3.0}, kDeadline, &answers);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].status, absl::OkStatus());
  EXPECT_THAT(answers[0].sums, ElementsAre(5.0));
}

class TwoShards : public ::testing::Test {
 protected:
  NormReducer::Answers Send(uint64_t token, uint32_t rank, int64_t clock) {
    NormReducer::Answers answers;
    reducer_.OnNorms(token, rank, 10 + rank, {clock}, {rank}, {1.0 + rank},
                     kDeadline, &answers);
    return answers;
  }
  NormReducer reducer_{"ps",
                       {{10, "ps:0 at a:1", {0}}, {11, "ps:1 at b:2", {1}}},
                       {0, 1},
                       "job j on ps:0"};
};

TEST_F(TwoShards, AnOverdueCallNamesTheMissingShard) {
  EXPECT_THAT(Send(1, 0, 7), IsEmpty());
  NormReducer::Answers answers;
  reducer_.OnTick(kDeadline - absl::Seconds(1), &answers);
  EXPECT_THAT(answers, IsEmpty());
  reducer_.OnTick(kDeadline, &answers);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(answers[0].status.message()),
              HasSubstr("norm of clock 7 ran out of time; missing: ps:1"));
  // Asking again waits on; what was sent counts.
  EXPECT_THAT(Send(2, 0, 7), IsEmpty());
  EXPECT_EQ(Send(3, 1, 7).size(), 2u);
}

TEST_F(TwoShards, ARepeatOfTheLastClockIsAnsweredAtOnce) {
  Send(1, 0, 7);
  ASSERT_EQ(Send(2, 1, 7).size(), 2u);
  const NormReducer::Answers again = Send(3, 0, 7);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_THAT(again[0].sums, ElementsAre(3.0));
}

TEST_F(TwoShards, AClockMayHaveBothStagesInOrder) {
  const auto trust = [&](uint32_t rank, int64_t clock) {
    NormReducer::Answers answers;
    reducer_.OnNorms(9, rank, 10 + rank, {clock, ReductionStage::kTrust},
                     {rank}, {1, 2}, kDeadline, &answers);
    return answers;
  };
  Send(1, 0, 7);
  ASSERT_EQ(Send(2, 1, 7).size(), 2u);
  EXPECT_THAT(trust(0, 7), IsEmpty());
  EXPECT_THAT(Send(3, 1, 7).at(0).sums, ElementsAre(3.0)) << "a repeat";
  ASSERT_EQ(trust(1, 7).size(), 2u);
  EXPECT_THAT(trust(1, 7).at(0).sums, ElementsAre(1, 2, 1, 2));
  EXPECT_THAT(Send(4, 0, 7).at(0).sums, ElementsAre(3.0))
      << "a repeat of the stage before";
  EXPECT_THAT(Send(5, 0, 8), IsEmpty());
}

TEST_F(TwoShards, RefusesWhatCannotBe) {
  const auto refused = [&](uint32_t rank, uint64_t incarnation, int64_t clock,
                           std::vector<uint32_t> blocks,
                           std::vector<double> norms) {
    NormReducer::Answers answers;
    reducer_.OnNorms(1, rank, incarnation, {clock}, blocks, norms, kDeadline,
                     &answers);
    EXPECT_EQ(answers.size(), 1u);
    return answers.at(0).status;
  };
  EXPECT_EQ(refused(2, 12, 0, {}, {}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(1, 12, 0, {1}, {1}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused(1, 11, 0, {0}, {1}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(1, 11, 0, {1}, {}).code(),
            absl::StatusCode::kInvalidArgument);
  Send(1, 0, 7);
  EXPECT_THAT(std::string(refused(1, 11, 8, {1}, {1}).message()),
              HasSubstr("norms of clock 8 from ps:1 at b:2, expected clock 7"));
  Send(2, 1, 7);
  EXPECT_FALSE(refused(1, 11, 6, {1}, {1}).ok());
}

TEST(NormReducerTest, WhoHasNoPartInARoundDoesNotCountInIt) {
  // A block, a slot, nothing.
  NormReducer reducer("ps",
                      {{10, "ps:0", {0}}, {11, "ps:1", {1}}, {12, "ps:2", {}}},
                      {0}, "job");
  const auto answers_to = [&](uint32_t rank, const ReductionRound& round,
                              std::vector<uint32_t> blocks,
                              std::vector<double> norms) {
    NormReducer::Answers answers;
    reducer.OnNorms(rank, rank, 10 + rank, round, blocks, norms, kDeadline,
                    &answers);
    return answers;
  };
  const auto expect_refused = [&](uint32_t rank, const ReductionRound& round) {
    const NormReducer::Answers answers = answers_to(rank, round, {}, {});
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(answers[0].status.message()),
                HasSubstr("which has no part in them"));
  };
  expect_refused(2, {3});
  EXPECT_THAT(answers_to(0, {3}, {0}, {1}), IsEmpty());
  expect_refused(2, {3});
  ASSERT_EQ(answers_to(1, {3}, {1}, {4}).size(), 2u);
  expect_refused(1, {3, ReductionStage::kTrust});
  const NormReducer::Answers trust =
      answers_to(0, {3, ReductionStage::kTrust}, {0}, {1, 2});
  ASSERT_EQ(trust.size(), 1u);
  EXPECT_THAT(trust[0].sums, ElementsAre(1, 2));
}

TEST_F(TwoShards, ClosingEndsEveryCall) {
  Send(1, 0, 7);
  NormReducer::Answers answers;
  reducer_.Close(absl::CancelledError("over"), &answers);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].status.message(), "over");
  EXPECT_EQ(Send(2, 1, 7).at(0).status.message(), "over");
}

}  // namespace
}  // namespace syncline

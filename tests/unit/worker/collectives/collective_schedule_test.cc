// Schedules are played by an interpreter of this test, which moves messages in
// random orders: the sums must be right, and no two steps that may run at the
// same time touch the same elements.

#include "worker/collectives/collective_schedule.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using Kind = CollectiveStep::Kind;

struct Rank {
  std::vector<float> values;
  std::vector<float> scratch;
  CollectiveSchedule schedule;
  std::vector<uint32_t> waits_for;
  std::vector<bool> done;
};

// (from, to, message) -> bytes on their way.
using Wire =
    std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<float>>;

bool IsWrite(Kind kind) { return kind != Kind::kSend; }

// Whether the Receive of what `step` of rank r sends can take it.
bool IsReceived(const std::vector<Rank>& ranks, uint32_t r,
                const CollectiveStep& step) {
  const Rank& peer = ranks[step.peer];
  for (size_t s = 0; s < peer.schedule.steps.size(); ++s) {
    const CollectiveStep& theirs = peer.schedule.steps[s];
    if (theirs.kind != Kind::kSend && theirs.kind != Kind::kFoldAll &&
        theirs.peer == r && theirs.message == step.message) {
      return !peer.done[s] && peer.waits_for[s] == 0;
    }
  }
  return false;
}

// Runs all schedules, with steps in an order that the seed says. Of every other
// seed messages are sent only once their Receive is posted, as long ones are.
void Play(std::vector<Rank>* ranks, uint64_t seed) {
  Random random(seed);
  Wire wire;
  while (true) {
    std::vector<std::pair<uint32_t, uint32_t>> ready;
    bool all_done = true;
    for (uint32_t r = 0; r < ranks->size(); ++r) {
      Rank& rank = (*ranks)[r];
      std::vector<uint32_t> open;
      for (uint32_t s = 0; s < rank.schedule.steps.size(); ++s) {
        if (rank.done[s]) continue;
        all_done = false;
        if (rank.waits_for[s] > 0) continue;
        open.push_back(s);
        const CollectiveStep& step = rank.schedule.steps[s];
        const bool can_run =
            step.kind == Kind::kFoldAll ||
            (step.kind == Kind::kSend
                 ? seed % 2 == 0 || IsReceived(*ranks, r, step)
                 : wire.contains({step.peer, r, step.message}));
        if (can_run) {
          ready.emplace_back(r, s);
        }
      }
      // Steps under way at the same time.
      for (const uint32_t a : open) {
        for (const uint32_t b : open) {
          const CollectiveStep& one = rank.schedule.steps[a];
          const CollectiveStep& other = rank.schedule.steps[b];
          if (a >= b || (!IsWrite(one.kind) && !IsWrite(other.kind))) continue;
          // A staged message goes to the scratch, not to `elements`.
          if (one.kind == Kind::kStage || other.kind == Kind::kStage) continue;
          const bool overlaps = one.elements.begin < other.elements.end &&
                                other.elements.begin < one.elements.end;
          ASSERT_FALSE(overlaps) << "rank " << r << " steps " << a << ", " << b;
        }
      }
    }
    if (all_done) break;
    ASSERT_FALSE(ready.empty()) << "no step can run";
    const auto [r, s] = ready[random.Below(ready.size())];
    Rank& rank = (*ranks)[r];
    const CollectiveStep& step = rank.schedule.steps[s];
    float* const own = rank.values.data() + step.elements.begin;
    const size_t count = step.elements.size();
    ASSERT_LT(step.message, 1u << 16);
    if (step.kind == Kind::kFoldAll) {
      for (size_t i = 0; i < count; ++i) {
        float sum = 0;
        for (uint32_t p = 0; p < ranks->size(); ++p) {
          const float term =
              p == r ? own[i] : rank.scratch[(p < r ? p : p - 1) * count + i];
          sum = p == 0 ? term : sum + term;
        }
        own[i] = sum;
      }
    } else if (step.kind == Kind::kSend) {
      const bool is_new =
          wire.emplace(std::make_tuple(r, step.peer, step.message),
                       std::vector<float>(own, own + count))
              .second;
      ASSERT_TRUE(is_new) << "a message is named twice";
    } else {
      const auto at = wire.find({step.peer, r, step.message});
      const std::vector<float>& in = at->second;
      ASSERT_EQ(in.size(), count) << "the sides disagree on a size";
      float* const scratch =
          rank.scratch.empty() ? nullptr : rank.scratch.data() + step.scratch;
      for (size_t i = 0; i < count; ++i) {
        switch (step.kind) {
          case Kind::kReceive:
            own[i] = in[i];
            break;
          case Kind::kAdd:
            own[i] = own[i] + in[i];
            break;
          case Kind::kStage:
            scratch[i] = in[i];
            break;
          case Kind::kStageAdd:
            scratch[i] = scratch[i] + in[i];
            break;
          case Kind::kFold:
            own[i] = (scratch[i] + in[i]) + own[i];
            break;
          case Kind::kSend:
          case Kind::kFoldAll:
            break;
        }
      }
      wire.erase(at);
    }
    rank.done[s] = true;
    for (const uint32_t next : step.next) --rank.waits_for[next];
  }
  EXPECT_TRUE(wire.empty());
}

std::vector<Rank> Make(CollectiveKind kind, CollectiveAlgorithm algorithm,
                       size_t count, uint32_t n, Random* random,
                       bool integers) {
  std::vector<Rank> ranks(n);
  for (uint32_t r = 0; r < n; ++r) {
    for (size_t i = 0; i < count; ++i) {
      ranks[r].values.push_back(
          integers ? static_cast<float>(random->Below(1000))
                   : static_cast<float>(random->Uniform() - 0.5));
    }
    ranks[r].schedule = MakeSchedule(kind, algorithm, count, r, n);
    ranks[r].scratch.resize(ranks[r].schedule.scratch_elements);
    ranks[r].done.resize(ranks[r].schedule.steps.size());
    for (const CollectiveStep& step : ranks[r].schedule.steps) {
      ranks[r].waits_for.push_back(step.waits_for);
    }
  }
  return ranks;
}

std::vector<float> SumInRankOrder(const std::vector<Rank>& ranks) {
  std::vector<float> sum = ranks[0].values;
  for (size_t r = 1; r < ranks.size(); ++r) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += ranks[r].values[i];
  }
  return sum;
}

constexpr CollectiveAlgorithm kAll[] = {
    CollectiveAlgorithm::kExchange, CollectiveAlgorithm::kDirect,
    CollectiveAlgorithm::kRing, CollectiveAlgorithm::kTree};

TEST(CollectiveScheduleTest, PartsCoverAVectorInOrder) {
  for (const size_t count : {0, 1, 15, 16, 17, 100, 1000, 65537}) {
    for (uint32_t n = 1; n <= 9; ++n) {
      size_t at = 0;
      for (uint32_t r = 0; r < n; ++r) {
        const ElementRange part = PartOf(count, r, n);
        EXPECT_EQ(part.begin, at);
        EXPECT_LE(part.begin, part.end);
        EXPECT_TRUE(part.begin % 16 == 0 || part.begin == count);
        at = part.end;
      }
      EXPECT_EQ(at, count);
    }
  }
}

TEST(CollectiveScheduleTest, EveryAlgorithmSumsEverythingOnce) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    const auto n = static_cast<uint32_t>(1 + random.Below(9));
    const size_t count = random.Below(200);
    for (const CollectiveAlgorithm algorithm : kAll) {
      SCOPED_TRACE(std::string(NameOf(algorithm)) + " seed " +
                   std::to_string(seed));
      std::vector<Rank> ranks =
          Make(CollectiveKind::kAllReduce, algorithm, count, n, &random, true);
      const std::vector<float> sum = SumInRankOrder(ranks);
      Play(&ranks, seed);
      if (HasFatalFailure()) return;
      for (const Rank& rank : ranks) EXPECT_EQ(rank.values, sum);
    }
  }
}

TEST(CollectiveScheduleTest, ExchangeAndDirectAddInRankOrder) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    const auto n = static_cast<uint32_t>(2 + random.Below(7));
    const size_t count = 1 + random.Below(300);
    for (const CollectiveAlgorithm algorithm :
         {CollectiveAlgorithm::kExchange, CollectiveAlgorithm::kDirect}) {
      std::vector<Rank> ranks =
          Make(CollectiveKind::kAllReduce, algorithm, count, n, &random, false);
      const std::vector<float> sum = SumInRankOrder(ranks);
      Play(&ranks, seed);
      if (HasFatalFailure()) return;
      for (const Rank& rank : ranks) {
        EXPECT_EQ(rank.values, sum) << NameOf(algorithm) << " seed " << seed;
      }
    }
  }
}

TEST(CollectiveScheduleTest, LongPartsAreSummedSegmentBySegment) {
  const size_t count = 3 * 6 * kSegmentElements + 100;
  Random random(1);
  std::vector<Rank> ranks =
      Make(CollectiveKind::kAllReduce, CollectiveAlgorithm::kDirect, count, 3,
           &random, false);
  const std::vector<float> sum = SumInRankOrder(ranks);
  EXPECT_LE(ranks[2].schedule.scratch_elements, 4 * kSegmentElements);
  Play(&ranks, 5);
  for (const Rank& rank : ranks) EXPECT_TRUE(rank.values == sum);
}

TEST(CollectiveScheduleTest, ReduceScatterAndAllGatherAreTheTwoHalves) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    const auto n = static_cast<uint32_t>(2 + random.Below(6));
    const size_t count = random.Below(300);
    for (const CollectiveAlgorithm algorithm :
         {CollectiveAlgorithm::kDirect, CollectiveAlgorithm::kRing}) {
      std::vector<Rank> ranks = Make(CollectiveKind::kReduceScatter, algorithm,
                                     count, n, &random, true);
      const std::vector<float> sum = SumInRankOrder(ranks);
      Play(&ranks, seed);
      for (uint32_t r = 0; r < n; ++r) {
        const ElementRange part = PartOf(count, r, n);
        for (size_t i = part.begin; i < part.end; ++i) {
          ASSERT_EQ(ranks[r].values[i], sum[i]);
        }
      }
      std::vector<Rank> gather =
          Make(CollectiveKind::kAllGather, algorithm, count, n, &random, true);
      for (uint32_t r = 0; r < n; ++r) gather[r].values = ranks[r].values;
      Play(&gather, seed + 1);
      for (uint32_t r = 0; r < n; ++r) EXPECT_EQ(gather[r].values, sum);
    }
  }
}

}  // namespace
}  // namespace syncline::worker

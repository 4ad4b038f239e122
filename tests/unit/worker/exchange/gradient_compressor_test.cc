// Goal: what is sent and what is kept add up to all gradients, step by step and
// to the bit from run to run; steps that had no effect leave no trace.
// Method: random gradients of tensors of one, few and many elements through
// each kind, decoded as a ps does.

#include "worker/exchange/gradient_compressor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using ::testing::Each;
using Kind = GradientCompression::Kind;

// The last tensor is a running mean.
const int64_t kSizes[] = {1, 10, 5000, 70'000, 16};
constexpr uint32_t kMean = 4;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

BlockMap MapFor(uint32_t shards) {
  std::vector<TensorSize> tensors;
  for (const int64_t size : kSizes) tensors.push_back({"t", size});
  return *BlockMap::Create(tensors, shards);
}

using Gradients = std::vector<std::vector<float>>;

Gradients RandomGradients(uint64_t seed) {
  Random random(seed);
  Gradients gradients;
  for (const int64_t size : kSizes) {
    std::vector<float>& of = gradients.emplace_back(size);
    for (float& g : of) g = static_cast<float>(random.Normal());
  }
  return gradients;
}

GradientCompressor::Options OptionsOf(Kind kind, bool may_be_undone = false) {
  return {.compression = {.kind = kind, .fraction = 0.01},
          .seed = 7,
          .rank = 1,
          .momentum = kind == Kind::kDgc ? 0.9f : 0,
          .may_be_undone = may_be_undone,
          .running_means = {false, false, false, false, true}};
}

class Rank {
 public:
  explicit Rank(const GradientCompressor::Options& options, uint32_t shards = 1)
      : map_(MapFor(shards)), compressor_(options, map_) {}

  // Compresses a step, and returns what a ps reads of it.
  Gradients Step(int64_t clock, const Gradients& gradients,
                 uint64_t samples = 32) {
    compressor_.BeginStep(clock, samples);
    for (uint32_t t = 0; t < gradients.size(); ++t) {
      compressor_.Compress(t, gradients[t]);
    }
    return Decoded();
  }
  Gradients Decoded() const {
    Gradients decoded;
    for (const int64_t size : kSizes) decoded.emplace_back(size);
    for (uint32_t id = 0; id < map_.blocks().size(); ++id) {
      const Block& block = map_.blocks()[id];
      const auto parsed =
          CompressedBlock::Parse(compressor_.block(id), block.count);
      EXPECT_TRUE(parsed.ok()) << parsed.status();
      parsed->CopyTo(0, block.count,
                     decoded[block.tensor].data() + block.offset);
    }
    return decoded;
  }
  std::string Bytes() const {
    std::string bytes;
    for (uint32_t id = 0; id < map_.blocks().size(); ++id) {
      const absl::string_view of = compressor_.block(id);
      bytes.append(of.data(), of.size());
    }
    return bytes;
  }
  std::vector<float> Residuals() const {
    std::vector<float> all;
    for (uint32_t t = 0; t < kMean; ++t) {
      const auto of = compressor_.residual(t);
      all.insert(all.end(), of.begin(), of.end());
    }
    return all;
  }
  const BlockMap& map() const { return map_; }
  GradientCompressor& compressor() { return compressor_; }

 private:
  const BlockMap map_;
  GradientCompressor compressor_;
};

TEST(GradientCompressorTest, NothingIsLostForGood) {
  for (const Kind kind : {Kind::kInt8, Kind::kTopK}) {
    Rank rank(OptionsOf(kind));
    std::vector<std::vector<double>> balance;
    for (const int64_t size : kSizes) balance.emplace_back(size);
    for (int64_t clock = 0; clock < 50; ++clock) {
      const Gradients gradients = RandomGradients(clock);
      const Gradients sent = rank.Step(clock, gradients);
      EXPECT_EQ(sent[kMean], gradients[kMean]);
      for (uint32_t t = 0; t < kMean; ++t) {
        for (size_t i = 0; i < sent[t].size(); ++i) {
          balance[t][i] += double{gradients[t][i]} - sent[t][i];
        }
      }
    }
    for (uint32_t t = 0; t < kMean; ++t) {
      for (size_t i = 0; i < balance[t].size(); ++i) {
        ASSERT_NEAR(balance[t][i], rank.compressor().residual(t)[i], 1e-4);
      }
    }
  }
}

TEST(GradientCompressorTest, TopKSendsItsFractionOfEachTensor) {
  Rank rank(OptionsOf(Kind::kTopK));
  const Gradients sent = rank.Step(0, RandomGradients(1));
  const size_t expected[] = {1, 1, 50, 700, 16};
  for (uint32_t t = 0; t < sent.size(); ++t) {
    EXPECT_EQ(sent[t].size() - std::count(sent[t].begin(), sent[t].end(), 0),
              expected[t]);
  }
}

// Lin et al. 2018, algorithm 4, element by element.
TEST(GradientCompressorTest, DgcFollowsThePaper) {
  Rank rank(OptionsOf(Kind::kDgc));
  constexpr uint32_t kTensor = 2;
  std::vector<float> u(kSizes[kTensor]);
  std::vector<float> v(kSizes[kTensor]);
  for (int64_t clock = 0; clock < 30; ++clock) {
    const Gradients gradients = RandomGradients(clock);
    const std::vector<float> sent = rank.Step(clock, gradients)[kTensor];
    std::vector<float> order;
    for (size_t i = 0; i < u.size(); ++i) {
      u[i] = 0.9f * u[i] + gradients[kTensor][i];
      v[i] += u[i];
      order.push_back(std::abs(v[i]));
    }
    std::nth_element(order.begin(), order.begin() + 49, order.end(),
                     std::greater<>());
    for (size_t i = 0; i < u.size(); ++i) {
      const bool is_sent = std::abs(v[i]) >= order[49];
      ASSERT_EQ(sent[i], is_sent ? v[i] : 0) << clock << " " << i;
      if (is_sent) u[i] = v[i] = 0;
    }
  }
}

// Element by element.
TEST(GradientCompressorTest, OneBitAdamSendsMomentsOverTheirRoot) {
  constexpr float kBeta1 = 0.9f;
  constexpr uint64_t kSamples = 32;
  GradientCompressor::Options options = OptionsOf(Kind::kOneBitAdam);
  options.compression.warmup_clocks = 2;
  options.compression.block_elements = 32;
  options.adam.kind = OptimizerKind::kAdam;
  options.adam.beta1 = kBeta1;
  const BlockMap map = MapFor(1);
  Gradients first = RandomGradients(99);
  Gradients second = RandomGradients(98);
  for (auto& of : second) {
    for (float& s : of) s *= s;
  }
  options.moments = [&](uint32_t block) {
    const Block& of = map.blocks()[block];
    const auto part = [&](const Gradients& all) {
      return absl::MakeConstSpan(all[of.tensor])
          .subspan(static_cast<size_t>(of.offset),
                   static_cast<size_t>(of.count));
    };
    return AdamMoments{part(first), part(second)};
  };
  Rank rank(options);
  for (int64_t clock = 0; clock < 2; ++clock) {
    const Gradients gradients = RandomGradients(clock);
    EXPECT_EQ(rank.Step(clock, gradients, kSamples), gradients);
  }
  EXPECT_THAT(rank.Residuals(), Each(0.0f));
  const FrozenAdam adam(options.adam, 2, /*workers=*/1);
  Gradients kept = RandomGradients(0);
  for (auto& of : kept) std::fill(of.begin(), of.end(), 0.0f);
  for (int64_t clock = 2; clock < 6; ++clock) {
    const Gradients gradients = RandomGradients(clock);
    const Gradients sent = rank.Step(clock, gradients, kSamples);
    EXPECT_EQ(sent[kMean], gradients[kMean]);
    for (uint32_t t = 0; t < kMean; ++t) {
      const auto residual = rank.compressor().residual(t);
      for (size_t i = 0; i < sent[t].size(); ++i) {
        const double u =
            adam.NextOverRoot(first[t][i], gradients[t][i] / kSamples,
                              adam.Root(second[t][i])) *
                kSamples +
            kept[t][i];
        const double most = 1e-5 * (std::abs(u) + std::abs(sent[t][i]) + 1);
        ASSERT_NEAR(sent[t][i] + residual[i], u, most);
        ASSERT_GE(sent[t][i] * u, 0) << "its sign";
        kept[t][i] = residual[i];
      }
    }
  }
  // The owner sees an element that is not finite, though elements are clipped.
  for (const float wrong : {kNan, std::numeric_limits<float>::infinity()}) {
    Rank one(options);
    Gradients gradients = RandomGradients(3);
    gradients[1][4] = wrong;
    EXPECT_EQ(one.Step(2, gradients, kSamples)[1][0], gradients[1][0]);
    EXPECT_FALSE(std::isfinite(one.Decoded()[1][4]));
  }
  {
    // A second moment that has overflowed, of a first one that is infinite.
    std::fill(first[1].begin(), first[1].end(),
              std::numeric_limits<float>::infinity());
    std::fill(second[1].begin(), second[1].end(),
              std::numeric_limits<float>::infinity());
    Rank one(options);
    EXPECT_TRUE(std::isnan(one.Step(2, RandomGradients(3), kSamples)[1][0]));
  }
  // Sums are over the root already.
  options.moments = nullptr;
  Rank sums(options);
  const Gradients gradients = RandomGradients(7);
  const Gradients sent = sums.Step(2, gradients, kSamples);
  for (size_t i = 0; i < sent[3].size(); ++i) {
    ASSERT_NEAR(sent[3][i] + sums.compressor().residual(3)[i], gradients[3][i],
                1e-5);
  }
}

TEST(GradientCompressorTest, BitsDependOnSeedRankAndClockAlone) {
  for (const Kind kind :
       {Kind::kInt8, Kind::kTopK, Kind::kDgc, Kind::kTernGrad}) {
    Rank one(OptionsOf(kind), 1);
    Rank seven(OptionsOf(kind), 7);
    for (int64_t clock = 0; clock < 5; ++clock) {
      one.Step(clock, RandomGradients(clock));
      seven.Step(clock, RandomGradients(clock));
      ASSERT_EQ(one.Bytes(), seven.Bytes());
    }
  }
  const auto ternary = [](uint64_t seed, uint32_t rank, int64_t clock) {
    GradientCompressor::Options options = OptionsOf(Kind::kTernGrad);
    options.seed = seed;
    options.rank = rank;
    Rank of(options);
    of.Step(clock, RandomGradients(1));
    return of.Bytes();
  };
  EXPECT_EQ(ternary(1, 1, 1), ternary(1, 1, 1));
  EXPECT_NE(ternary(1, 1, 1), ternary(2, 1, 1));
  EXPECT_NE(ternary(1, 1, 1), ternary(1, 2, 1));
  EXPECT_NE(ternary(1, 1, 1), ternary(1, 1, 2));
}

TEST(GradientCompressorTest, ABlockThatIsNotFiniteStaysWhole) {
  for (const Kind kind :
       {Kind::kInt8, Kind::kTopK, Kind::kDgc, Kind::kTernGrad}) {
    Rank rank(OptionsOf(kind));
    rank.Step(0, RandomGradients(0));
    const std::vector<float> before = rank.Residuals();
    Gradients gradients = RandomGradients(1);
    gradients[3][0] = kNan;
    const Gradients sent = rank.Step(1, gradients);
    const auto count =
        rank.map().blocks()[rank.map().tensor_blocks(3)[0]].count;
    ASSERT_LT(count, kSizes[3]);
    EXPECT_TRUE(std::isnan(sent[3][0]));
    // All of the block, as it is, with nothing of the residual.
    EXPECT_TRUE(std::equal(sent[3].begin() + 1, sent[3].begin() + count,
                           gradients[3].begin() + 1));
    // The others go on as ever.
    EXPECT_NE(
        std::vector<float>(sent[3].begin() + count, sent[3].end()),
        std::vector<float>(gradients[3].begin() + count, gradients[3].end()));
    if (kind == Kind::kTernGrad) continue;
    const auto residual = rank.compressor().residual(3);
    const size_t first = kSizes[0] + kSizes[1] + kSizes[2];
    EXPECT_TRUE(std::equal(residual.begin(), residual.begin() + count,
                           before.begin() + first));
    for (const float r : rank.Residuals()) ASSERT_TRUE(std::isfinite(r));
  }
}

// A gradient at the end of float32's range, on a residual there.
TEST(GradientCompressorTest, ASumThatOverflowsStaysWholeToo) {
  Rank rank(OptionsOf(Kind::kTopK));
  Gradients gradients = RandomGradients(0);
  gradients[1].assign(10, 3e38f);
  rank.Step(0, gradients);
  const Gradients sent = rank.Step(1, gradients);
  EXPECT_EQ(sent[1], gradients[1]);
  for (const float r : rank.Residuals()) ASSERT_TRUE(std::isfinite(r));
}

TEST(GradientCompressorTest, ASkippedStepLeavesNoTrace) {
  for (const Kind kind : {Kind::kInt8, Kind::kTopK, Kind::kDgc}) {
    Rank rank(OptionsOf(kind, /*may_be_undone=*/true));
    Rank undisturbed(OptionsOf(kind, /*may_be_undone=*/true));
    for (int64_t clock = 0; clock < 12; ++clock) {
      if (clock % 3 == 1) {
        // Other samples, and a block that is not finite.
        Gradients skipped = RandomGradients(1000 + clock);
        skipped[2][17] = kNan;
        rank.Step(clock, skipped, 8);
        rank.compressor().Undo();
        rank.compressor().Undo();  // a repeat has no effect
        continue;
      }
      rank.Step(clock, RandomGradients(clock));
      undisturbed.Step(clock, RandomGradients(clock));
      ASSERT_EQ(rank.Bytes(), undisturbed.Bytes()) << clock;
      ASSERT_EQ(rank.Residuals(), undisturbed.Residuals());
    }
  }
}

// An overflow may stop a step when some of its tensors were sent.
TEST(GradientCompressorTest, AStepOfSomeTensorsIsUndoneToo) {
  Rank rank(OptionsOf(Kind::kTopK, /*may_be_undone=*/true));
  rank.Step(0, RandomGradients(0));
  const std::vector<float> before = rank.Residuals();
  rank.compressor().BeginStep(1, 32);
  rank.compressor().Compress(3, RandomGradients(1)[3]);
  EXPECT_NE(rank.Residuals(), before);
  rank.compressor().Undo();
  EXPECT_EQ(rank.Residuals(), before);
}

TEST(GradientCompressorTest, AStepThatIsSentAgainIsTheSame) {
  Rank rank(OptionsOf(Kind::kTopK));
  const Gradients gradients = RandomGradients(0);
  rank.Step(0, gradients);
  const std::string bytes = rank.Bytes();
  const std::vector<float> residuals = rank.Residuals();
  rank.Step(0, gradients);
  EXPECT_EQ(rank.Bytes(), bytes);
  EXPECT_EQ(rank.Residuals(), residuals);
}

// A residual counts as the mean over its samples does.
TEST(GradientCompressorTest, ResidualsAreOfTheirSamples) {
  Rank rank(OptionsOf(Kind::kTopK));
  Gradients gradients;
  for (const int64_t size : kSizes) gradients.emplace_back(size, 1.0f);
  gradients[1][0] = 5;
  rank.Step(0, gradients, 32);
  for (auto& of : gradients) std::fill(of.begin(), of.end(), 0.0f);
  const Gradients sent = rank.Step(1, gradients, 8);
  EXPECT_EQ(sent[1][1], 0.25f);
}

// Sums come one by one, and one of which nothing was left comes at none.
TEST(GradientCompressorTest, AResidualIsOfTheSamplesOfItsTensor) {
  const std::vector<TensorSize> tensors = {{"a", 32}, {"b", 32}};
  const BlockMap map = *BlockMap::Create(tensors, 1);
  GradientCompressor compressor(
      {.compression = {.kind = Kind::kInt8, .block_elements = 32}}, map);
  std::vector<float> gradient(32, 0.3f);
  gradient[0] = 100;
  const std::vector<float> zeros(32, 0);
  compressor.BeginStep(0, 128);
  compressor.Compress(0, gradient);
  const std::vector<float> kept(compressor.residual(0).begin(),
                                compressor.residual(0).end());
  EXPECT_NE(kept[1], 0);
  compressor.BeginStep(1, 1);
  compressor.Compress(1, gradient);
  compressor.BeginStep(2, 64);
  compressor.Compress(0, zeros, /*samples=*/128);
  const auto block = CompressedBlock::Parse(compressor.block(0), 32);
  ASSERT_TRUE(block.ok()) << block.status();
  std::vector<float> values(32);
  block->CopyTo(0, 32, values.data());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i] + compressor.residual(0)[i], kept[i], 1e-6) << i;
  }
}

// One of four gradients that are independent has twice the norm of their mean.
TEST(GradientCompressorTest, GradientsAreClippedBefore) {
  struct Case {
    double norm;
    bool averaged;
    float scale;
  };
  for (const Case& c :
       {Case{8, false, 0.5f}, Case{8, true, 1}, Case{16, true, 0.5f},
        Case{4, false, 1}, Case{1, true, 1}}) {
    SCOPED_TRACE(c.norm);
    GradientCompressor::Options options = OptionsOf(Kind::kInt8);
    options.workers = 4;
    Rank rank(options);
    rank.compressor().BeginStep(0, 32);
    rank.compressor().Clip(c.norm, /*clip_norm=*/4, c.averaged);
    const Gradients gradients = RandomGradients(0);
    for (uint32_t t = 0; t < gradients.size(); ++t) {
      rank.compressor().Compress(t, gradients[t]);
    }
    const Gradients sent = rank.Decoded();
    EXPECT_NEAR(sent[0][0], gradients[0][0] * c.scale, 1e-6);
    EXPECT_EQ(sent[kMean], gradients[kMean]);  // a mean is no gradient
  }
}

// The mean of gradients that are independent has the norm that the job allows
// where each of theirs is allowed: it is scaled down by little or not at all.
TEST(GradientCompressorTest, TheMeanOfClippedGradientsHasAboutTheNorm) {
  constexpr uint32_t kRanks = 16;
  constexpr uint32_t kTensor = 2;
  constexpr double kClip = 3;
  std::vector<double> mean(kSizes[kTensor]);
  for (uint32_t r = 0; r < kRanks; ++r) {
    GradientCompressor::Options options = OptionsOf(Kind::kInt8);
    options.rank = r;
    options.workers = kRanks;
    Rank rank(options);
    Gradients gradients = RandomGradients(r);
    double squares = 0;
    for (const float g : gradients[kTensor])
      squares += static_cast<double>(g) * g;
    // Ten times as large as what the step may have.
    const double to_norm = 10 * kClip / std::sqrt(squares);
    for (float& g : gradients[kTensor]) {
      g = static_cast<float>(g * to_norm);
    }
    rank.compressor().BeginStep(0, 1);
    rank.compressor().Clip(10 * kClip, kClip, /*averaged=*/true);
    for (uint32_t t = 0; t < gradients.size(); ++t) {
      rank.compressor().Compress(t, gradients[t]);
    }
    const Gradients sent = rank.Decoded();
    for (size_t i = 0; i < mean.size(); ++i)
      mean[i] += sent[kTensor][i] / kRanks;
  }
  double squares = 0;
  for (const double m : mean) squares += m * m;
  EXPECT_NEAR(std::sqrt(squares), kClip, 0.1 * kClip);
}

TEST(GradientCompressorTest, ZerosStayZeros) {
  for (const Kind kind :
       {Kind::kInt8, Kind::kTopK, Kind::kDgc, Kind::kTernGrad}) {
    Rank rank(OptionsOf(kind));
    Gradients gradients;
    for (const int64_t size : kSizes) gradients.emplace_back(size, 0.0f);
    for (const auto& of : rank.Step(0, gradients)) EXPECT_THAT(of, Each(0));
  }
}

// What a step of `clock` sends, where the kind may be kNone.
Gradients SentBy(Rank* rank, int64_t clock, const Gradients& gradients) {
  GradientCompressor& compressor = rank->compressor();
  compressor.BeginStep(clock, 32);
  for (uint32_t t = 0; t < gradients.size(); ++t) {
    compressor.Compress(t, gradients[t]);
  }
  Gradients sent = gradients;
  if (!compressor.sends_all()) return sent;
  for (uint32_t t = 0; t < gradients.size(); ++t) {
    const absl::Span<const float> whole = compressor.whole(t);
    EXPECT_EQ(whole.empty(), t == kMean);
    if (!whole.empty()) sent[t].assign(whole.begin(), whole.end());
  }
  return sent;
}

GradientCompression Of(Kind kind) { return OptionsOf(kind).compression; }

TEST(GradientCompressorTest, AnotherKindTakesWhatWasKept) {
  for (const Kind from : {Kind::kInt8, Kind::kTopK}) {
    for (const Kind to :
         {Kind::kInt8, Kind::kTopK, Kind::kTernGrad, Kind::kNone}) {
      Rank rank(OptionsOf(from));
      std::vector<double> balance;  // of the residuals' elements
      const auto step = [&](int64_t clock, bool compressed) {
        const Gradients gradients = RandomGradients(clock);
        const Gradients sent = compressed ? rank.Step(clock, gradients)
                                          : SentBy(&rank, clock, gradients);
        EXPECT_EQ(sent[kMean], gradients[kMean]);
        size_t i = 0;
        for (uint32_t t = 0; t < kMean; ++t) {
          for (size_t e = 0; e < sent[t].size(); ++e, ++i) {
            if (i == balance.size()) balance.push_back(0);
            balance[i] += double{gradients[t][e]} - sent[t][e];
          }
        }
      };
      for (int64_t clock = 0; clock < 5; ++clock) step(clock, true);
      rank.compressor().Follow(Of(to), /*may_be_undone=*/false);
      step(5, to != Kind::kNone);
      const bool keeps = to == Kind::kInt8 || to == Kind::kTopK;
      const std::vector<float> kept = rank.Residuals();
      for (size_t i = 0; i < balance.size(); ++i) {
        ASSERT_NEAR(balance[i], keeps ? kept[i] : 0, 1e-4)
            << static_cast<int>(from) << " to " << static_cast<int>(to);
      }
      if (keeps) continue;
      // From here on nothing is kept.
      SentBy(&rank, 6, RandomGradients(6));
      EXPECT_FALSE(rank.compressor().sends_all());
      EXPECT_THAT(rank.Residuals(), Each(0));
    }
  }
}

TEST(GradientCompressorTest, AJobThatComesBackToAKindBeginsItAnew) {
  Rank rank(OptionsOf(Kind::kInt8));
  Rank fresh(OptionsOf(Kind::kInt8));
  rank.Step(0, RandomGradients(0));
  rank.compressor().Follow(Of(Kind::kNone), false);
  SentBy(&rank, 1, RandomGradients(1));
  EXPECT_EQ(SentBy(&rank, 2, RandomGradients(2)), RandomGradients(2));
  rank.compressor().Follow(Of(Kind::kInt8), false);
  rank.Step(3, RandomGradients(3));
  fresh.Step(3, RandomGradients(3));
  EXPECT_EQ(rank.Bytes(), fresh.Bytes());
  EXPECT_EQ(rank.Residuals(), fresh.Residuals());
}

// The residuals that a skipped step has sent are sent by the next one.
TEST(GradientCompressorTest, AStepThatSendsAllIsUndoneToo) {
  Rank rank(OptionsOf(Kind::kTopK));
  rank.Step(0, RandomGradients(0));
  const std::vector<float> before = rank.Residuals();
  rank.compressor().Follow(Of(Kind::kNone), /*may_be_undone=*/true);
  Gradients skipped = RandomGradients(1);
  skipped[3][9] = kNan;
  SentBy(&rank, 1, skipped);
  rank.compressor().Undo();
  EXPECT_EQ(rank.Residuals(), before);
  const Gradients gradients = RandomGradients(2);
  const Gradients sent = SentBy(&rank, 2, gradients);
  EXPECT_EQ(sent[3][8], gradients[3][8] + before[1 + 10 + 5000 + 8]);
  // A step that is sent again is the same.
  EXPECT_EQ(SentBy(&rank, 2, gradients), sent);
  EXPECT_EQ(SentBy(&rank, 3, gradients), gradients);
}

TEST(GradientCompressorTest, MemoryIsWhatThePlanSays) {
  std::vector<TensorSize> tensors;
  for (const int64_t size : kSizes) tensors.push_back({"t", size});
  const auto bytes = [&](const GradientCompressor::Options& options) {
    return GradientCompressor::StateBytes(options, tensors);
  };
  constexpr uint64_t kElements = 1 + 10 + 5000 + 70'000;
  constexpr uint64_t kResiduals = kElements * sizeof(float);
  constexpr uint64_t kFound = 70'000 * sizeof(float);
  EXPECT_EQ(bytes(OptionsOf(Kind::kNone, /*may_be_undone=*/true)), 0u);
  EXPECT_GE(bytes(OptionsOf(Kind::kTopK)), kResiduals + kFound);
  EXPECT_LE(bytes(OptionsOf(Kind::kTopK)), kResiduals + kFound + kElements / 2);
  GradientCompressor::Options without_momentum = OptionsOf(Kind::kDgc);
  without_momentum.momentum = 0;
  EXPECT_EQ(bytes(OptionsOf(Kind::kDgc, /*may_be_undone=*/true)) -
                bytes(without_momentum),
            3 * kResiduals);
  EXPECT_LT(bytes(OptionsOf(Kind::kTernGrad, /*may_be_undone=*/true)),
            kResiduals);
  for (const Kind kind : {Kind::kInt8, Kind::kTopK, Kind::kDgc, Kind::kTernGrad,
                          Kind::kOneBitAdam}) {
    for (const bool is_finite : {true, false}) {
      GradientCompressor::Options options = OptionsOf(kind);
      options.sends_non_finite = !is_finite;
      Rank rank(options);
      Gradients gradients = RandomGradients(0);
      if (!is_finite) {
        for (auto& of : gradients) std::fill(of.begin(), of.end(), kNan);
      }
      rank.Step(0, gradients);
      const uint64_t kept = rank.Residuals().size() * sizeof(float) *
                            (kind == Kind::kDgc ? 2u : 1u);
      const uint64_t found = options.compression.sparse() ? kFound : 0;
      // Headers of blocks are not counted.
      EXPECT_LE(kept + 2 * rank.Bytes().size() + found, bytes(options) + 4096)
          << static_cast<int>(kind) << " " << is_finite;
    }
  }
}

}  // namespace
}  // namespace syncline::worker

// Goal: a compression is the same after it was a message, and one that is not
// built or out of range is refused.

#include "common/regime/compression_message.h"

#include "common/job/job_spec_validator.h"
#include "common/regime/job_regimes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;
using Kind = GradientCompression::Kind;

TEST(CompressionMessageTest, ComesBackAsItWas) {
  const GradientCompression all[] = {
      {},
      {.kind = Kind::kInt8, .block_elements = 64},
      {.kind = Kind::kTopK, .fraction = 0.125},
      {.kind = Kind::kTopK, .fraction = 0.125, .values = true},
      {.kind = Kind::kDgc, .fraction = 0.5, .warmup_clocks = 7},
      {.kind = Kind::kTernGrad, .block_elements = 65'536},
      {.kind = Kind::kOneBitAdam, .warmup_clocks = 9, .values = true}};
  for (const GradientCompression& one : all) {
    const auto read = ReadCompression(ToProto(one));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, one);
  }
}

TEST(CompressionMessageTest, RefusesWhatIsNotBuilt) {
  const auto error = [](const CompressionSpec& spec) {
    return std::string(ReadCompression(spec).status().message());
  };
  CompressionSpec spec;
  EXPECT_THAT(error(spec), HasSubstr("kind: 0"));
  spec.set_kind(static_cast<CompressionSpec::Kind>(7));
  EXPECT_THAT(error(spec), HasSubstr("kind: 7"));
  spec.set_kind(CompressionSpec::ONE_BIT_ADAM);
  EXPECT_THAT(error(spec), HasSubstr("warmup_clocks"));
  spec.set_kind(CompressionSpec::TOP_K);
  spec.set_fraction(1);
  EXPECT_THAT(error(spec), HasSubstr("fraction: 1"));
  spec.set_kind(CompressionSpec::INT8);
  spec.set_block_elements(16);
  EXPECT_THAT(error(spec), HasSubstr("block_elements: 16"));
}

TEST(CompressionMessageTest, TheRegimeOfAJobHasIt) {
  const JobSpec spec =
      WithDefaults(JobFromText(kSmallJob, "compression { kind: TOP_K }"));
  const auto regimes = ReadRegimes(spec);
  ASSERT_TRUE(regimes.ok()) << regimes.status();
  EXPECT_EQ(regimes->At(5).compression.kind, Kind::kTopK);
  EXPECT_EQ(regimes->At(5).compression.fraction, 0.01);
  const auto again = ReadRegime("regime", ToProto(regimes->At(0)));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, regimes->At(0));
}

// Lin et al. 2018: 25 %, 6.25 %, 1.5625 %, 0.4 %, 0.1 %.
TEST(GradientCompressionTest, WarmsUpByTheSameFactor) {
  const GradientCompression dgc = {
      .kind = Kind::kDgc, .fraction = 0.25 / 256, .warmup_clocks = 4};
  EXPECT_NEAR(dgc.FractionAt(0), 0.25, 1e-12);
  EXPECT_NEAR(dgc.FractionAt(1), 0.0625, 1e-12);
  EXPECT_NEAR(dgc.FractionAt(2), 0.015625, 1e-12);
  EXPECT_EQ(dgc.FractionAt(4), 0.25 / 256);
  EXPECT_EQ(dgc.FractionAt(1'000'000), 0.25 / 256);
  EXPECT_EQ(dgc.ElementsAt(9, 10), 1u);
  EXPECT_EQ(dgc.ElementsAt(0, 10), 3u);
  const GradientCompression large = {
      .kind = Kind::kDgc, .fraction = 0.5, .warmup_clocks = 4};
  EXPECT_EQ(large.FractionAt(0), 0.5);
}

}  // namespace
}  // namespace syncline

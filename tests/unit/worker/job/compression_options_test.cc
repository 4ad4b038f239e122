// Goal: compression that does nothing is said, and a fraction that says nothing
// is refused, by name, once the data and the model are known. Method: fractions
// and warm-ups at both sides of what a model and a number of clocks admit.

#include "worker/job/compression_options.h"

#include "absl/strings/numbers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Tensors of these sizes.
TrainingGraph GraphOf(const std::vector<int64_t>& counts) {
  TrainingGraph graph;
  for (const int64_t count : counts) {
    graph.parameters.emplace_back();
    graph.parameters.back().dims = {count};
  }
  return graph;
}

absl::Status CheckOf(double fraction, const std::vector<int64_t>& counts) {
  JobSpec spec = DigitsJob();
  spec.mutable_compression()->set_kind(CompressionSpec::TOP_K);
  spec.mutable_compression()->set_fraction(fraction);
  return CheckFraction(spec, GraphOf(counts));
}

TEST(CompressionOptionsTest, AFractionBelowOneElementIsRefused) {
  EXPECT_OK(CheckOf(0.001, {10, 1000, 20}));
  const absl::Status refused = CheckOf(1e-12, {10, 1000, 20});
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("compression.fraction: 1e-12 of the largest "
                              "tensor's 1000 elements is less than one"),
                    HasSubstr("0.001 is one of it")));
  EXPECT_FALSE(CheckOf(0.00099, {1000}).ok());
  // The fraction that is proposed is taken.
  for (const int64_t count : {3, 7, 1000, 1024, 99999}) {
    const std::string text(CheckOf(1e-12, {count}).message());
    const size_t end = text.find(" is one of it");
    const size_t begin = text.rfind(' ', end - 1) + 1;
    double proposed = 0;
    ASSERT_TRUE(absl::SimpleAtod(text.substr(begin, end - begin), &proposed));
    EXPECT_TRUE(CheckOf(proposed, {count}).ok()) << text;
  }
  EXPECT_TRUE(CheckOf(0.01, {10}).ok()) << "the default is for any model";
  EXPECT_OK(CheckFraction(DigitsJob(), GraphOf({10})));
}

TEST(CompressionOptionsTest, AWarmUpAsLongAsTheJobIsSaid) {
  JobSpec spec = DigitsJob();
  spec.mutable_compression()->set_kind(CompressionSpec::ONE_BIT_ADAM);
  spec.mutable_compression()->set_warmup_clocks(40);
  EXPECT_EQ(WarmupWarning(spec, 41), "");
  EXPECT_THAT(WarmupWarning(spec, 40),
              AllOf(HasSubstr("compression.warmup_clocks: 40 is not below the "
                              "job's clocks, 40"),
                    HasSubstr("nothing is compressed")));
  // DGC's is no condition: the fraction falls for as long as there are clocks.
  spec.mutable_compression()->set_kind(CompressionSpec::DGC);
  EXPECT_EQ(WarmupWarning(spec, 10), "");
}

}  // namespace
}  // namespace syncline::worker

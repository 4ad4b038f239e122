// Goal: a job whose batch sizes or lengths of samples its model cannot have is
// refused, and so are scores that depend on the length in another way than
// labels can. Method: models of one input whose last dimension is the length,
// and the exact reports.

#include "common/model/batch_shapes.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_resolution.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::Resolve;
using testing::Resolved;

TEST(BatchShapesTest, AnyBatchSizeFits) {
  EXPECT_THAT(
      Resolve("training { batch_size: 1048576 eval_batch_size: 1 }").problems,
      IsEmpty());
}

TEST(BatchShapesTest, BatchesThatAreTooLargeAreRefused) {
  const std::string text = R"(<ir_version: 8, opset_import: ["" : 13]>
      g (float[N,100000000] x, float[100000000,2] w1) => (float[N,2] y)
      { y = MatMul(x, w1) })";
  EXPECT_THAT(Resolve("training { batch_size: 1048576 }", text).problems,
              ElementsAre(::testing::StartsWith("training.batch_size: m: ")));
}

constexpr char kLists[] =
    "data { train { csv { path: 't' has_header: true list_delimiter: '|' } } "
    "buckets { dimension: 'S' lengths: [2, 6] } }";
const std::string kBuckets =
    absl::StrCat(kLists, "data { label { ignore: -1 } }");

std::string Sequences(absl::string_view weight, absl::string_view output,
                      absl::string_view body) {
  return absl::StrCat(R"(<ir_version: 8, opset_import: ["" : 13]>
      g (float[N,S] x, float)",
                      weight, " w1) => (float", output, R"( y)
      <int64[1] two = {2}, int64[1] one = {1}, int64[3] flat = {0, 3, -1}>
      { )",
                      body, " }");
}

TEST(BatchShapesTest, ScoresMayHaveAsManyPositionsAsTheLength) {
  const std::string text =
      Sequences("[1,3]", "[N,S,3]",
                "u = Unsqueeze(x, two) v = MatMul(u, w1) y = Relu(v)");
  const Resolved resolved = Resolve(kBuckets, text);
  EXPECT_THAT(resolved.problems, IsEmpty());
  EXPECT_EQ(resolved.model->graph().values[resolved.training.feeds[0]].dims,
            (Dims{kBatchDim, 6}));
  EXPECT_THAT(
      Resolve(kLists, text).problems,
      ElementsAre("data.label.ignore: is required: the number of labels of 'y' "
                  "depends on data.buckets, and what follows a sample's own "
                  "must not count"));
}

TEST(BatchShapesTest, TheLengthMustBeADimensionOfAnInput) {
  EXPECT_THAT(Resolve(kBuckets).problems,
              ElementsAre("data.buckets.dimension: 'S' is no symbolic "
                          "dimension of the model's inputs ('x')"));
}

TEST(BatchShapesTest, EachLengthMustFitTheGraph) {
  EXPECT_THAT(
      Resolve(kBuckets, Sequences("[6,3]", "[N,3]", "y = MatMul(x, w1)"))
          .problems,
      ElementsAre("data.buckets.lengths[0]: m: node 'MatMul#0' (MatMul, opset "
                  "13) with inputs float32[8,2], float32[6,3]: Incompatible "
                  "dimensions for matrix multiplication"));
}

TEST(BatchShapesTest, ClassesMayNotDependOnTheLength) {
  EXPECT_THAT(
      Resolve(kBuckets, Sequences("[1,3]", "[N,3,S]",
                                  "u = Unsqueeze(x, two) v = MatMul(u, w1) "
                                  "y = Reshape(v, flat)"))
          .problems,
      ElementsAre("data.buckets.lengths[0]: the scores 'y' of a batch are "
                  "[8,3,2], but [8,3,6] at the longest; only the positions of "
                  "SOFTMAX_CROSS_ENTROPY may depend on the length"));
}

// Labels are a sample's, one behind the other.
TEST(BatchShapesTest, TheLengthIsTheFirstOfThePositions) {
  const auto problems = [](absl::string_view scores) {
    return Resolve(
               kBuckets,
               Sequences("[1,12]", scores,
                         absl::StrCat("u = Unsqueeze(x, two) v = MatMul(u, "
                                      "w1) shape = Constant <value_ints = ",
                                      scores == "[N,1,S,12]" ? "[0, 1, -1, 12]"
                                                             : "[0, 2, -1, 6]",
                                      "> () y = Reshape(v, shape)")))
        .problems;
  };
  EXPECT_THAT(problems("[N,1,S,12]"), IsEmpty());
  EXPECT_THAT(
      problems("[N,2,S,6]"),
      ElementsAre("data.buckets.lengths[0]: the scores 'y' of a batch are "
                  "[8,2,2,6], but [8,2,6,6] at the longest; only dimension 1, "
                  "the first of the positions, may depend on the length: "
                  "labels are padded at their end"));
}

// Labels are read for the longest and cut.
TEST(BatchShapesTest, PositionsMayNotBecomeFewerAsTheLengthGrows) {
  EXPECT_THAT(
      Resolve(kBuckets,
              Sequences("[1,24]", "[N,P,3]",
                        "sum = ReduceSum(x, one) all = MatMul(sum, w1) "
                        "classes = Reshape(all, flat) "
                        "positions = Transpose <perm = [0, 2, 1]> (classes) "
                        "shape = Shape(x) length = Gather(shape, one) "
                        "end = Constant <value_ints = [8]> () "
                        "y = Slice(positions, length, end, one)"))
          .problems,
      ElementsAre("data.buckets.lengths[1]: the scores 'y' of a batch are "
                  "[8,2,3], fewer than those of shorter samples; a longer "
                  "sample must not have fewer positions"));
}

}  // namespace
}  // namespace syncline

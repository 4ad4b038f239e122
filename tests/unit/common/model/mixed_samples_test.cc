// Goal: what combines the samples of a batch is found, and nothing else is; a
// job that computes a batch in parts says so, and one that divides it among any
// number of workers is refused.
// Method: small models in ONNX's text, said as a job's.

#include "common/model/mixed_samples.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/job_spec_validator.h"
#include "common/job/problem_deduplicator.h"
#include "common/model/job_check.h"
#include "common/model/training_graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/defs/parser.h"
#include "onnx/onnx_pb.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Said {
  std::vector<std::string> warnings;
  std::vector<std::string> problems;
};

Said SaidOf(const std::string& nodes, const std::string& edit) {
  const std::string text = absl::StrCat(
      R"(<ir_version: 8, opset_import: ["" : 17]>
         g (float[N,4] x) => (float[N,4] y)
         <float[4,4] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7},
          float[1,4,4] cell = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7},
          float[4] s = {1,1,1,1}, float[4] m = {0,0,0,0},
          float[4] v = {1,1,1,1},
          int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2},
          int64[2] lead = {0,1},
          int64 first = {0}, int64 second = {1},
          int64[3] steps = {1,-1,4}, int64[2] back = {-1,4}> { )",
      nodes, " }");
  onnx::ModelProto file;
  onnx::OnnxParser parser(text.c_str());
  const auto parsed = parser.Parse(file);
  EXPECT_TRUE(parsed.IsOK()) << parsed.ErrorMessage();
  const JobSpec spec = WithDefaults(JobFromText(kSmallJob, edit));
  Said said;
  ProblemDeduplicator deduplicator(spec);
  JobProblems problems;
  TrainingGraph graph;
  CheckModel(spec, file.SerializeAsString(), "m", &deduplicator, &graph,
             &problems);
  EXPECT_THAT(problems.of_model, IsEmpty()) << nodes;
  said.problems = problems.of_fields;
  said.warnings = graph.warnings;
  return said;
}

constexpr char kInParts[] = "training { micro_batches: 2 }";

TEST(MixedSamplesTest, ABatchInPartsIsSaid) {
  for (const char* nodes :
       {// A mean over the batch, with and without its dimension.
        "h = MatMul(x, w) c = ReduceMean<axes = [0]>(h) y = Sub(h, c)",
        "h = MatMul(x, w) c = ReduceMax<axes = [0], keepdims = 0>(h) "
        "y = Sub(h, c)",
        "h = MatMul(x, w) c = ReduceMean<keepdims = 0>(h) y = Sub(h, c)",
        // Products of samples with each other, and of features over samples.
        "h = MatMul(x, w) t = Transpose(h) p = MatMul(h, t) y = MatMul(p, h)",
        "h = MatMul(x, w) t = Transpose(h) p = MatMul(t, h) y = MatMul(h, p)",
        // Along the batch.
        "h = MatMul(x, w) y = Softmax<axis = 0>(h)",
        "h = MatMul(x, w) y = LogSoftmax<axis = -2>(h)",
        "h = MatMul(x, w) y = CumSum(h, first)",
        // One sample for all.
        "h = MatMul(x, w) c = Slice(h, zero, one, zero) y = Sub(h, c)",
        // A recurrent layer whose steps are samples.
        "q = Unsqueeze(x, one) r = RNN<hidden_size = 4>(q, cell, cell) "
        "y = Squeeze(r)",
        // Attention whose rows are samples, which is one operator here.
        "h = MatMul(x, w) q = Unsqueeze(h, lead) t = Transpose<perm = "
        "[0,1,3,2]>(q) p = MatMul(q, t) e = Softmax<axis = 3>(p) "
        "f = MatMul(e, q) y = Squeeze(f, lead)"}) {
    const Said of = SaidOf(nodes, kInParts);
    EXPECT_THAT(of.problems, IsEmpty()) << nodes;
    EXPECT_THAT(of.warnings,
                Contains(AllOf(HasSubstr("training.micro_batches: node "),
                               HasSubstr("combines the samples of a batch"))))
        << nodes;
    EXPECT_THAT(SaidOf(nodes, "").warnings,
                Not(Contains(HasSubstr("combines the samples"))))
        << nodes;
  }
}

TEST(MixedSamplesTest, NothingIsSaidOfSamplesByThemselves) {
  for (const char* nodes :
       {"h = MatMul(x, w) c = ReduceMean<axes = [1]>(h) y = Sub(h, c)",
        "h = MatMul(x, w) y = Softmax<axis = 1>(h)",
        "h = MatMul(x, w) y = CumSum(h, second)",
        "h = MatMul(x, w) c = Slice(h, zero, one, one) y = Sub(h, c)",
        "q = Unsqueeze(x, one) a = Reshape(q, steps) h = MatMul(a, w) "
        "y = Reshape(h, back)",
        // A sample's own positions.
        "q = Unsqueeze(x, two) t = Transpose<perm = [0,2,1]>(q) "
        "p = MatMul(q, t) e = Softmax<axis = 2>(p) f = MatMul(e, q) "
        "g = Squeeze(f, two) y = MatMul(g, w)",
        "q = Unsqueeze(x, zero) r = RNN<hidden_size = 4>(q, cell, cell) "
        "y = Squeeze(r, lead)"}) {
    const Said of = SaidOf(nodes, kInParts);
    EXPECT_THAT(of.warnings, Not(Contains(HasSubstr("combines the samples"))))
        << nodes;
  }
}

TEST(MixedSamplesTest, ABatchThatIsDividedIsRefused) {
  constexpr char kMean[] =
      "h = MatMul(x, w) c = ReduceMean<axes = [0]>(h) y = Sub(h, c)";
  constexpr char kGlobal[] = "training { global_batch: 8 }";
  EXPECT_THAT(
      SaidOf(kMean, kGlobal).problems,
      ElementsAre(AllOf(HasSubstr("training.global_batch: node "),
                        HasSubstr("ReduceMean"),
                        HasSubstr("follows from the number of workers"))));
  EXPECT_THAT(SaidOf("y = MatMul(x, w)", kGlobal).problems, IsEmpty());
}

TEST(MixedSamplesTest, EachPartIsNormalisedByItself) {
  constexpr char kNormalised[] =
      "h = MatMul(x, w) y = BatchNormalization(h, s, m, m, v)";
  EXPECT_THAT(SaidOf(kNormalised, kInParts).warnings,
              Contains(HasSubstr("BatchNormalization combines the samples")));
  EXPECT_THAT(
      SaidOf(kNormalised, absl::StrCat(kInParts,
                                       " training { sync_batch_statistics: "
                                       "true }"))
          .warnings,
      Not(Contains(HasSubstr("combines the samples"))));
}

}  // namespace
}  // namespace syncline

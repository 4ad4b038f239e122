#ifndef SYNCLINE_TESTS_TESTING_JOB_RESOLUTION_H_
#define SYNCLINE_TESTS_TESTING_JOB_RESOLUTION_H_

// A small job and its model, for tests of how one is laid over the other.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "common/job/job_spec_validator.h"
#include "common/model/training_graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline::testing {

// Merged into kSmallJob.
inline constexpr char kResolvedEdit[] = R"(
  model { initialize { pattern: "w*" scheme: HE_NORMAL } }
  training { batch_size: 8 }
)";

// w1 is declared, the others have values; i is not
// float; ratio is a setting; no node reads unused.
inline constexpr char kResolvedModel[] =
    R"(<ir_version: 8, opset_import: ["" : 13]>
g (float[N,4] x, float[4,3] w1) => (float[N,3] y)
<float[3] b = {1,2,3}, float[3,3] w2 = {1,2,3,4,5,6,7,8,9},
 int64[2] i = {0,3}, float ratio = {0.5}, float[2] unused = {1,2}>
{
  h1 = Gemm(x, w1, b)
  h2 = Dropout(h1, ratio)
  h3 = Reshape(h2, i)
  c = Constant <value_float = 2.0> ()
  h4 = Mul(h3, c)
  y = MatMul(h4, w2)
})";

struct Resolved {
  std::shared_ptr<const Model> model;
  TrainingGraph training;
  std::vector<std::string> problems;
};

// Lays a job over a model: kSmallJob with kResolvedEdit and `edit` merged into
// it, which must be valid, over a model that can be parsed.
inline Resolved Resolve(const std::string& edit,
                        const std::string& text = kResolvedModel) {
  JobSpec spec = JobFromText(kSmallJob, kResolvedEdit + edit);
  EXPECT_THAT(ValidateJobSpec(spec), ::testing::IsEmpty());
  spec = WithDefaults(spec);
  auto model = ParseJobModel(spec, text, "m");
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  Resolved result;
  result.model = *model;
  result.training = ResolveTrainingGraph(spec, **model, &result.problems);
  return result;
}

// kResolvedModel with one text for another, which must be there.
inline std::string ResolvedModelWith(absl::string_view from,
                                     absl::string_view to) {
  EXPECT_NE(absl::string_view(kResolvedModel).find(from),
            absl::string_view::npos);
  return absl::StrReplaceAll(kResolvedModel, {{from, to}});
}

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_JOB_RESOLUTION_H_

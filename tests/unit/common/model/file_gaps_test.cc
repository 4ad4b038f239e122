// Goal: what a file lacks of a PyTorch program is said, and nothing is said
// where nothing lacks. Method: small models, with PyTorch's notes of their
// nodes as bytes; the exact lines, or what must be in them.

#include "common/model/file_gaps.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/job_spec_validator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/defs/parser.h"
#include "onnx/onnx_pb.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Merged into kSmallJob.
constexpr char kEdit[] = R"(
  data { train { libsvm { dimension: 2 } } }
  training { batch_size: 8 }
)";

struct Note {
  std::string output;  // of the node that it is about
  std::string key;     // after "pkg.torch.onnx."
  std::string value;
};

struct Found {
  std::vector<std::string> warnings;
  std::vector<std::string> trained;
};

// `weight`: another name for 'w', which the text cannot have.
Found FoundIn(const std::string& text, const std::vector<Note>& notes,
              const std::string& edit = "", const std::string& weight = "") {
  onnx::ModelProto file;
  onnx::OnnxParser parser(text.c_str());
  const auto parsed = parser.Parse(file);
  EXPECT_TRUE(parsed.IsOK()) << parsed.ErrorMessage();
  for (const Note& note : notes) {
    for (onnx::NodeProto& node : *file.mutable_graph()->mutable_node()) {
      if (node.output(0) != note.output) continue;
      onnx::StringStringEntryProto entry;
      entry.set_key("pkg.torch.onnx." + note.key);
      entry.set_value(note.value);
      node.GetReflection()->MutableUnknownFields(&node)->AddLengthDelimited(
          9, entry.SerializeAsString());
    }
  }
  for (onnx::NodeProto& node : *file.mutable_graph()->mutable_node()) {
    if (node.output(0) == "none") node.set_output(0, "");  // left out
  }
  if (!weight.empty()) {
    file.mutable_graph()->mutable_initializer(0)->set_name(weight);
    file.mutable_graph()->mutable_node(0)->set_input(1, weight);
  }
  const JobSpec spec = WithDefaults(JobFromText(kSmallJob, kEdit + edit));
  const auto model = ParseJobModel(spec, file.SerializeAsString(), "m");
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  std::vector<std::string> problems;
  const TrainingGraph training = ResolveTrainingGraph(spec, **model, &problems);
  EXPECT_THAT(problems, IsEmpty());
  Found found;
  found.warnings = training.warnings;
  for (const auto& parameter : training.parameters) {
    found.trained.push_back(parameter.name);
  }
  return found;
}

constexpr char kEmbedding[] = R"(<ir_version: 8, opset_import: ["" : 15]>
g (int64[N,2] x) => (float[N,2] y)
<float[3,2] emb = {0.5,1,0,0,1,1}, int64[1] one = {1}>
{ rows = Gather(emb, x) y = ReduceSum<keepdims = 0>(rows, one) })";

TEST(FileGapsTest, ARowOfZerosIsSaid) {
  EXPECT_THAT(
      FoundIn(kEmbedding, {}).warnings,
      ElementsAre(
          "model: row 1 of 'emb' is all zeros, as padding_idx leaves it, but "
          "an ONNX file has no padding_idx: the row is trained like others. "
          "Where it must stay, multiply the rows by (ids != 1) in the model"));
  // An initializer that a rule fills has no such row.
  EXPECT_THAT(FoundIn(kEmbedding, {},
                      R"(model { initialize { pattern: "emb"
                                             scheme: XAVIER_UNIFORM } })")
                  .warnings,
              IsEmpty());
}

TEST(FileGapsTest, PaddingIdxOfTheProgramIsSaid) {
  const std::string call =
      "%e : [num_users=1] = call_function[target=torch.ops.aten.embedding."
      "default](args = (%p_emb, %x, 2, True), kwargs = {})";
  EXPECT_THAT(
      FoundIn(kEmbedding, {{"rows", "fx_node", call}}).warnings,
      ElementsAre(HasSubstr("row 2 of 'emb' is padding_idx of the program's"),
                  HasSubstr("scale_grad_by_freq")));
}

constexpr char kLayers[] = R"(<ir_version: 8, opset_import: ["" : 15]>
g (float[N,2] x) => (float[N,2] y)
<float[2,2] a = {1,2,3,4}, float[2,2] b = {1,2,3,4}>
{ h = MatMul(x, a) d = Identity(h) y = MatMul(d, b) })";

TEST(FileGapsTest, WeightsInConstantNodesAreSaid) {
  const Found found = FoundIn(R"(<ir_version: 8, opset_import: ["" : 15]>
g (float[N,2] x) => (float[N,2] y)
<float[2] b = {1,2}>
{
  w = Constant<value = float[2,2] {1,2,3,4}>()
  half = Constant<value = float[1,1] {0.5}>()
  h = MatMul(x, w)
  t = Mul(h, half)
  y = Add(t, b)
})",
                              {});
  EXPECT_THAT(found.trained, ElementsAre("b"));
  EXPECT_THAT(
      found.warnings,
      ElementsAre(AllOf(HasSubstr("not trained: 1 weight is in Constant "
                                  "nodes ('w')"),
                        HasSubstr("store it as initializers"))));
}

// The first output of `_, (h, c) = lstm(x)` has no name.
TEST(FileGapsTest, ConstantWeightsOfALayerWhoseStepsNobodyReadsAreSaid) {
  const Found found = FoundIn(R"(<ir_version: 8, opset_import: ["" : 15]>
g (float[N,2,1] x) => (float[N,2] y)
<float[1,1,1] r = {1}, int64[1] zero = {0}, float[1,2] v = {1,2}>
{
  w = Constant<value = float[1,1,1] {2}>()
  t = Transpose<perm = [1,0,2]>(x)
  none, h = RNN<hidden_size = 1>(t, w, r)
  s = Squeeze(h, zero)
  y = MatMul(s, v)
})",
                              {});
  EXPECT_THAT(found.warnings,
              ElementsAre(HasSubstr("1 weight is in Constant nodes ('w')")));
}

TEST(FileGapsTest, NothingIsTrainedThroughDetach) {
  EXPECT_THAT(FoundIn(kLayers, {}).trained, ElementsAre("a", "b"));
  const Found found = FoundIn(
      kLayers, {{"d", "fx_node", "[target=torch.ops.aten.detach.default]"}});
  EXPECT_THAT(found.trained, ElementsAre("b"));
  EXPECT_THAT(found.warnings, IsEmpty());
}

TEST(FileGapsTest, ABlockThatMayBeUnderNoGradIsSaid) {
  const std::vector<Note> notes = {
      {"h", "stack_trace", "File \"/home/me/m.py\", line 7, in forward"},
      {"d", "stack_trace", "File \"<eval_with_key>.4\", line 5, in forward"}};
  EXPECT_THAT(FoundIn(kLayers, notes).warnings,
              ElementsAre(AllOf(HasSubstr("'d' after m.py, line 7"),
                                HasSubstr("torch.no_grad()"))));
  // Nothing is trained before it.
  EXPECT_THAT(FoundIn(kLayers, notes, R"(model { freeze: "a" })").warnings,
              IsEmpty());
}

constexpr char kNorm[] = R"(<ir_version: 8, opset_import: ["" : 15]>
g (float[N,2] x) => (float[N,2] y)
<float[2] s = {1,1}, float[2] m = {0,0}, float[2] v = {1,2}>
{ y = BatchNormalization(x, s, s, m, v) })";

TEST(FileGapsTest, InferenceModeThatTrainsByBatchesIsSaid) {
  const Found found = FoundIn(kNorm, {});
  ASSERT_FALSE(found.warnings.empty());
  EXPECT_THAT(found.warnings.back(),
              AllOf(HasSubstr("is in inference mode"), HasSubstr("'m'"),
                    HasSubstr("model.freeze")));
  EXPECT_THAT(
      FoundIn(kNorm, {}, R"(model { freeze: "m" freeze: "v" })").warnings,
      ::testing::Not(::testing::Contains(HasSubstr("inference mode"))));
}

// Older files have no training_mode: one output is inference.
TEST(FileGapsTest, InferenceModeOfOlderFilesIsSaidToo) {
  const auto found = [](const std::string& outputs) {
    return FoundIn(
               absl::StrCat(R"(<ir_version: 8, opset_import: ["" : 13]>
        g (float[N,2] x) => (float[N,2] y)
        <float[2] s = {1,1}, float[2] m = {0,0}, float[2] v = {1,2}>
        { y)",
                            outputs, " = BatchNormalization(x, s, s, m, v) }"),
               {})
        .warnings;
  };
  EXPECT_THAT(found(""),
              ElementsAre(AllOf(HasSubstr("is in inference mode"),
                                HasSubstr("'m'"), HasSubstr("model.freeze"))));
  EXPECT_THAT(found(", rm, rv, sm, sv"), IsEmpty());
}

// A folded weight_norm, or a weight that is only transposed: both look so.
TEST(FileGapsTest, WeightsUnderTheExportersNamesAreTold) {
  const auto found = [](const std::string& name) {
    return FoundIn(R"(<ir_version: 8, opset_import: ["" : 13]>
        g (float[N,2] x) => (float[N,2] y)
        <float[2,2] w = {1,2,3,4}> { y = MatMul(x, w) })",
                   {}, /*edit=*/"", name)
        .warnings;
  };
  EXPECT_THAT(
      found("onnx::MatMul_12"),
      ElementsAre(AllOf(HasSubstr("has stored 1 weight under names of its own "
                                  "('onnx::MatMul_12')"),
                        HasSubstr("weight_norm"),
                        HasSubstr("TrainingMode.TRAINING"))));
  EXPECT_THAT(found("fc.weight"), IsEmpty());
}

// A dimension of 5 times `scale`, in a file of `producer`.
std::vector<std::string> WarningsOfCorners(const std::string& scale,
                                           const std::string& producer,
                                           const std::string& coordinates) {
  const std::string text = absl::StrCat(
      R"(<ir_version: 8, opset_import: ["" : 15], producer_name: ")", producer,
      R"(">
g (float[N,2] x) => (float[N,2] y)
<float[2,5] w = {1,2,3,4,5,6,7,8,9,10}, float[2] s = {1,)",
      scale, R"(}>
{ m = MatMul(x, w)
  r = Resize<coordinate_transformation_mode = ")",
      coordinates, R"(", mode = "linear">(m, , s)
  a = ReduceMean<axes = [1], keepdims = 1>(r)
  y = Concat<axis = 1>(a, a) })");
  return FoundIn(text, {}).warnings;
}

// ONNX Runtime takes the whole size there, as PyTorch does.
TEST(FileGapsTest, CornersThatOnnxRuntimePutsElsewhereAreSaid) {
  const auto is_said = ::testing::Contains(
      AllOf(HasSubstr("dimension 1 by 0.7, from 5 to 3"),
            HasSubstr("ONNX Runtime"), HasSubstr("sizes in place of scales")));
  EXPECT_THAT(WarningsOfCorners("0.7", "tf2onnx", "align_corners"), is_said);
  EXPECT_THAT(WarningsOfCorners("0.7", "pytorch", "align_corners"),
              ::testing::Not(is_said));
  EXPECT_THAT(WarningsOfCorners("0.7", "tf2onnx", "half_pixel"),
              ::testing::Not(is_said));
  for (const char* const whole : {"0.6", "2", "1.4"}) {
    EXPECT_THAT(WarningsOfCorners(whole, "tf2onnx", "align_corners"),
                ::testing::Not(::testing::Contains(HasSubstr("ONNX Runtime"))))
        << whole;
  }
}

}  // namespace
}  // namespace syncline

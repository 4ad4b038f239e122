// Goal: the job, the file and the graph together decide what a weight is, in
// the documented order. Method: a model with each kind of initializer, edits to
// the job, and the reason for each.

#include "common/model/weight_patterns.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "common/model/training_graph.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "onnx/defs/parser.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using R = WeightReason;

constexpr char kModel[] = R"(<ir_version: 8, opset_import: ["" : 13]>
g (float[N,4] x, float[4,3] w1) => (float[N,3] y)
<float[3] b = {1,2,3}, float half = {0.5}, float[3] gain = {1,2,3},
 int64[2] shape = {-1,3}>
{
  h1 = Gemm(x, w1, b)
  h2 = Mul(h1, half)
  h3 = Mul(h2, gain)
  y = Reshape(h3, shape)
})";

struct Planned {
  std::map<std::string, WeightReason> reasons;  // of float32 ones
  std::vector<std::string> problems;
};

// The same with what PyTorch's exporter writes of initializers.
std::string WithKinds(const std::map<std::string, std::string>& kinds) {
  onnx::ModelProto file;
  EXPECT_TRUE(onnx::OnnxParser(kModel).Parse(file).IsOK());
  for (const auto& [name, kind] : kinds) {
    onnx::StringStringEntryProto entry;
    entry.set_key("pkg.torch.export.graph_signature.InputSpec.kind");
    entry.set_value(kind);
    onnx::ValueInfoProto* info = file.mutable_graph()->add_value_info();
    info->set_name(name);
    info->GetReflection()->MutableUnknownFields(info)->AddLengthDelimited(
        4, entry.SerializeAsString());
  }
  return file.SerializeAsString();
}

Planned Plan(const std::string& edit, const std::string& bytes = kModel) {
  JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("model { initialize { pattern: 'w*' scheme: ZEROS } ", edit,
                   "}"),
      &spec))
      << edit;
  const auto model = ParseJobModel(spec, bytes, "m");
  EXPECT_TRUE(model.ok()) << model.status();
  Planned planned;
  const auto plans = PlanWeights(spec, **model, &planned.problems);
  for (size_t i = 0; i < plans.size(); ++i) {
    const auto& graph = (*model)->graph();
    if (!plans[i].is_float) continue;
    EXPECT_EQ(plans[i].fillable, IsTrained(plans[i].reason));
    planned.reasons[graph.values[graph.initializers[i].value].name] =
        plans[i].reason;
  }
  return planned;
}

TEST(WeightPatternsTest, UsesDecideWhereNothingIsSaid) {
  const Planned planned = Plan("");
  EXPECT_THAT(planned.problems, IsEmpty());
  EXPECT_THAT(planned.reasons,
              UnorderedElementsAre(
                  Pair("w1", R::kDeclared), Pair("b", R::kLayer),
                  Pair("half", R::kSingleNumber), Pair("gain", R::kAssumed)));
}

TEST(WeightPatternsTest, TheJobDecidesFirst) {
  const Planned planned = Plan("train: 'ha*' freeze: 'gain'");
  EXPECT_THAT(planned.problems, IsEmpty());
  EXPECT_EQ(planned.reasons.at("half"), R::kJobTrains);
  EXPECT_EQ(planned.reasons.at("gain"), R::kFrozen);
}

TEST(WeightPatternsTest, ARuleMakesAWeightUnlessItIsForAll) {
  EXPECT_EQ(
      Plan("initialize { pattern: 'half' scheme: ZEROS }").reasons.at("half"),
      R::kJobFills);
  EXPECT_EQ(
      Plan("initialize { pattern: 'h*' scheme: ZEROS }").reasons.at("half"),
      R::kJobFills);
  EXPECT_EQ(
      Plan("initialize { pattern: '*' scheme: ZEROS }").reasons.at("half"),
      R::kSingleNumber);
  EXPECT_EQ(
      Plan("initialize { pattern: '*?' scheme: ZEROS }").reasons.at("half"),
      R::kSingleNumber);
}

TEST(WeightPatternsTest, TheFileIsTakenAtItsWord) {
  const std::string file =
      WithKinds({{"half", "PARAMETER"}, {"gain", "BUFFER"}});
  // A file that speaks says something by being silent, too.
  EXPECT_THAT(Plan("", file).reasons,
              UnorderedElementsAre(
                  Pair("w1", R::kDeclared), Pair("b", R::kUnnamed),
                  Pair("half", R::kFileSays), Pair("gain", R::kBuffer)));
  // The job knows better; a rule that names one does not say so.
  EXPECT_THAT(Plan("train: 'gain' freeze: 'half'", file).reasons,
              UnorderedElementsAre(
                  Pair("w1", R::kDeclared), Pair("b", R::kUnnamed),
                  Pair("half", R::kFrozen), Pair("gain", R::kJobTrains)));
  EXPECT_THAT(
      Plan("initialize { pattern: 'gain' scheme: ZEROS }", file).problems,
      ElementsAre("model.initialize[1].pattern: 'gain' matches 'gain', which "
                  "is not trained (the file calls them BUFFER); if it is a "
                  "weight, name it in model.train"));
  // Weights that were merged or folded have lost their names.
  EXPECT_THAT(Plan("accept_merged: true", file).reasons,
              UnorderedElementsAre(
                  Pair("w1", R::kDeclared), Pair("b", R::kLayer),
                  Pair("half", R::kFileSays), Pair("gain", R::kBuffer)));
  // Kinds without a parameter among them say nothing of the others.
  EXPECT_EQ(Plan("", WithKinds({{"gain", "CONSTANT_TENSOR"}})).reasons.at("b"),
            R::kLayer);
}

TEST(WeightPatternsTest, PatternsThatSayNothingOrTooMuch) {
  EXPECT_THAT(Plan("train: 'gian'").problems,
              ElementsAre("model.train[0]: 'gian' matches no float32 "
                          "initializer; near it: 'gain' ('b', 'half', 'gain', "
                          "'w1')"));
  EXPECT_THAT(Plan("train: 'shape'").problems,
              ElementsAre("model.train[0]: 'shape' matches no float32 "
                          "initializer ('b', 'half', 'gain', 'w1')"));
  EXPECT_THAT(Plan("train: 'g*' freeze: '?ain'").problems,
              ElementsAre("model.train[0]: 'g*' matches 'gain', which "
                          "model.freeze[0] matches too; it is one or the "
                          "other"));
  EXPECT_THAT(
      Plan("initialize { pattern: 'hal*' scheme: ZEROS } freeze: 'half'")
          .problems,
      ElementsAre("model.initialize[1].pattern: 'hal*' matches 'half', which "
                  "is not trained (named by model.freeze)"));
}

}  // namespace
}  // namespace syncline

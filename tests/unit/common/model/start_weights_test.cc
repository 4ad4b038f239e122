// Goal: each parameter gets the tensor of its name, and whatever does not fit
// is said, all of it at once.
// Method: plans and lists of tensors by hand; for what a model holds fixed, a
// small model and a file.

#include "common/model/start_weights.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "common/job/job_spec_validator.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

struct Outcome {
  WeightSources sources;
  std::vector<std::string> problems;
};

FileTensor Tensor(const std::string& name, Dims dims,
                  const std::string& dtype = "F32") {
  FileTensor tensor;
  tensor.name = name;
  tensor.dtype = dtype;
  tensor.dims = std::move(dims);
  tensor.is_float = dtype == "F32" || dtype == "F16" || dtype == "BF16";
  return tensor;
}

TrainingGraph GraphOf(
    const std::vector<std::pair<std::string, Dims>>& parameters) {
  TrainingGraph graph;
  for (const auto& [name, dims] : parameters) {
    TrainingGraph::Parameter& parameter = graph.parameters.emplace_back();
    parameter.name = name;
    parameter.dims = dims;
  }
  return graph;
}

Outcome Match(const TrainingGraph& graph,
              const std::vector<FileTensor>& tensors,
              const std::string& start = "") {
  JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "start { weights: 'f' " + start + " }", &spec));
  Outcome outcome;
  outcome.sources = MatchWeights(spec, graph, tensors, &outcome.problems);
  return outcome;
}

const TrainingGraph& TwoLayers() {
  static const TrainingGraph* const graph =
      new TrainingGraph(GraphOf({{"fc.weight", {3, 2}}, {"fc.bias", {3}}}));
  return *graph;
}

TEST(StartWeightsTest, NamesOfAStateDictServe) {
  const Outcome outcome =
      Match(TwoLayers(),
            {Tensor("fc.bias", {3}), Tensor("fc.weight", {3, 2}, "BF16")});
  EXPECT_THAT(outcome.problems, IsEmpty());
  EXPECT_THAT(outcome.sources.parameters, ElementsAre(1, 0));
  EXPECT_THAT(outcome.sources.warnings, IsEmpty());
}

TEST(StartWeightsTest, RulesRenameAndLeaveOut) {
  const Outcome outcome = Match(
      TwoLayers(),
      {Tensor("old.weight", {3, 2}), Tensor("old.bias", {3}),
       Tensor("head", {9})},
      "names { pattern: 'old.*' name: 'fc.*' } names { pattern: 'head' }");
  EXPECT_THAT(outcome.problems, IsEmpty());
  EXPECT_THAT(outcome.sources.parameters, ElementsAre(0, 1));
  EXPECT_THAT(outcome.sources.warnings, IsEmpty());
}

// On the scheduler's only thread for jobs that come.
TEST(StartWeightsTest, WhatWouldTakeHoursToMatchIsRefused) {
  std::string rules;
  for (int i = 0; i < 1000; ++i) {
    rules += " names { pattern: '" + std::string(1000, '*') + "' }";
  }
  const std::vector<FileTensor> tensors(20, Tensor(std::string(1000, 'a'), {}));
  const Outcome outcome = Match(TwoLayers(), tensors, rules);
  EXPECT_THAT(outcome.problems,
              ElementsAre(StartsWith("start.names: too many patterns for the "
                                     "20 tensors of the file")));
  EXPECT_THAT(outcome.sources.parameters, IsEmpty());
}

TEST(StartWeightsTest, TwoTensorsOfOneNameAreRefused) {
  EXPECT_THAT(
      Match(TwoLayers(),
            {Tensor("a.weight", {3, 2}), Tensor("b.weight", {3, 2}),
             Tensor("fc.bias", {3})},
            "names { pattern: '?.weight' name: 'fc.weight' }")
          .problems,
      ElementsAre("start.weights: tensors 'a.weight' and 'b.weight' of the "
                  "file are both 'fc.weight' by start.names"));
}

TEST(StartWeightsTest, EachShapeThatDiffersIsNamedWithBoth) {
  EXPECT_THAT(
      Match(TwoLayers(), {Tensor("fc.weight", {2, 3}), Tensor("fc.bias", {4})})
          .problems,
      ElementsAre(
          AllOf(StartsWith("start.weights: 'fc.weight' is [2,3] in the file "
                           "and [3,2] in the model: it seems to be transposed"),
                HasSubstr("tensor.t().contiguous()")),
          "start.weights: 'fc.bias' is [4] in the file and [3] in the model"));
}

TEST(StartWeightsTest, ASquareThatTheExporterTransposesIsRefused) {
  const TrainingGraph graph = GraphOf({{"onnx::MatMul_12", {3, 3}}});
  EXPECT_THAT(Match(graph, {Tensor("fc.weight", {3, 3})},
                    "names { pattern: 'fc.weight' name: 'onnx::MatMul_12' }")
                  .problems,
              ElementsAre(HasSubstr("a square, is transposed in the model")));
  EXPECT_THAT(Match(graph, {Tensor("onnx::MatMul_12", {3, 3})}).problems,
              IsEmpty());
}

TEST(StartWeightsTest, OtherTypesThanFloatsAreNamed) {
  EXPECT_THAT(Match(TwoLayers(), {Tensor("fc.weight", {3, 2}, "F64"),
                                  Tensor("fc.bias", {3})})
                  .problems,
              ElementsAre(HasSubstr("'fc.weight' is F64 in the file; F32, F16 "
                                    "and BF16 are read")));
}

TEST(StartWeightsTest, WhatTheFileLacksIsRefusedOrSaid) {
  const std::vector<FileTensor> tensors = {Tensor("fc.weight", {3, 2})};
  EXPECT_THAT(Match(TwoLayers(), tensors).problems,
              ElementsAre(HasSubstr("the file lacks 1 of the model's "
                                    "parameters: 'fc.bias'")));
  const Outcome allowed = Match(TwoLayers(), tensors, "allow_missing: true");
  EXPECT_THAT(allowed.problems, IsEmpty());
  EXPECT_THAT(allowed.sources.parameters, ElementsAre(0, -1));
  EXPECT_THAT(
      allowed.sources.warnings,
      ElementsAre(HasSubstr("the file lacks 'fc.bias', which keep their "
                            "initial values")));
}

TEST(StartWeightsTest, AFileOfNothingIsRefusedWhateverIsAllowed) {
  EXPECT_THAT(Match(TwoLayers(), {Tensor("other", {1})}, "allow_missing: true")
                  .problems,
              ElementsAre(HasSubstr("none of its 1 tensors is one of the "
                                    "model: 'other'")));
}

TEST(StartWeightsTest, UnusedTensorsAreNamedButForCountsOfBatches) {
  const Outcome outcome =
      Match(TwoLayers(),
            {Tensor("fc.weight", {3, 2}), Tensor("fc.bias", {3}),
             Tensor("bn.num_batches_tracked", {}, "I64"), Tensor("ema", {1})});
  EXPECT_THAT(outcome.problems, IsEmpty());
  EXPECT_THAT(outcome.sources.warnings,
              ElementsAre(HasSubstr("the model has no 'ema', of the file")));
}

TEST(StartWeightsTest, TablesDoNotComeFromAFile) {
  TrainingGraph graph = TwoLayers();
  graph.tables.emplace_back().name = "emb";
  std::vector<FileTensor> tensors = {Tensor("fc.weight", {3, 2}),
                                     Tensor("fc.bias", {3}),
                                     Tensor("emb", {10, 4})};
  EXPECT_THAT(Match(graph, tensors).problems,
              ElementsAre(HasSubstr("'emb' is a table: its rows do not come")));
  tensors.pop_back();
  EXPECT_THAT(Match(graph, tensors).problems,
              ElementsAre(HasSubstr("the file lacks 1 of the model's "
                                    "parameters: 'emb'")));
}

// Parameters that model.freeze names keep the values of the model file.
TEST(StartWeightsTest, FixedValuesMustBeThoseOfTheModelFile) {
  constexpr char kModel[] = R"(
      <ir_version: 8, opset_import: ["": 17]>
      g (float[N, 2] x, float[2, 1] w) => (float[N, 1] y)
      <float[1] b = {0.5}> {
        h = MatMul(x, w)
        y = Add(h, b)
      })";
  JobSpec spec;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "model { initialize { pattern: 'w' scheme: ZEROS } freeze: 'b' } "
      "data { feeds { input: 'x' } } start { weights: 'f' } "
      "loss { kind: MEAN_SQUARED_ERROR output: 'y' }",
      &spec));
  std::vector<std::string> problems;
  ASSERT_OK_AND_ASSIGN(const auto model, ParseJobModel(spec, kModel, "m"));
  const TrainingGraph graph =
      ResolveTrainingGraph(WithDefaults(spec), *model, &problems);
  ASSERT_EQ(graph.fixed.size(), 1u);
  const TempDir dir;
  const std::string path = dir.path() + "/f";
  // 0.5 and 1 in bfloat16.
  for (const bool same : {true, false}) {
    const std::string json =
        "{\"b\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2]},"
        "\"w\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[2,6]}}";
    std::string file(8, '\0');
    file[0] = static_cast<char>(json.size());
    const std::string bytes =
        same ? std::string("\x00\x3f", 2) : std::string("\x80\x3f", 2);
    ASSERT_LT(json.size(), 256u);
    ASSERT_OK(
        WriteFileAtomically(path, file + json + bytes + std::string(4, '\0')));
    problems.clear();
    CheckStartWeights(spec, *model, graph, path, "f", &problems);
    if (same) {
      EXPECT_THAT(problems, IsEmpty());
    } else {
      EXPECT_THAT(problems,
                  ElementsAre(AllOf(HasSubstr("'b' is not trained"),
                                    HasSubstr("names { pattern: \"b\" }"))));
    }
  }
}

// --- A file and a model ------------------------------------------------------

// Two squares: the first one as [in, out], the second one as [out, in].
constexpr char kSquares[] = R"(
    <ir_version: 8, opset_import: ["": 17]>
    g (float[N, 2] x, float[2, 2] $0, float[2, 2] out_weight)
      => (float[N, 2] y) {
      h = MatMul(x, $0)
      y = Gemm<transB = 1>(h, out_weight)
    })";

struct CheckedWeights {
  TrainingGraph graph;
  WeightSources sources;
  std::vector<std::string> problems;
};

// Checks a file of two squares, F32, for the model whose first one is `square`.
CheckedWeights CheckSquares(const std::string& square,
                            const std::string& in_file,
                            const std::string& names = "",
                            const std::string& writer = "someone") {
  JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "model { initialize { pattern: '*' scheme: ZEROS } } "
      "data { feeds { input: 'x' } } start { weights: 'f' " +
          names +
          " } "
          "loss { kind: MEAN_SQUARED_ERROR output: 'y' }",
      &spec));
  CheckedWeights checked;
  const auto model =
      ParseJobModel(spec, absl::Substitute(kSquares, square), "m");
  EXPECT_OK(model.status());
  if (!model.ok()) return checked;
  checked.graph =
      ResolveTrainingGraph(WithDefaults(spec), **model, &checked.problems);
  const TempDir dir;
  const std::string path = dir.path() + "/f";
  const std::string json = absl::Substitute(
      R"({"__metadata__":{"writer":"$1"},)"
      R"("$0":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("out_weight":{"dtype":"F32","shape":[2,2],"data_offsets":[16,32]}})",
      in_file, writer);
  std::string file(8, '\0');
  file[0] = static_cast<char>(json.size());
  EXPECT_LT(json.size(), 256u);
  EXPECT_OK(WriteFileAtomically(path, file + json + std::string(32, '\0')));
  checked.sources = CheckStartWeights(spec, **model, checked.graph, path, "f",
                                      &checked.problems);
  return checked;
}

// Whether the file's square is the model's or its transpose no shape tells.
TEST(StartWeightsTest, ASquareThatMayBeTransposedIsWarnedOf) {
  const CheckedWeights checked = CheckSquares("in_weight", "in_weight");
  EXPECT_THAT(checked.problems, IsEmpty());
  EXPECT_THAT(checked.sources.parameters, ElementsAre(0, 1));
  EXPECT_THAT(
      checked.sources.warnings,
      ElementsAre(AllOf(HasSubstr("multiplies by the square 'in_weight' from"),
                        HasSubstr("PyTorch has the weight of a Linear layer "
                                  "as [out,in]"),
                        HasSubstr("tensor.t().contiguous()"))));
}

// Values lie in it as models have them.
TEST(StartWeightsTest, ASquareThatSynclineHasWrittenIsNotWarnedOf) {
  const CheckedWeights checked =
      CheckSquares("in_weight", "in_weight", "", kSafetensorsWriterIsSyncline);
  EXPECT_THAT(checked.problems, IsEmpty());
  EXPECT_THAT(checked.sources.parameters, ElementsAre(0, 1));
  EXPECT_THAT(checked.sources.warnings, IsEmpty());
}

// No exporter keeps such a name for what it has transposed, and a parameter of
// a module's own is used as it is.
TEST(StartWeightsTest, ASquareThatIsNoLinearsIsNotWarnedOf) {
  EXPECT_THAT(CheckSquares("mix", "mix").sources.warnings, IsEmpty());
}

TEST(StartWeightsTest, AWeightIsNotRenamedToAnExportersSquare) {
  for (const char* exported : {"onnx__MatMul_12", "val_3"}) {
    const CheckedWeights checked = CheckSquares(
        exported, "in_weight",
        absl::StrCat("names { pattern: 'in_weight' name: '", exported, "' }"));
    EXPECT_THAT(checked.problems,
                ElementsAre(AllOf(
                    HasSubstr(absl::StrCat("'", exported, "', a square, is")),
                    HasSubstr("write it transposed and under the model's "
                              "name"))));
    // As that message says.
    EXPECT_THAT(CheckSquares(exported, exported).problems, IsEmpty());
  }
}

TEST(StartWeightsTest, WhatTheFileGivesIsNotCalledWithoutValues) {
  CheckedWeights checked = CheckSquares("mix", "other", "allow_missing: true");
  ASSERT_THAT(checked.problems, IsEmpty());
  MarkStarted(checked.sources, &checked.graph);
  ASSERT_EQ(checked.graph.parameters.size(), 2u);
  EXPECT_EQ(checked.graph.parameters[0].reason, WeightReason::kDeclared);
  EXPECT_EQ(checked.graph.parameters[1].reason, WeightReason::kStarted);
}

TEST(StartWeightsTest, AFileIsNamedOnceAsItsUserKnowsIt) {
  JobSpec spec;
  spec.mutable_start()->set_weights("f");
  ASSERT_OK_AND_ASSIGN(
      const auto model,
      ParseJobModel(JobSpec(), absl::Substitute(kSquares, "w"), "m"));
  const TempDir dir;
  const std::string path = dir.Write("store", "PK\x03\x04 and more");
  for (const std::string& label : {std::string("nets/f.pt"), path}) {
    std::vector<std::string> problems;
    const WeightSources sources = CheckStartWeights(
        spec, *model, TrainingGraph(), path, label, &problems);
    EXPECT_THAT(sources.parameters, IsEmpty());
    EXPECT_THAT(problems,
                ElementsAre(StartsWith(absl::StrCat(
                    "start.weights: ", label, ": not a safetensors file"))));
  }
}

}  // namespace
}  // namespace syncline

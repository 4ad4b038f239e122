// Goal: a job's names are laid over its model as documented, and everything
// that does not fit is reported at once with its field path. Method: one model
// and job, a table of edits to each and the exact reports.

#include "common/model/training_graph.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/rpc/job_spec_validator.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::google::protobuf::TextFormat;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kJob[] = R"(
  name: "a"
  model { path: "m" initialize { pattern: "w*" scheme: HE_NORMAL } }
  data {
    train { libsvm { path: "t" dimension: 4 } }
    feeds { input: "x" field: "features" }
  }
  loss { kind: SOFTMAX_CROSS_ENTROPY }
  optimizer { kind: SGD }
  learning_rate { base: 0.1 }
  training { batch_size: 8 }
)";

// w1 is declared, the others have values; e is frozen in some tests; i is not
// float; ratio is a setting; unused is used by nobody.
constexpr char kModel[] = R"(<ir_version: 8, opset_import: ["" : 13]>
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

Resolved Resolve(const std::string& edit, const std::string& text = kModel) {
  JobSpec spec;
  EXPECT_TRUE(TextFormat::ParseFromString(kJob, &spec));
  EXPECT_TRUE(TextFormat::MergeFromString(edit, &spec)) << edit;
  EXPECT_THAT(ValidateJobSpec(spec), IsEmpty());
  spec = WithDefaults(spec);
  auto model = ParseJobModel(spec, text, "m");
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  Resolved result;
  result.model = *model;
  result.training = ResolveTrainingGraph(spec, **model, &result.problems);
  return result;
}

std::string Replaced(absl::string_view from, absl::string_view to) {
  EXPECT_NE(absl::string_view(kModel).find(from), absl::string_view::npos);
  return absl::StrReplaceAll(kModel, {{from, to}});
}

std::vector<std::string> Names(const TrainingGraph& training) {
  std::vector<std::string> names;
  for (const auto& parameter : training.parameters) {
    names.push_back(absl::StrCat(parameter.name, ":", parameter.rule));
  }
  return names;
}

TEST(TrainingGraphTest, EverythingIsResolved) {
  const Resolved resolved = Resolve("");
  EXPECT_THAT(resolved.problems, IsEmpty());
  const Graph& graph = resolved.model->graph();
  // Settings, integers, constants and what nobody uses are no parameters; the
  // file's initializers come first.
  EXPECT_THAT(Names(resolved.training), ElementsAre("b:-1", "w2:0", "w1:0"));
  const TrainingGraph::Parameter& w1 = resolved.training.parameters[2];
  EXPECT_EQ(w1.value, graph.FindValue("w1"));
  EXPECT_EQ(w1.dims, (Dims{4, 3}));
  EXPECT_EQ(graph.initializers[w1.initializer].value, w1.value);
  EXPECT_THAT(resolved.training.feeds, ElementsAre(graph.FindValue("x")));
  EXPECT_EQ(resolved.training.loss_output, graph.FindValue("y"));
}

TEST(TrainingGraphTest, FrozenInitializersKeepTheirValues) {
  const Resolved resolved = Resolve("model { freeze: 'w2' freeze: 'i' }");
  EXPECT_THAT(resolved.problems, IsEmpty());
  EXPECT_THAT(Names(resolved.training), ElementsAre("b:-1", "w1:0"));
}

TEST(TrainingGraphTest, TheFirstMatchingRuleWins) {
  const Resolved resolved = Resolve(
      "model { initialize { pattern: 'b' scheme: ZEROS } "
      "initialize { pattern: '*' scheme: ZEROS } }");
  EXPECT_THAT(Names(resolved.training), ElementsAre("b:1", "w2:0", "w1:0"));
}

// Two batch normalisations: the first has statistics in the file, the second
// declared ones.
constexpr char kNormalised[] = R"(<ir_version: 8, opset_import: ["" : 14]>
g (float[N,4] x, float[3] m2, float[3] v2) => (float[N,3] y)
<float[4,3] w2 = {1,2,3,4,5,6,7,8,9,10,11,12}, float[4] s = {1,1,1,1},
 float[4] b = {0,0,0,0}, float[4] m1 = {0,0,0,0}, float[4] v1 = {1,1,1,1},
 float[3] s2 = {1,1,1}>
{
  h1, mean, variance = BatchNormalization <training_mode = 1,
      momentum = 0.75> (x, s, b, m1, v1)
  h2 = MatMul(h1, w2)
  y = BatchNormalization(h2, s2, s2, m2, v2)
})";
constexpr char kStatisticRules[] =
    "model { initialize { pattern: 'm2' scheme: ZEROS } "
    "initialize { pattern: 'v2' scheme: CONSTANT value: 1 } }";

std::string WithStatisticRules(absl::string_view edit) {
  return absl::StrCat(kStatisticRules, edit);
}

TEST(TrainingGraphTest, RunningStatisticsAreKeptWithTheirMomentum) {
  const Resolved resolved = Resolve(kStatisticRules, kNormalised);
  EXPECT_THAT(resolved.problems, IsEmpty());
  EXPECT_THAT(Names(resolved.training),
              ElementsAre("w2:0", "s:-1", "b:-1", "m1:-1", "v1:-1", "s2:-1",
                          "m2:1", "v2:2"));
  std::vector<std::optional<float>> momenta;
  for (const auto& parameter : resolved.training.parameters) {
    momenta.push_back(parameter.momentum);
  }
  const std::optional<float> none;
  EXPECT_THAT(momenta,
              ElementsAre(none, none, none, 0.75f, 0.75f, none, 0.9f, 0.9f));
}

TEST(TrainingGraphTest, FrozenStatisticsAreNoParameters) {
  const Resolved resolved =
      Resolve(WithStatisticRules("model { freeze: '?1' }"), kNormalised);
  EXPECT_THAT(resolved.problems, IsEmpty());
  EXPECT_THAT(Names(resolved.training),
              ElementsAre("w2:0", "s:-1", "b:-1", "s2:-1", "m2:1", "v2:2"));
}

TEST(TrainingGraphTest, StatisticsAreFoldedOnlyWhereThereAreSome) {
  constexpr char kFold[] = "training { sync_batch_statistics: true }";
  EXPECT_THAT(Resolve(WithStatisticRules(kFold), kNormalised).problems,
              IsEmpty());
  EXPECT_THAT(
      Resolve(
          absl::StrCat(kFold, "model { freeze: '?1' freeze: '?2' }",
                       "model { initialize { pattern: 'm2' scheme: ZEROS } "
                       "initialize { pattern: 'v2' scheme: ZEROS } }"),
          absl::StrReplaceAll(
              kNormalised, {{", float[3] m2, float[3] v2", ""},
                            {"<float[4,3]",
                             "<float[3] m2 = {0,0,0}, float[3] v2 = {1,1,1}, "
                             "float[4,3]"}}))
          .problems,
      Contains("training.sync_batch_statistics: no BatchNormalization before "
               "the loss output takes its batch's mean and variance in "
               "training; leave it out"));
}

TEST(TrainingGraphTest, StatisticsThatCannotFollowTheBatches) {
  const auto edited = [](absl::string_view from, absl::string_view to) {
    EXPECT_NE(absl::string_view(kNormalised).find(from),
              absl::string_view::npos);
    return absl::StrReplaceAll(kNormalised, {{from, to}});
  };
  EXPECT_THAT(
      Resolve(WithStatisticRules("model { freeze: 'v1' }"), kNormalised)
          .problems,
      ElementsAre(
          "model.freeze: of 'm1' and 'v1', which node 'BatchNormalization#0' "
          "(BatchNormalization, opset 14) normalises by, one is "
          "frozen; freeze both or none"));
  EXPECT_THAT(
      Resolve(kStatisticRules, edited("(h2, s2, s2, m2", "(h2, m2, s2, m2"))
          .problems,
      ElementsAre("model: 'm2', which node 'BatchNormalization#2' "
                  "(BatchNormalization, opset 14) "
                  "normalises by, is read by node 'BatchNormalization#2' "
                  "(BatchNormalization, "
                  "opset 14) as well; each needs its own, which exporters "
                  "merge where they are equal, and model.accept_merged cannot "
                  "part them. Export the model in training mode and without "
                  "optimisation (torch.onnx.export(..., dynamo=True, "
                  "optimize=False, external_data=False)), or freeze 'm2'"));
  EXPECT_THAT(
      Resolve(kStatisticRules,
              edited("  y = BatchNormalization(h2, s2, s2, m2, v2)",
                     "  i = Identity(v2)\n"
                     "  y = BatchNormalization(h2, s2, s2, m2, i)"))
          .problems,
      Contains("model: node 'BatchNormalization#3' (BatchNormalization, opset "
               "14) normalises by "
               "'i', which is computed; it must be an initializer, so that "
               "training can keep it there. Export the model in training "
               "mode"));
  EXPECT_THAT(
      Resolve(kStatisticRules, edited("momentum = 0.75", "momentum = 1.5"))
          .problems,
      ElementsAre("model: the momentum of node 'BatchNormalization#0' "
                  "(BatchNormalization, opset "
                  "14) is 1.5; it must be in [0, 1]"));
  EXPECT_THAT(
      Resolve("model { initialize { pattern: 'm2' scheme: ZEROS } "
              "initialize { pattern: 'v2' scheme: HE_UNIFORM } }",
              kNormalised)
          .problems,
      ElementsAre("model.initialize[2].pattern: 'v2' fills 'v2', a running "
                  "mean or variance, with random numbers; put a rule before "
                  "it: ZEROS for means, CONSTANT with value 1 for variances"));
}

// Has what a job's own w1 and w2 does not train: a single number, a mask.
constexpr char kConstants[] = R"(<ir_version: 8, opset_import: ["" : 13]>
g (float[N,4] x, float[4,3] w1) => (float[N,3] y)
<float[3] b = {1,2,3}, float root = {1.414}, float[3] hidden = {0,-1e9,0},
 float[3] gain = {1,2,3}>
{
  h1 = Gemm(x, w1, b)
  h2 = Div(h1, root)
  h3 = Add(h2, hidden)
  y = Mul(h3, gain)
})";

std::vector<std::string> FixedNames(const TrainingGraph& training) {
  std::vector<std::string> names;
  for (const auto& fixed : training.fixed) names.push_back(fixed.name);
  return names;
}

TEST(TrainingGraphTest, ConstantsAreNotTrained) {
  const Resolved resolved = Resolve("", kConstants);
  EXPECT_THAT(resolved.problems, IsEmpty());
  EXPECT_THAT(Names(resolved.training), ElementsAre("b:-1", "gain:-1", "w1:0"));
  EXPECT_EQ(resolved.training.parameters[1].reason, WeightReason::kAssumed);
  EXPECT_THAT(FixedNames(resolved.training), ElementsAre("root", "hidden"));
  EXPECT_THAT(resolved.training.warnings, IsEmpty());
}

TEST(TrainingGraphTest, TheJobSaysWhatIsTrained) {
  const Resolved resolved =
      Resolve("model { train: 'root' freeze: 'gain' }", kConstants);
  EXPECT_THAT(resolved.problems, IsEmpty());
  EXPECT_THAT(Names(resolved.training), ElementsAre("b:-1", "root:-1", "w1:0"));
  EXPECT_THAT(FixedNames(resolved.training), ElementsAre("hidden", "gain"));
  // What no gradient reaches cannot be.
  EXPECT_THAT(Resolve("model { train: 'ratio' }").problems,
              ElementsAre("model.train[0]: 'ratio' matches 'ratio', but no "
                          "gradient of the loss reaches it"));
}

// The import makes what is float64 on the way float32, and says so.
TEST(TrainingGraphTest, GradientsFlowThroughFloat64) {
  const std::string text =
      Replaced("h4 = Mul(h3, c)",
               "d = Cast <to = 11> (h3) n = Cast <to = 11> (c) e = Mul(d, n) "
               "h4 = Cast <to = 1> (e)");
  const Resolved resolved = Resolve("", text);
  EXPECT_THAT(resolved.problems, IsEmpty());
  EXPECT_THAT(Names(resolved.training), testing::Contains("w1:0"));
}

TEST(TrainingGraphTest, GradientsThatWouldBeLostAreRefused) {
  constexpr char kText[] = R"(<ir_version: 10, opset_import: ["" : 23]>
g (float[N,1,2,4] x, float[4] w1) => (float[N,1,2,2] scores) {
  q = Mul(x, w1)
  y, keys, values, scores = Attention(q, q, q)
})";
  EXPECT_THAT(Resolve("", kText).problems,
              testing::Contains(testing::HasSubstr(
                  "model: the gradient of 'w1' would be lost at node")));
}

// The signature of a PyTorch model with these parameters, as a file has it.
std::string Exported(const std::string& model,
                     const std::vector<std::string>& parameters) {
  std::string signature = "# inputs\n";
  for (const std::string& name : parameters) {
    absl::StrAppend(&signature, "p: PARAMETER target='", name, "'\n");
  }
  return absl::StrReplaceAll(
      model, {{"ir_version: 8",
               absl::StrCat("ir_version: 8, producer_name: \"pytorch\", "
                            "metadata_props: [\"pkg.torch.export."
                            "ExportedProgram.graph_signature\": \"",
                            signature, "\"]")}});
}

TEST(TrainingGraphTest, ModelsThatTheExporterMerged) {
  const std::string model = absl::StrReplaceAll(
      kModel, {{"c = Constant <value_float = 2.0> ()", "c = Relu(h3)"}});
  EXPECT_THAT(Resolve("", Exported(model, {"w1", "b", "w2"})).problems,
              IsEmpty());
  const std::string merged =
      Exported(model, {"w1", "b", "w2", "b2", "fc.weight"});
  EXPECT_THAT(
      Resolve("", merged).problems,
      ElementsAre(
          "model: of the 5 parameters of the PyTorch model 2 have no "
          "initializer of their own in the file ('b2', 'fc.weight'): the "
          "exporter has merged equal ones or folded them away, so it would not "
          "train as the original does. Export it with torch.onnx.export(..., "
          "dynamo=True, optimize=False, external_data=False); or train what "
          "the file has, with model.accept_merged: true (right if the model "
          "itself ties them or does not use them)"));
  const Resolved accepted = Resolve("model { accept_merged: true }", merged);
  EXPECT_THAT(accepted.problems, IsEmpty());
  EXPECT_THAT(
      accepted.training.warnings,
      ElementsAre(
          "model.accept_merged: of the 5 parameters of the PyTorch model 2 "
          "have no initializer of their own in the file ('b2', 'fc.weight'); "
          "what the file has in their place is trained: merged ones as one, "
          "and what was folded away not at all"));
}

TEST(TrainingGraphTest, SharedWeightsAreSaidAloud) {
  const std::string tied = absl::StrReplaceAll(
      kModel,
      {{"y = MatMul(h4, w2)", "h5 = MatMul(h4, w2) y = MatMul(h5, w2)"}});
  EXPECT_THAT(
      Resolve("", tied).training.warnings,
      ElementsAre("model: weights that several nodes read are trained as one: "
                  "1 ('w2'); right if the model ties them, wrong if an "
                  "exporter merged equal ones"));
  // The exporter has said which parameters there were.
  EXPECT_THAT(Resolve("", Exported(tied, {"w1", "b", "w2"})).training.warnings,
              IsEmpty());
}

TEST(TrainingGraphTest, BadNames) {
  const std::pair<const char*, std::vector<std::string>> table[] = {
      {"model { initialize { pattern: 'zz' scheme: ZEROS } }",
       {"model.initialize[1].pattern: 'zz' matches no initializer that can be "
        "trained ('b', 'w2', 'i', 'ratio', 'unused', 'w1')"}},
      {"model { initialize { pattern: 'i' scheme: ZEROS } }",
       {"model.initialize[1].pattern: 'i' matches no initializer that can be "
        "trained ('b', 'w2', 'i', 'ratio', 'unused', 'w1')"}},
      {"model { initialize { pattern: 'w2' scheme: ZEROS } }",
       {"model.initialize[1].pattern: 'w2' matches only initializers that an "
        "earlier rule fills"}},
      {"model { freeze: 'zz*' }",
       {"model.freeze[0]: 'zz*' matches no initializer ('b', 'w2', 'i', "
        "'ratio', 'unused', 'w1')"}},
      {"model { freeze: 'w1' }",
       {"model.freeze[0]: 'w1' has no values in the file, so it cannot be "
        "frozen"}},
      {"model { freeze: '?' freeze: 'w2' freeze: 'ratio' }", {}},
      {"data { feeds { input: 'z' field: 'features' } }",
       {"data.feeds[1].input: 'z' is not an input of the model, which takes "
        "('x')"}},
      {"data { feeds { input: 'w1' field: 'features' } }",
       {"data.feeds[1].input: 'w1' is an initializer of the model, which takes "
        "('x')"}},
      {"loss { output: 'h1' }",
       {"loss.output: 'h1' is not an output of the model, which has ('y')"}},
      {"loss { output: 'y' kind: SIGMOID_CROSS_ENTROPY }",
       {"loss.output: 'y' is float32[N,3], but SIGMOID_CROSS_ENTROPY needs "
        "float32[N,1] or [N]"}},
      {"loss { kind: MEAN_SQUARED_ERROR }", {}},
      {"data { label { classes: [1, 2] } }",
       {"data.label.classes: 2 values, but 'y' has 3 classes"}},
      {"data { test { libsvm { path: 't' dimension: 4 } } } metrics: AUC",
       {"metrics[0]: AUC is for 2 classes, but 'y' has 3"}},
      {"data { test { libsvm { path: 't' dimension: 4 } } } "
       "metrics: [CALIBRATION, MEAN_SQUARED_ERROR, TOP5_ACCURACY, LOG_LOSS]",
       {"metrics[0]: CALIBRATION is for 2 classes, but 'y' has 3",
        "metrics[1]: MEAN_SQUARED_ERROR is for 2 classes, but 'y' has 3",
        "metrics[2]: TOP5_ACCURACY is for more than 5 classes, but 'y' has "
        "3"}},
      {"training { batch_size: 1048576 eval_batch_size: 1 }", {}},
  };
  for (const auto& [edit, problems] : table) {
    EXPECT_EQ(Resolve(edit).problems, problems) << edit;
  }
}

TEST(TrainingGraphTest, ModelsThatDoNotFitTheJob) {
  const std::pair<std::string, std::vector<std::string>> table[] = {
      // Two outputs.
      {Replaced("=> (float[N,3] y)", "=> (float[N,3] y, float[N,3] h4)"),
       {"loss.output: the model has several outputs ('y', 'h4'); name one"}},
      // An input without data.
      {Replaced("(float[N,4] x,", "(float[N,4] x, float[N,1] z,"),
       {"data.feeds: graph input 'z' is not fed, and no rule of "
        "model.initialize makes it a parameter"}},
      // An input of fixed shape that no rule matches.
      {Replaced("(float[N,4] x,", "(float[N,4] x, float[2] v,"),
       {"data.feeds: graph input 'v' is not fed, and no rule of "
        "model.initialize makes it a parameter"}},
      // A declared parameter that nobody uses.
      {Replaced("(float[N,4] x,", "(float[N,4] x, float[2] w9,"),
       {"model.initialize[0].pattern: graph input 'w9' has no values in the "
        "file and does not influence the loss output"}},
      // A batch of fixed size.
      {Replaced("float[N,", "float[8,"),
       {"loss.output: 'y' is float32[8,3], but SOFTMAX_CROSS_ENTROPY needs "
        "float32[N,classes] or [N,...,classes] with at least 2 classes",
        "data.feeds[0].input: 'x' is [8,4], but its first dimension must be "
        "open, because batches differ in size; export the model with a "
        "symbolic first dimension"}},
      // A weight that no safetensors file can have, used or not.
      {Replaced("unused", "__metadata__"),
       {"model: the weight '__metadata__' cannot be in trained.safetensors, a "
        "format that keeps this name for itself; rename it"}},
      // Nothing that a gradient reaches.
      {R"(<ir_version: 8, opset_import: ["" : 13]>
          g (float[N,4] x) => (float[N,4] y) <float[1] w = {1}>
          { y = Relu(x) })",
       {"model: nothing to train: no float32 initializer that is not frozen "
        "influences 'y'"}},
      // Nothing that is taken for a weight.
      {R"(<ir_version: 8, opset_import: ["" : 13]>
          g (float[N,4] x) => (float[N,4] y) <float[1] v = {1}>
          { y = Mul(x, v) })",
       {"model.initialize[0].pattern: 'w*' matches no initializer that can be "
        "trained ('v')",
        "model: nothing to train: no float32 initializer that is not frozen "
        "influences 'y', but for ('v'), taken for constants; model.train names "
        "weights"}},
      // Feeds are float32 or int64.
      {R"(<ir_version: 8, opset_import: ["" : 13]>
          g (int32[N,4] x) => (float[4] y) <float[4] w = {1,2,3,4}>
          { y = Relu(w) z = Identity(x) })",
       {"loss.output: 'y' is float32[4], but SOFTMAX_CROSS_ENTROPY needs "
        "float32[N,classes] or [N,...,classes] with at least 2 classes",
        "data.feeds[0].input: 'x' is int32, but feeds are float32 or int64"}},
  };
  for (const auto& [text, problems] : table) {
    EXPECT_EQ(Resolve("", text).problems, problems) << text;
  }
}

TEST(TrainingGraphTest, ALossOverEveryPositionOfASample) {
  const auto problems = [](const std::string& shape) {
    return Resolve("", absl::StrCat(R"(<ir_version: 8, opset_import: ["" : 13]>
        g (float[N,4] x) => (float[N,2,)",
                                    shape, R"(] y)
        <float[4] w = {1,2,3,4}, int64[3] s = {-1, 2, )",
                                    shape, R"(}>
        { p = Mul(x, w) y = Reshape(p, s) })"))
        .problems;
  };
  EXPECT_THAT(problems("2"), IsEmpty());
  EXPECT_THAT(problems("1"),
              ElementsAre("loss.output: 'y' is float32[?,2,1], but "
                          "SOFTMAX_CROSS_ENTROPY needs float32[N,classes] or "
                          "[N,...,classes] with at least 2 classes"));
}

TEST(TrainingGraphTest, AFeedsShapeHasAsManyValuesAsItsInput) {
  const std::string model =
      Replaced("(float[N,4] x,", "(float[N,4] x, float[N,3,2] image,");
  const auto problems = [&](const std::string& reshape) {
    return Resolve("data { feeds { input: 'image' field: 'features' reshape: " +
                       reshape + " } }",
                   model)
        .problems;
  };
  EXPECT_THAT(problems("[2, 3]"), IsEmpty());
  EXPECT_THAT(problems("[2, 2]"),
              ElementsAre("data.feeds[1].reshape: [2,2] has 4 values, but "
                          "'image' takes 6 a sample"));
}

TEST(TrainingGraphTest, WhatFitsAnInt64FeedOnly) {
  const std::string model =
      Replaced("(float[N,4] x,", "(float[N,4] x, int64[N,4] ids,");
  const auto problems = [&](const std::string& feeds) {
    return Resolve(feeds, model).problems;
  };
  EXPECT_THAT(problems("data { feeds { input: 'ids' field: 'indices' "
                       "padding: -1 } }"),
              IsEmpty());
  EXPECT_THAT(problems("data { feeds { input: 'ids' field: 'indices' "
                       "scale: 2 } }"),
              ElementsAre("data.feeds[1]: scale and offset are for float32, "
                          "but 'ids' is int64"));
  EXPECT_THAT(problems("data { feeds { input: 'ids' field: 'indices' "
                       "offset: 1 } }"),
              ElementsAre("data.feeds[1]: scale and offset are for float32, "
                          "but 'ids' is int64"));
  const auto padded = [&](const std::string& dims) {
    return Resolve(
               "data { train { csv { path: 'a' has_header: true "
               "                     list_delimiter: '|' } } "
               "       feeds { input: 'ids' field: 'f' padding: 3 } }",
               Replaced("(float[N,4] x,",
                        absl::StrCat("(float[N,4] x, int64", dims, " ids,")))
        .problems;
  };
  EXPECT_THAT(padded("[N,4]"), IsEmpty());
  for (const char* one : {"[N]", "[N,1]"}) {
    EXPECT_THAT(padded(one),
                ElementsAre("data.feeds[1].padding: is for lists, but 'ids' "
                            "takes one value a sample"));
  }
  EXPECT_THAT(problems("data { feeds { input: 'ids' field: 'indices' } "
                       "feeds { input: 'v' field: 'values' } }"),
              ElementsAre("data.feeds[2].input: 'v' is not an input of the "
                          "model, which takes ('x', 'ids')"));
  EXPECT_THAT(
      Resolve("data { feeds { input: 'z' field: 'indices' "
              "padding: 3 } }",
              Replaced("(float[N,4] x,", "(float[N,4] x, float[N,4] z,"))
          .problems,
      ElementsAre("data.feeds[1].padding: is for int64, but 'z' is "
                  "float32, which is padded with 0"));
}

constexpr char kModelWithLoss[] = R"(<ir_version: 8, opset_import: ["" : 13]>
g (float[N,4] x, int64[N] labels, float[4,3] w1) => (float[N,3] scores, float l)
{
  scores = MatMul(x, w1)
  l = SoftmaxCrossEntropyLoss(scores, labels)
})";

TEST(TrainingGraphTest, ALossBesideTheScoresNeedsNoLabels) {
  const Resolved resolved =
      Resolve("loss { output: 'scores' }", kModelWithLoss);
  EXPECT_THAT(resolved.problems, IsEmpty());
  EXPECT_THAT(Names(resolved.training), ElementsAre("w1:0"));
}

TEST(TrainingGraphTest, ALossOfTheGraphIsNoneOfTheJob) {
  EXPECT_THAT(
      Resolve("loss { output: 'l' }", kModelWithLoss).problems,
      ElementsAre(
          "loss.output: 'l' is float32[], but SOFTMAX_CROSS_ENTROPY needs "
          "float32[N,classes] or [N,...,classes] with at least 2 classes; it "
          "is the result of a SoftmaxCrossEntropyLoss node, but the job "
          "computes the loss itself: make the scores 'scores' an output of the "
          "model and name them here",
          "data.feeds: graph input 'labels' is not fed, and no rule of "
          "model.initialize makes it a parameter"));
}

TEST(TrainingGraphTest, AllProblemsComeAtOnce) {
  EXPECT_EQ(Resolve("loss { output: 'q' } model { freeze: 'q' } "
                    "data { feeds { input: 'q' field: 'features' } }")
                .problems.size(),
            3u);
}

TEST(TrainingGraphTest, BatchesThatAreTooLargeAreRefused) {
  const std::string text = R"(<ir_version: 8, opset_import: ["" : 13]>
      g (float[N,100000000] x, float[100000000,2] w1) => (float[N,2] y)
      { y = MatMul(x, w1) })";
  EXPECT_THAT(Resolve("training { batch_size: 1048576 }", text).problems,
              ElementsAre(testing::StartsWith("training.batch_size: m: ")));
}

// ---- Batches of several lengths ----

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

TEST(TrainingGraphTest, ScoresMayHaveAsManyPositionsAsTheLength) {
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

TEST(TrainingGraphTest, TheLengthMustBeADimensionOfAnInput) {
  EXPECT_THAT(Resolve(kBuckets).problems,
              ElementsAre("data.buckets.dimension: 'S' is no symbolic "
                          "dimension of the model's inputs ('x')"));
}

TEST(TrainingGraphTest, EachLengthMustFitTheGraph) {
  EXPECT_THAT(
      Resolve(kBuckets, Sequences("[6,3]", "[N,3]", "y = MatMul(x, w1)"))
          .problems,
      ElementsAre("data.buckets.lengths[0]: m: node 'MatMul#0' (MatMul, opset "
                  "13) with inputs float32[8,2], float32[6,3]: Incompatible "
                  "dimensions for matrix multiplication"));
}

TEST(TrainingGraphTest, ClassesMayNotDependOnTheLength) {
  EXPECT_THAT(
      Resolve(kBuckets, Sequences("[1,3]", "[N,3,S]",
                                  "u = Unsqueeze(x, two) v = MatMul(u, w1) "
                                  "y = Reshape(v, flat)"))
          .problems,
      ElementsAre("data.buckets.lengths[0]: the scores 'y' of a batch are "
                  "[8,3,2], but [8,3,6] at the longest; only the positions of "
                  "SOFTMAX_CROSS_ENTROPY may depend on the length"));
}

// Labels are read for the longest and cut.
TEST(TrainingGraphTest, PositionsMayNotBecomeFewerAsTheLengthGrows) {
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

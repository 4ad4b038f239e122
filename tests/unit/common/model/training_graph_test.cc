// Goal: a job's names are laid over its model as documented, and everything
// that does not fit is reported at once with its field path. (The loss output,
// feeds and shapes: loss_and_feeds_test, batch_shapes_test.) Method: one model
// and job, a table of edits to each and the exact reports.

#include "common/model/training_graph.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_resolution.h"

namespace syncline {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::kResolvedModel;
using testing::Resolve;
using testing::Resolved;
using testing::ResolvedModelWith;

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
  // Settings, integers, constants and unused initializers are no parameters.
  // The file's initializers come first.
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

// A worker's own batch is another one where their number changes.
TEST(TrainingGraphTest, AGlobalBatchNeedsTheStatisticsOfAllWorkers) {
  constexpr char kElastic[] =
      "resources { workers: 2 max_workers: 3 } "
      "checkpoint { every_clocks: 5 directory: '/c' } ";
  constexpr char kLeased[] =
      "data { sharing: LEASED } consistency { mode: ASYNC }";
  EXPECT_THAT(Resolve(WithStatisticRules(kElastic), kNormalised).problems,
              Contains(::testing::HasSubstr("resources.max_workers: "
                                            "BatchNormalization takes each")));
  EXPECT_THAT(
      Resolve(WithStatisticRules(absl::StrCat(kElastic, kLeased)), kNormalised)
          .problems,
      IsEmpty())
      << "the size of a lease does not follow from it";
  constexpr char kGlobal[] = "training { global_batch: 8 }";
  EXPECT_THAT(Resolve(WithStatisticRules(kGlobal), kNormalised).problems,
              Contains("training.global_batch: BatchNormalization takes each "
                       "worker's own batch, whose size follows from the number "
                       "of workers; set training.sync_batch_statistics, or "
                       "freeze these layers (model.freeze)"));
  EXPECT_THAT(Resolve(WithStatisticRules(absl::StrCat(
                          kGlobal, "training { sync_batch_statistics: true }")),
                      kNormalised)
                  .problems,
              IsEmpty());
  EXPECT_THAT(
      Resolve(WithStatisticRules(
                  "checkpoint { every_clocks: 9 directory: '/c' } restart {} "
                  "resources { workers: 3 min_workers: 3 max_workers: 4 }"),
              kNormalised)
          .problems,
      Contains(::testing::StartsWith("resources.max_workers: ")));
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
               "training can keep it there. PyTorch writes this for "
               "track_running_stats=False, which has no statistics to keep: "
               "leave that out, or use another normalisation, as GroupNorm. "
               "Else export the model in training mode"));
  EXPECT_THAT(
      Resolve(kStatisticRules, edited("momentum = 0.75", "momentum = 1.0"))
          .problems,
      Contains(::testing::HasSubstr("would never move, as PyTorch writes "
                                    "momentum=None or 0")));
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
  EXPECT_THAT(Resolve("optimizer { kind: ADAMW }").training.warnings,
              ElementsAre("optimizer.weight_decay: is 0, and ADAMW without it "
                          "is ADAM; PyTorch's AdamW has 0.01 where nothing is "
                          "given"));
}

TEST(TrainingGraphTest, TheJobSaysWhatIsTrained) {
  const Resolved resolved =
      Resolve("model { train: 'root' freeze: 'gain' }", kConstants);
  EXPECT_THAT(resolved.problems, IsEmpty());
  EXPECT_THAT(Names(resolved.training), ElementsAre("b:-1", "root:-1", "w1:0"));
  EXPECT_THAT(FixedNames(resolved.training), ElementsAre("hidden", "gain"));
  // An initializer that no gradient reaches cannot be trained.
  EXPECT_THAT(Resolve("model { train: 'ratio' }").problems,
              ElementsAre("model.train[0]: 'ratio' matches 'ratio', but no "
                          "gradient of the loss reaches it"));
}

// The import makes what is float64 on the way float32, and says so.
TEST(TrainingGraphTest, GradientsFlowThroughFloat64) {
  const std::string text = ResolvedModelWith(
      "h4 = Mul(h3, c)",
      "d = Cast <to = 11> (h3) n = Cast <to = 11> (c) e = Mul(d, n) "
      "h4 = Cast <to = 1> (e)");
  const Resolved resolved = Resolve("", text);
  EXPECT_THAT(resolved.problems, IsEmpty());
  EXPECT_THAT(Names(resolved.training), Contains("w1:0"));
}

TEST(TrainingGraphTest, GradientsThatWouldBeLostAreRefused) {
  constexpr char kText[] = R"(<ir_version: 10, opset_import: ["" : 23]>
g (float[N,1,2,4] x, float[4] w1) => (float[N,1,2,2] scores) {
  q = Mul(x, w1)
  y, keys, values, scores = Attention(q, q, q)
})";
  EXPECT_THAT(Resolve("", kText).problems,
              Contains(::testing::HasSubstr(
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
      kResolvedModel,
      {{"c = Constant <value_float = 2.0> ()", "c = Relu(h3)"}});
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
      kResolvedModel,
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
  };
  for (const auto& [edit, problems] : table) {
    EXPECT_EQ(Resolve(edit).problems, problems) << edit;
  }
}

TEST(TrainingGraphTest, ModelsThatDoNotFitTheJob) {
  const std::pair<std::string, std::vector<std::string>> table[] = {
      // A declared parameter that no node reads.
      {ResolvedModelWith("(float[N,4] x,", "(float[N,4] x, float[2] w9,"),
       {"model.initialize[0].pattern: graph input 'w9' has no values in the "
        "file and does not influence the loss output"}},
      // A weight that no safetensors file can have, used or not.
      {ResolvedModelWith("unused", "__metadata__"),
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
  };
  for (const auto& [text, problems] : table) {
    EXPECT_EQ(Resolve("", text).problems, problems) << text;
  }
}

TEST(TrainingGraphTest, AllProblemsComeAtOnce) {
  EXPECT_EQ(Resolve("loss { output: 'q' } model { freeze: 'q' } "
                    "data { feeds { input: 'q' field: 'features' } }")
                .problems.size(),
            3u);
}

}  // namespace
}  // namespace syncline

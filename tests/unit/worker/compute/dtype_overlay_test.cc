// Goal: a plan of mixed precision computes products and what follows them in 16
// bits, keeps masters, sums and the loss in float32, and casts each value once,
// just before its first reader. Method: the steps of small graphs, a
// convolutional network and a transformer of the zoo, value by value.

#include "worker/compute/dtype_overlay.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/model/zoo/zoo.h"
#include "gmock/gmock.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/testing/training_model.h"
#include "worker/compute/step_plan.h"
#include "worker/ops/widened_op.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using testing::MakeTrainingModel;
using testing::TrainingModel;

// An overlay, with the objects that it points to.
struct Planned {
  explicit Planned(const TrainingModel& m, DType type = DType::kBfloat16)
      : model(m) {
    std::vector<ValueId> parameters;
    for (const auto& p : m.training.parameters) parameters.push_back(p.value);
    const Graph& graph = m.model->graph();
    flow = BuildBackwardGraph(graph, m.training.loss_output, parameters);
    overlay = OverlayDTypes({.graph = &graph,
                             .flow = &flow,
                             .data = m.training.feeds,
                             .loss_output = m.training.loss_output,
                             .type = type});
  }

  const Value& value(ValueId v) const { return overlay.graph.values[v]; }
  const Node& node(size_t position) const {
    return overlay.graph.nodes[overlay.flow.nodes[position]];
  }
  // "h:16", "x:32" or a name alone.
  std::string Name(ValueId v) const {
    if (v == kNoValue) return "-";
    const std::string name =
        absl::StrReplaceAll(value(v).name, {{" in bfloat16", "'"}});
    if (value(v).dtype == DType::kFloat32) return name + ":32";
    return Is16Bit(value(v).dtype) ? name + ":16" : name;
  }
  std::string Names(const std::vector<ValueId>& values) const {
    return absl::StrJoin(values, ", ", [&](std::string* out, ValueId v) {
      absl::StrAppend(out, Name(v));
    });
  }
  // "y:32 = Gemm(h':16, w:16)", in order.
  std::vector<std::string> Steps() const {
    std::vector<std::string> steps;
    for (size_t p = 0; p < overlay.flow.nodes.size(); ++p) {
      steps.push_back(absl::StrCat(
          Names(node(p).outputs), " = ",
          node(p).op_type == kCastTo16Bits ? "cast" : node(p).op_type, "(",
          Names(node(p).inputs), ")"));
    }
    return steps;
  }

  const TrainingModel model;
  BackwardGraph flow;
  DTypeOverlay overlay;
};

TEST(DTypeOverlayTest, PerceptronValueByValue) {
  const Planned planned(MakeTrainingModel(
      "(float[N,4] x, float[4,5] w_a, float[5] w_b, float[5,3] w_c, "
      "float[3] w_d) => (float[N,3] y)",
      "", "h = Gemm(x, w_a, w_b)\n r = Tanh(h)\n y = Gemm(r, w_c, w_d)"));
  EXPECT_THAT(planned.Steps(),
              ElementsAre("x':16 = cast(x:32)", "w_a':16 = cast(w_a:32)",
                          "h:16 = Gemm(x':16, w_a':16, w_b:32)",
                          "r:16 = Tanh(h:16)", "w_c':16 = cast(w_c:32)",
                          "y:32 = Gemm(r:16, w_c':16, w_d:32)"));
}

// Nodes and values keep their numbers, and gradients go where they did.
TEST(DTypeOverlayTest, TheModelIsWhatItWas) {
  const Planned planned(MakeTrainingModel(
      "(float[N,4] x, float[4,4] w_a) => (float[N,4] y)", "",
      "h = MatMul(x, w_a)\n r = Tanh(h)\n y = MatMul(r, w_a)"));
  const Graph& graph = planned.model.model->graph();
  const DTypeOverlay& overlay = planned.overlay;
  ASSERT_EQ(overlay.graph.values.size(), graph.values.size() + 2);
  ASSERT_EQ(overlay.graph.nodes.size(), graph.nodes.size() + 2);
  EXPECT_TRUE(overlay.graph.initializers.empty());
  for (size_t v = 0; v < graph.values.size(); ++v) {
    EXPECT_EQ(overlay.graph.values[v].name, graph.values[v].name);
    EXPECT_EQ(overlay.graph.values[v].producer, graph.values[v].producer);
    EXPECT_EQ(overlay.sources[v], static_cast<ValueId>(v));
    EXPECT_EQ(graph.values[v].dtype, DType::kFloat32);
  }
  EXPECT_TRUE(overlay.flow.loss_has_gradient);
  size_t before = 0;
  for (size_t p = 0; p < overlay.flow.nodes.size(); ++p) {
    if (planned.node(p).op_type == kCastTo16Bits) {
      const ValueId copy = planned.node(p).outputs[0];
      EXPECT_EQ(overlay.sources[copy], planned.node(p).inputs[0]);
      EXPECT_EQ(planned.value(copy).producer, overlay.flow.nodes[p]);
      EXPECT_FALSE(overlay.flow.RunsBackward(p));
      continue;
    }
    EXPECT_EQ(overlay.flow.nodes[p], planned.flow.nodes[before]);
    EXPECT_EQ(overlay.flow.wants_gradient[p],
              planned.flow.wants_gradient[before]);
    ++before;
  }
  EXPECT_EQ(before, planned.flow.nodes.size());
}

TEST(DTypeOverlayTest, AMasterIsCastOnceBeforeItsFirstReader) {
  const Planned planned(MakeTrainingModel(
      "(float[N,4] x, float[4,4] w_a, float[4,4] w_b) => (float[N,4] y)", "",
      "s = Exp(x)\n h = MatMul(s, w_a)\n i = MatMul(h, w_b)\n"
      "j = MatMul(i, w_a)\n y = MatMul(j, w_b)"));
  EXPECT_THAT(
      planned.Steps(),
      ElementsAre("s:32 = Exp(x:32)", "s':16 = cast(s:32)",
                  "w_a':16 = cast(w_a:32)", "h:16 = MatMul(s':16, w_a':16)",
                  "w_b':16 = cast(w_b:32)", "i:16 = MatMul(h:16, w_b':16)",
                  "j:16 = MatMul(i:16, w_a':16)",
                  "y:32 = MatMul(j:16, w_b':16)"));
}

TEST(DTypeOverlayTest, ConvolutionsWithBatchNormalizationValueByValue) {
  const Planned planned(MakeTrainingModel(
      "(float[N,1,6,6] x, float[4,1,3,3] w_k, float[4] w_s, float[4] w_b, "
      "float[4] w_running_m, float[4] w_running_v, float[16,3] w_a, "
      "float[3] w_c) => (float[N,3] y)",
      "int64[2] flat = {-1, 16}",
      "c = Conv(x, w_k)\n"
      "n = BatchNormalization(c, w_s, w_b, w_running_m, w_running_v)\n"
      "r = Relu(n)\n"
      "m = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)\n"
      "f = Reshape(m, flat)\n z = MatMul(f, w_a)\n y = Add(z, w_c)"));
  EXPECT_THAT(
      planned.Steps(),
      ElementsAre("x':16 = cast(x:32)", "w_k':16 = cast(w_k:32)",
                  "c:16 = Conv(x':16, w_k':16)",
                  "n:16 = BatchNormalization(c:16, w_s:32, w_b:32, "
                  "w_running_m:32, w_running_v:32)",
                  "r:16 = Relu(n:16)", "m:16 = MaxPool(r:16)",
                  "f:16 = Reshape(m:16, flat)", "w_a':16 = cast(w_a:32)",
                  "z:16 = MatMul(f:16, w_a':16)",
                  // A parameter does not decide about types, the loss does.
                  "y:32 = Add(z:16, w_c:32)"));
}

TEST(DTypeOverlayTest, SumsAreFloat32AndWhatMeetsThemIsWidened) {
  const Planned planned(MakeTrainingModel(
      "(float[N,4] x, float[4,4] w_a) => (float[N,4] y)", "",
      "h = MatMul(x, w_a)\n p = Softmax(h)\n s = Mul(p, h)\n t = Mul(h, h)\n"
      "u = Add(s, t)\n y = MatMul(u, w_a)"));
  EXPECT_THAT(
      planned.Steps(),
      ElementsAre("x':16 = cast(x:32)", "w_a':16 = cast(w_a:32)",
                  "h:16 = MatMul(x':16, w_a':16)", "p:32 = Softmax(h:16)",
                  "s:32 = Mul(p:32, h:16)", "t:16 = Mul(h:16, h:16)",
                  "u:32 = Add(s:32, t:16)", "u':16 = cast(u:32)",
                  "y:32 = MatMul(u':16, w_a':16)"));
}

TEST(DTypeOverlayTest, TheLossReadsFloat32ThroughViews) {
  const Planned planned(MakeTrainingModel(
      "(float[N,4] x, float[4,4] w_a) => (float[N,2,2] y)",
      "int64[3] shape = {-1, 2, 2}",
      "h = MatMul(x, w_a)\n i = Identity(h)\n y = Reshape(i, shape)"));
  EXPECT_THAT(
      planned.Steps(),
      ElementsAre("x':16 = cast(x:32)", "w_a':16 = cast(w_a:32)",
                  "h:32 = MatMul(x':16, w_a':16)", "i:32 = Identity(h:32)",
                  "y:32 = Reshape(i:32, shape)"));
}

TEST(DTypeOverlayTest, IntegersAndMasksKeepTheirTypes) {
  const Planned planned(MakeTrainingModel(
      "(float[N,4] x, int64[N,2] ids, float[9,4] w_e, float[4,4] w_a) "
      "=> (float[N,2,4] y)",
      "float zero = {0.0}, float ratio = {0.5}",
      "e = Gather(w_e, ids)\n h = MatMul(e, w_a)\n d, m = Dropout(h, ratio)\n"
      "g = Greater(d, zero)\n w = Where(g, d, zero)\n y = Add(w, w)"));
  EXPECT_THAT(
      planned.Steps(),
      ElementsAre("e:32 = Gather(w_e:32, ids)", "e':16 = cast(e:32)",
                  "w_a':16 = cast(w_a:32)", "h:16 = MatMul(e':16, w_a':16)",
                  "d:16, m = Dropout(h:16, ratio:32)",
                  "g = Greater(d:16, zero:32)",
                  "w:16 = Where(g, d:16, zero:32)", "y:32 = Add(w:16, w:16)"));
}

// By step: which of its arrays have 16 bits, without the names.
TEST(DTypeOverlayTest, TransformerOfTheZoo) {
  const auto bytes = WriteZooModel("gpt", {{"layers", "1"},
                                           {"width", "8"},
                                           {"heads", "2"},
                                           {"vocabulary", "11"},
                                           {"length", "4"}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto parsed = Model::Parse(*bytes, "gpt");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  TrainingModel m;
  m.model = *parsed;
  const Graph& graph = m.model->graph();
  for (size_t i = 0; i < graph.initializers.size(); ++i) {
    const Initializer& w = graph.initializers[i];
    if (w.origin != Initializer::Origin::kFile) continue;
    if (w.tensor.dtype != DType::kFloat32) continue;
    m.training.parameters.push_back({.value = w.value,
                                     .name = graph.values[w.value].name,
                                     .dims = w.tensor.dims,
                                     .initializer = static_cast<int>(i)});
  }
  m.training.feeds = graph.inputs;
  m.training.loss_output = graph.outputs[0];
  const Planned planned(m);
  const auto bits = [&](ValueId v) -> std::string {
    if (v == kNoValue) return "-";
    const DType type = planned.value(v).dtype;
    return type == DType::kFloat32 ? "32" : Is16Bit(type) ? "16" : "i";
  };
  const auto all = [&](const std::vector<ValueId>& values) {
    return absl::StrJoin(values, ",", [&](std::string* out, ValueId v) {
      absl::StrAppend(out, bits(v));
    });
  };
  std::vector<std::string> steps;
  for (size_t p = 0; p < planned.overlay.flow.nodes.size(); ++p) {
    const Node& node = planned.node(p);
    if (node.op_type == kCastTo16Bits) continue;
    steps.push_back(absl::StrCat(node.op_type, " ", all(node.inputs), " > ",
                                 all(node.outputs)));
  }
  // The residual stream is a sum with the embedding: float32.
  EXPECT_THAT(
      steps,
      ElementsAre("Gather 32,i > 32", "Add 32,32 > 32",
                  "LayerNormalization 32,32,32 > 32", "MatMul 16,16 > 16",
                  "Split 16 > 16,16,16", "Reshape 16,i > 16",
                  "Reshape 16,i > 16", "Reshape 16,i > 16",
                  "Attention 16,16,16,32 > 16", "Reshape 16,i > 16",
                  "MatMul 16,16 > 16", "Add 32,16 > 32",
                  "LayerNormalization 32,32,32 > 32", "MatMul 16,16 > 16",
                  "Gelu 16 > 16", "MatMul 16,16 > 16", "Add 32,16 > 32",
                  // The embedding's rows, for the logits.
                  "Transpose 32 > 32", "LayerNormalization 32,32,32 > 32",
                  "MatMul 16,16 > 32"));
}

// The first use of a parameter is its cast, the last its gradient.
TEST(DTypeOverlayTest, PlansSayWhenAParameterIsUsed) {
  const Planned planned(MakeTrainingModel(
      "(float[N,4] x, float[4,4] w_a, float[4,4] w_b) => (float[N,4] y)", "",
      "h = MatMul(x, w_a)\n v = Transpose(w_b)\n y = MatMul(h, v)"));
  EXPECT_THAT(
      planned.Steps(),
      ElementsAre("x':16 = cast(x:32)", "w_a':16 = cast(w_a:32)",
                  "h:16 = MatMul(x':16, w_a':16)", "v:32 = Transpose(w_b:32)",
                  "v':16 = cast(v:32)", "y:32 = MatMul(h:16, v':16)"));
  std::vector<ValueId> parameters;
  std::vector<GradientMemory> gradients(2);
  for (const auto& p : planned.model.training.parameters) {
    parameters.push_back(p.value);
  }
  const auto plan =
      StepPlan::Create({.device = &ThisMachine(),
                        .model = planned.model.model.get(),
                        .overlay = &planned.overlay,
                        .flow = &planned.overlay.flow,
                        .feeds = planned.model.training.feeds,
                        .parameters = parameters,
                        .gradients = gradients,
                        .tables = {},
                        .loss_output = planned.model.training.loss_output,
                        .loss = LossSpec::MEAN_SQUARED_ERROR,
                        .batch_size = 2,
                        .training = true});
  ASSERT_TRUE(plan.ok()) << plan.status();
  // Six steps forward, the loss, and six backward, from the last to the first.
  EXPECT_EQ((*plan)->UseOf(0).first, 1);
  EXPECT_EQ((*plan)->UseOf(0).last, 6 + 4);
  EXPECT_EQ((*plan)->UseOf(1).first, 3);
  EXPECT_EQ((*plan)->UseOf(1).last, 6 + 3);
}

}  // namespace
}  // namespace syncline::worker

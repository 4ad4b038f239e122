// Goal: recomputed segments save memory and change no bit. Method: the
// partition of small graphs by hand; a deep perceptron and a transformer, with
// dropout, trained a step with and without; their arenas compared.

#include "worker/compute/rematerialization.h"

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "tests/testing/op_device.h"
#include "tests/testing/training_model.h"
#include "worker/ops/op_table.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using testing::MakeTrainingModel;
using testing::TrainingModel;

// ---- Where to cut, what to keep ----

// The partition of a model's forward pass, for 4 samples.
class Partition {
 public:
  Partition(const std::string& signature, const std::string& body, int segments)
      : model_(MakeTrainingModel(signature, "", body, 17)),
        shapes_(*model_.model->InferShapes(4)) {
    std::vector<ValueId> parameters;
    for (const auto& p : model_.training.parameters) {
      parameters.push_back(p.value);
    }
    flow_ =
        BuildBackwardGraph(graph(), model_.training.loss_output, parameters);
    for (size_t p = 0; p < flow_.nodes.size(); ++p) {
      OpSpec spec = testing::HostSpec();
      spec.node = &graph().nodes[flow_.nodes[p]];
      spec.wants_gradient = flow_.wants_gradient[p];
      spec.training = true;
      for (ValueId v : spec.node->inputs) spec.inputs.push_back(TypeOf(v));
      for (ValueId v : spec.node->outputs) spec.outputs.push_back(TypeOf(v));
      ops_.push_back(*CreateOp(spec));
    }
    result_ = PlanRematerialization({.graph = &graph(),
                                     .flow = &flow_,
                                     .shapes = shapes_,
                                     .ops = ops_,
                                     .feeds = model_.training.feeds,
                                     .parameters = parameters,
                                     .loss_output = model_.training.loss_output,
                                     .recompute_segments = segments});
  }

  const std::vector<int>& segments() const { return result_.segments; }
  // Outputs of nodes.
  std::vector<std::string> Kept() const {
    std::vector<std::string> names;
    for (int n : flow_.nodes) {
      const ValueId y = graph().nodes[n].outputs[0];
      if (result_.kept[y]) names.push_back(graph().values[y].name);
    }
    return names;
  }
  std::vector<std::string> RunAgain() const {
    std::vector<std::string> names;
    for (size_t p = 0; p < flow_.nodes.size(); ++p) {
      const ValueId y = graph().nodes[flow_.nodes[p]].outputs[0];
      if (result_.runs_again[p]) names.push_back(graph().values[y].name);
    }
    return names;
  }

 private:
  const Graph& graph() const { return model_.model->graph(); }
  TensorType TypeOf(ValueId v) const {
    return {
        .present = true, .dtype = graph().values[v].dtype, .dims = shapes_[v]};
  }

  const TrainingModel model_;
  const std::vector<Dims> shapes_;
  BackwardGraph flow_;
  std::vector<std::unique_ptr<Op>> ops_;
  Rematerialization result_;
};

constexpr char kChain[] =
    "(float[N,8] x, float[8] w_a, float[8] w_b, float[8] w_c, float[8] w_d) "
    "=> (float[N,8] y)";

TEST(RematerializationTest, OneSegmentKeepsAll) {
  const Partition one(kChain, "a = Mul(x, w_a)\n b = Tanh(a)\n y = Mul(b, w_b)",
                      1);
  EXPECT_THAT(one.segments(), ElementsAre(0));
  EXPECT_THAT(one.Kept(), ElementsAre("a", "b", "y"));
  EXPECT_THAT(one.RunAgain(), ElementsAre());
}

TEST(RematerializationTest, WhatCrossesAndTheLastSegmentAreKept) {
  const Partition two(kChain,
                      "a = Mul(x, w_a)\n b = Tanh(a)\n c = Mul(b, w_b)\n"
                      "d = Mul(c, w_c)\n e = Tanh(d)\n y = Mul(e, w_d)",
                      2);
  EXPECT_THAT(two.segments(), ElementsAre(0, 3));
  EXPECT_THAT(two.Kept(), ElementsAre("c", "d", "e", "y"));
  // Nothing of the backward pass wants c again: it was kept.
  EXPECT_THAT(two.RunAgain(), ElementsAre("a", "b"));
}

TEST(RematerializationTest, CutsWhereLittleCrosses) {
  // Two blocks with a residual: in the middle of one, two values cross.
  const Partition two(kChain,
                      "a = Tanh(x)\n b = Mul(a, w_a)\n c = Add(x, b)\n"
                      "d = Tanh(c)\n e = Mul(d, w_b)\n y = Add(c, e)",
                      2);
  EXPECT_THAT(two.segments(), ElementsAre(0, 3));
  EXPECT_THAT(two.Kept(), ElementsAre("c", "d", "e", "y"));
}

TEST(RematerializationTest, ViewsAreKeptWithWhatTheyShow) {
  const Partition two(kChain,
                      "a = Mul(x, w_a)\n b = Identity(a)\n c = Tanh(b)\n"
                      "d = Mul(c, w_b)\n e = Mul(a, d)\n y = Mul(e, w_c)",
                      2);
  EXPECT_THAT(two.segments(), ElementsAre(0, 3));
  EXPECT_THAT(two.Kept(), ElementsAre("a", "b", "c", "d", "e", "y"));
  EXPECT_THAT(two.RunAgain(), ElementsAre());
}

TEST(RematerializationTest, MoreSegmentsThanNodesAreAsManyAsThereAre) {
  const Partition many(kChain, "a = Mul(x, w_a)\n y = Tanh(a)", 100);
  EXPECT_THAT(many.segments(), ElementsAre(0, 1));
}

// ---- What it saves ----

struct Step {
  int64_t arena_bytes = 0;
  double loss = 0;
  std::vector<std::vector<float>> gradients;

  bool operator==(const Step&) const = default;
};

Step TrainOneStep(const TrainingModel& model, int64_t batch_size, int segments,
                  int64_t micro_batches = 1) {
  Executor::Options options;
  options.loss.set_kind(LossSpec::MEAN_SQUARED_ERROR);
  options.batch_size = batch_size;
  options.micro_batches = micro_batches;
  options.recompute_segments = segments;
  options.seed = 3;
  auto executor = Executor::Create(model.model, model.training, options);
  EXPECT_TRUE(executor.ok()) << executor.status();
  Random random(5);
  const auto fill = [&](absl::Span<float> values) {
    for (float& v : values) v = static_cast<float>(random.Uniform() - 0.5);
  };
  const int count = static_cast<int>(model.training.parameters.size());
  for (int i = 0; i < count; ++i) fill((*executor)->parameter(i));
  const auto shapes = *model.model->InferShapes(batch_size);
  Batch batch;
  batch.size = batch_size;
  batch.feeds.emplace_back(ElementCount(shapes[model.training.feeds[0]]));
  fill(absl::MakeSpan(batch.feeds[0]));
  batch.labels.resize(ElementCount(shapes[model.training.loss_output]));
  batch.label_width = static_cast<int64_t>(batch.labels.size()) / batch_size;
  fill(absl::MakeSpan(batch.labels));
  const auto result = (*executor)->TrainStep(batch, 1, [](int) {});
  EXPECT_TRUE(result.ok()) << result.status();
  Step step{.arena_bytes = (*executor)->arena_bytes(),
            .loss = result->loss_sum,
            .gradients = {}};
  for (int i = 0; i < count; ++i) {
    const auto g = (*executor)->gradient(i);
    step.gradients.emplace_back(g.begin(), g.end());
  }
  return step;
}

// The bits of `plain` in at most `share` of its arena.
void ExpectSaved(const Step& plain, Step recomputed, double share) {
  EXPECT_LE(recomputed.arena_bytes, share * plain.arena_bytes)
      << recomputed.arena_bytes << " of " << plain.arena_bytes;
  recomputed.arena_bytes = plain.arena_bytes;
  EXPECT_TRUE(recomputed == plain) << "the bits are others";
}

TrainingModel DeepPerceptron() {
  std::string signature = "(float[N,32] x";
  std::string body;
  std::string before = "x";
  for (int i = 0; i < 24; ++i) {
    absl::StrAppend(&signature, ", float[32,32] w_", i, ", float[32] w_b", i);
    absl::StrAppend(&body, "h", i, " = Gemm(", before, ", w_", i, ", w_b", i,
                    ")\n r", i, " = Tanh(h", i, ")\n d", i, " = Dropout(r", i,
                    ")\n");
    before = absl::StrCat("d", i);
  }
  absl::StrAppend(&signature, ", float[32,4] w_y) => (float[N,4] y)");
  absl::StrAppend(&body, "y = MatMul(", before, ", w_y)");
  return MakeTrainingModel(signature, "", body, 17);
}

TEST(RematerializationTest, ADeepPerceptronTakesLess) {
  const TrainingModel model = DeepPerceptron();
  const Step plain = TrainOneStep(model, 64, 1);
  ExpectSaved(plain, TrainOneStep(model, 64, 2), 0.6);
  ExpectSaved(plain, TrainOneStep(model, 64, 5), 0.35);
  ExpectSaved(TrainOneStep(model, 64, 1, 4), TrainOneStep(model, 64, 5, 4),
              0.35);
}

TrainingModel Transformer() {
  std::string signature = "(float[N,16,32] x";
  std::string body;
  std::string before = "x";
  for (int i = 0; i < 6; ++i) {
    absl::StrAppend(&signature, ", float[32] w_s", i, ", float[32] w_t", i,
                    ", float[32,96] w_qkv", i, ", float[32,32] w_o", i,
                    ", float[32,128] ", "w_up", i, ", float[128,32] w_down", i);
    absl::StrAppend(
        &body, "n", i, " = LayerNormalization(", before, ", w_s", i, ")\n",
        "qkv", i, " = MatMul(n", i, ", w_qkv", i, ")\n", "q", i, ", k", i,
        ", v", i, " = Split<axis=-1, num_outputs=3>(qkv", i, ")\n", "a", i,
        " = Attention<q_num_heads=4, kv_num_heads=4, is_causal=1>(q", i, ", k",
        i, ", v", i, ")\n", "o", i, " = MatMul(a", i, ", w_o", i, ")\n", "p", i,
        " = Dropout(o", i, ")\n", "r", i, " = Add(", before, ", p", i, ")\n",
        "m", i, " = LayerNormalization(r", i, ", w_t", i, ")\n", "u", i,
        " = MatMul(m", i, ", w_up", i, ")\n", "g", i, " = Gelu(u", i, ")\n",
        "d", i, " = MatMul(g", i, ", w_down", i, ")\n", "y", i, " = Add(r", i,
        ", d", i, ")\n");
    before = absl::StrCat("y", i);
  }
  absl::StrAppend(&signature, ") => (float[N,16,32] y)");
  absl::StrAppend(&body, "y = Identity(", before, ")");
  return MakeTrainingModel(signature, "", body, 23);
}

TEST(RematerializationTest, ATransformerTakesLess) {
  const TrainingModel model = Transformer();
  const Step plain = TrainOneStep(model, 8, 1);
  ExpectSaved(plain, TrainOneStep(model, 8, 3), 0.5);
  ExpectSaved(plain, TrainOneStep(model, 8, 6), 0.4);
  ExpectSaved(TrainOneStep(model, 8, 1, 2), TrainOneStep(model, 8, 6, 2), 0.4);
}

}  // namespace
}  // namespace syncline::worker

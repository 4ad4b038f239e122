// Goal: sharing memory never changes a result: in-place operators, views,
// gradients that take over each other's place, an arena that is reused, and
// segments that are computed again.
// Method: seeded random graphs with much fan-out, each trained one step by the
// executor and by a naive interpreter that gives every value and gradient
// memory of its own, in float32 and in 16 bits. Parameters are overwritten with
// NaN as soon as they are reported, which must change no bit.

#include "worker/compute/step_memory.h"

#include <cmath>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/random.h"
#include "tests/testing/copy_gatherer.h"
#include "tests/testing/op_device.h"
#include "tests/testing/training_model.h"
#include "worker/compute/dtype_overlay.h"
#include "worker/ops/op_table.h"
#include "worker/ops/widened_op.h"

namespace syncline::worker {
namespace {

using testing::MakeTrainingModel;
using testing::TrainingModel;

constexpr uint64_t kSeeds = 300;
constexpr uint64_t kExecutorSeed = 17;
constexpr int64_t kClock = 4;
constexpr int64_t kBatch = 3;

// A graph over values [N,4]: y is the last of them.
class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : random_(seed) {
    const int nodes = 4 + static_cast<int>(random_.Below(20));
    for (int i = 0; i < nodes; ++i) AddNode();
    body_.push_back(
        absl::StrCat("y = Add(", Pick(), ", ", values_.back(), ")"));
  }

  std::string signature() const {
    return "(float[N,4] x, float[4,4] w_m, float[4] w_v, float[1] w_s) => "
           "(float[N,4] y)";
  }
  std::string initializers() const {
    return "int64[3] split = {-1, 2, 2}, float[4] frozen_v = {1.0, -0.5, 0.25, "
           "2.0}, float ratio = {0.25}";
  }
  std::string body() const { return absl::StrJoin(body_, "\n"); }

 private:
  // Mostly recent values, so that graphs are deep; sometimes any.
  std::string Pick() {
    const size_t n = values_.size();
    const size_t back = random_.Below(3) == 0
                            ? random_.Below(n)
                            : random_.Below(std::min<size_t>(n, 3));
    return values_[n - 1 - back];
  }

  void AddNode() {
    static constexpr const char* kUnary[] = {
        "Tanh", "Sigmoid", "Relu", "Gelu", "Identity", "Softmax", "LogSoftmax"};
    static constexpr const char* kBinary[] = {"Add", "Sub", "Mul"};
    static constexpr const char* kWeights[] = {"w_v", "w_s", "frozen_v"};
    const std::string y = absl::StrCat("v", body_.size());
    const auto add = [&](absl::string_view op, absl::string_view arguments) {
      body_.push_back(absl::StrCat(y, " = ", op, "(", arguments, ")"));
    };
    switch (random_.Below(8)) {
      case 0:
      case 1:
        add(kUnary[random_.Below(7)], Pick());
        break;
      case 2:
      case 3:
        add(kBinary[random_.Below(3)], absl::StrCat(Pick(), ", ", Pick()));
        break;
      case 4: {
        const std::string w = kWeights[random_.Below(3)];
        const std::string v = Pick();
        add(kBinary[random_.Below(3)], random_.Below(2) == 0
                                           ? absl::StrCat(v, ", ", w)
                                           : absl::StrCat(w, ", ", v));
        break;
      }
      case 5:
        if (random_.Below(2) == 0) {
          add("MatMul", absl::StrCat(Pick(), ", w_m"));
        } else {
          add("Gemm<transB = 1>", absl::StrCat(Pick(), ", w_m, w_v"));
        }
        break;
      case 6:
        body_.push_back(absl::StrCat(y, "r = Reshape(", Pick(), ", split)"));
        body_.push_back(absl::StrCat(y, " = Flatten(", y, "r)"));
        break;
      default:
        add("Dropout", absl::StrCat(Pick(), ", ratio"));
    }
    values_.push_back(y);
  }

  Random random_;
  std::vector<std::string> values_ = {"x"};
  std::vector<std::string> body_;
};

// Every value and gradient in memory of its own, filled with NaN at first.
class Interpreter {
 public:
  // `overlay`: the types to compute in; null: those of the model.
  Interpreter(const TrainingModel& m, Executor& executor, const Batch& batch,
              const DTypeOverlay* overlay)
      : graph_(overlay != nullptr ? overlay->graph : m.model->graph()),
        shapes_(*m.model->InferShapes(batch.size)),
        values_(graph_.values.size()),
        gradients_(graph_.values.size()),
        wants_(graph_.nodes.size()),
        ops_(graph_.nodes.size()),
        workspaces_(graph_.nodes.size()) {
    TakeTypes(overlay);
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      values_[v].assign(BytesOf(v), '\xff');
    }
    for (const Initializer& i : m.model->graph().initializers) {
      Set(i.value, i.tensor.bytes.data(), i.tensor.bytes.size());
    }
    for (size_t i = 0; i < m.training.parameters.size(); ++i) {
      const auto w = executor.parameter(i);
      Set(m.training.parameters[i].value, w.data(), w.size() * sizeof(float));
    }
    Set(m.training.feeds[0], batch.feeds[0].data(),
        batch.feeds[0].size() * sizeof(float));
    for (const int n : order_) Forward(n);
    StartGradient(m.training.loss_output, batch);
    for (size_t p = order_.size(); p-- > 0;) Backward(order_[p]);
  }

  // Of a parameter; zeros if no gradient arrived.
  std::vector<float> gradient(ValueId v) const {
    std::vector<float> g(ElementCount(shapes_[v]));
    if (!gradients_[v].empty()) {
      std::memcpy(g.data(), gradients_[v].data(), gradients_[v].size());
    }
    return g;
  }

 private:
  // The order of nodes, what has a gradient, and which gradients are one.
  void TakeTypes(const DTypeOverlay* overlay) {
    for (size_t v = 0; v < graph_.values.size(); ++v) sources_.push_back(v);
    if (overlay != nullptr) {
      sources_ = overlay->sources;
      for (size_t v = shapes_.size(); v < sources_.size(); ++v) {
        shapes_.push_back(Dims(shapes_[sources_[v]]));
      }
      order_ = overlay->flow.nodes;
      for (size_t p = 0; p < order_.size(); ++p) {
        wants_[order_[p]] = overlay->flow.wants_gradient[p];
      }
      return;
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      order_.push_back(n);
      const Node& node = graph_.nodes[n];
      const uint32_t positions = FindOp(node.op_type)->differentiable_inputs;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        wants_[n].push_back((positions >> i & 1) != 0);
      }
    }
  }

  size_t BytesOf(ValueId v) const {
    return ElementCount(shapes_[v]) * DTypeBytes(graph_.values[v].dtype);
  }
  void Set(ValueId v, const void* data, size_t bytes) {
    if (bytes > 0) std::memcpy(values_[v].data(), data, bytes);
  }

  TensorType TypeOf(ValueId v) const {
    return {.present = true,
            .dtype = graph_.values[v].dtype,
            .gradient_dtype = graph_.values[sources_[v]].dtype,
            .dims = shapes_[v]};
  }

  OpSpec SpecOf(size_t n) const {
    const Node& node = graph_.nodes[n];
    OpSpec spec = testing::HostSpec();
    spec.node = &node;
    spec.training = true;
    for (ValueId v : node.inputs) {
      spec.inputs.push_back(TypeOf(v));
      spec.inputs.back().constant = values_[v].data();
    }
    spec.wants_gradient = wants_[n];
    spec.outputs.push_back(TypeOf(node.outputs[0]));
    return spec;
  }

  Op::Tensors TensorsOf(size_t n) {
    const Node& node = graph_.nodes[n];
    inputs_.clear();
    for (ValueId v : node.inputs) inputs_.push_back(values_[v].data());
    outputs_ = {values_[node.outputs[0]].data()};
    const Op::Traits& traits = ops_[n]->traits();
    scratch_.assign(
        std::max(traits.forward_scratch_bytes, traits.backward_scratch_bytes),
        '\xff');
    numbers_ = {.seed = SeedFor(kExecutorSeed, kClock)};
    return {.inputs = inputs_,
            .outputs = outputs_,
            .workspace = workspaces_[n].data(),
            .scratch = scratch_.data(),
            .numbers = &numbers_,
            .node = n};
  }

  void Forward(size_t n) {
    ops_[n] = *CreateTypedOp(SpecOf(n));
    workspaces_[n].resize(ops_[n]->traits().workspace_bytes);
    ASSERT_TRUE(testing::RunForward(*ops_[n], TensorsOf(n)).ok());
  }

  void StartGradient(ValueId y, const Batch& batch) {
    const auto* scores = reinterpret_cast<const float*>(values_[y].data());
    std::vector<float> dy;
    for (size_t i = 0; i < batch.labels.size(); ++i) {
      dy.push_back(2 * (scores[i] - batch.labels[i]) / 4);
    }
    gradients_[y].assign(reinterpret_cast<const char*>(dy.data()),
                         dy.size() * sizeof(float));
  }

  void Backward(size_t n) {
    const Node& node = graph_.nodes[n];
    const std::string& dy = gradients_[node.outputs[0]];
    const bool any = absl::c_linear_search(wants_[n], true);
    if (dy.empty() || !any) return;
    std::vector<float*> pointers(node.inputs.size(), nullptr);
    absl::InlinedVector<bool, 8> accumulates(node.inputs.size(), false);
    for (size_t i = node.inputs.size(); i-- > 0;) {
      if (!wants_[n][i]) continue;
      const ValueId v = sources_[node.inputs[i]];
      accumulates[i] = !gradients_[v].empty();
      gradients_[v].resize(BytesOf(v), '\xff');
      pointers[i] = reinterpret_cast<float*>(gradients_[v].data());
    }
    const std::vector<const float*> output = {
        reinterpret_cast<const float*>(dy.data())};
    ASSERT_TRUE(
        testing::RunBackward(
            *ops_[n], TensorsOf(n),
            {.outputs = output, .inputs = pointers, .accumulates = accumulates})
            .ok());
  }

  const Graph& graph_;
  std::vector<Dims> shapes_;
  std::vector<std::string> values_;       // bytes
  std::vector<std::string> gradients_;    // likewise; empty: none arrived
  std::vector<ValueId> sources_;          // by value: whose gradient is its own
  std::vector<int> order_;                // of the nodes
  std::vector<std::vector<bool>> wants_;  // by node, by input
  std::vector<std::unique_ptr<Op>> ops_;  // by node
  std::vector<std::vector<char>> workspaces_;
  std::vector<char> scratch_;
  StepNumbers numbers_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

class Fixture {
 public:
  explicit Fixture(uint64_t seed, int recompute_segments = 1,
                   DType precision = DType::kFloat32,
                   int64_t gather_unit_bytes = 0)
      : precision_(precision) {
    const RandomGraph graph(seed);
    model_ = MakeTrainingModel(graph.signature(), graph.initializers(),
                               graph.body(), /*opset=*/20);
    Executor::Options options;
    options.loss.set_kind(LossSpec::MEAN_SQUARED_ERROR);
    options.batch_size = kBatch;
    options.seed = kExecutorSeed;
    options.recompute_segments = recompute_segments;
    options.precision = precision;
    options.gather_unit_bytes = gather_unit_bytes;
    executor_ = *Executor::Create(model_.model, model_.training, options);
    Random random(seed);
    for (size_t i = 0; i < count(); ++i) {
      for (float& w : executor_->parameter(i)) w = random.Uniform() - 0.5;
    }
    batch_.size = kBatch;
    batch_.label_width = 4;
    batch_.feeds.resize(1);
    for (int64_t i = 0; i < kBatch * 4; ++i) {
      batch_.feeds[0].push_back(random.Uniform() * 2 - 1);
      batch_.labels.push_back(random.Uniform());
    }
  }

  size_t count() const { return model_.training.parameters.size(); }

  std::vector<std::vector<float>> Step(bool overwrite) {
    const auto result = executor_->TrainStep(batch_, kClock, [&](int i) {
      if (!overwrite) return;
      for (float& w : executor_->parameter(i)) {
        w = std::numeric_limits<float>::quiet_NaN();
      }
    });
    EXPECT_TRUE(result.ok()) << result.status();
    std::vector<std::vector<float>> gradients;
    for (size_t i = 0; i < count(); ++i) {
      const auto g = executor_->gradient(i);
      gradients.emplace_back(g.begin(), g.end());
    }
    return gradients;
  }

  Executor& executor() { return *executor_; }

  // REQUIRES: units.
  std::vector<std::vector<float>> GatheredStep() {
    std::vector<std::vector<float>> values;
    for (size_t i = 0; i < count(); ++i) {
      const auto from = executor_->parameter(static_cast<int>(i));
      values.emplace_back(from.begin(), from.end());
    }
    testing::CopyGatherer gatherer(executor_.get(), std::move(values));
    auto gradients = Step(/*overwrite=*/true);
    executor_->UseGatherer(nullptr);
    return gradients;
  }

  std::vector<std::vector<float>> Interpreted() {
    const Graph& graph = model_.model->graph();
    std::vector<ValueId> parameters;
    for (const auto& p : model_.training.parameters) {
      parameters.push_back(p.value);
    }
    const BackwardGraph flow =
        BuildBackwardGraph(graph, model_.training.loss_output, parameters);
    const DTypeOverlay overlay =
        OverlayDTypes({.graph = &graph,
                       .flow = &flow,
                       .data = model_.training.feeds,
                       .loss_output = model_.training.loss_output,
                       .type = precision_});
    const Interpreter interpreter(
        model_, *executor_, batch_,
        precision_ == DType::kFloat32 ? nullptr : &overlay);
    std::vector<std::vector<float>> gradients;
    for (const auto& p : model_.training.parameters) {
      gradients.push_back(interpreter.gradient(p.value));
    }
    return gradients;
  }

 private:
  const DType precision_;
  TrainingModel model_;
  std::unique_ptr<Executor> executor_;
  Batch batch_;
};

TEST(StepMemoryTest, SharingChangesNothingInRandomGraphs) {
  int with_gradient = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed, "\n", RandomGraph(seed).body()));
    Fixture fixture(seed);
    const auto want = fixture.Interpreted();
    const auto got = fixture.Step(/*overwrite=*/false);
    for (size_t i = 0; i < want.size(); ++i) {
      for (size_t j = 0; j < want[i].size(); ++j) {
        ASSERT_NEAR(got[i][j], want[i][j],
                    1e-4 * std::max(1.0f, std::fabs(want[i][j])))
            << "parameter " << i << "[" << j << "]";
        with_gradient += want[i][j] != 0;
      }
    }
    ASSERT_EQ(fixture.Step(/*overwrite=*/true), got);
    for (const int segments : {2, 3, 5, 40}) {
      Fixture recomputed(seed, segments);
      ASSERT_EQ(recomputed.Step(/*overwrite=*/true), got) << segments;
    }
    if (::testing::Test::HasFailure()) return;
  }
  // The graphs are not so dull that nothing was compared.
  EXPECT_GT(with_gradient, static_cast<int>(kSeeds) * 5);
}

// Parameters in units of one operator, of a few and of all: what no operator
// may read is NaN.
TEST(StepMemoryTest, GatheredParametersChangeNoBit) {
  size_t units = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed, "\n", RandomGraph(seed).body()));
    const auto want = Fixture(seed).Step(/*overwrite=*/false);
    for (const int64_t unit_bytes : {1, 192, 4096}) {
      Fixture gathered(seed, /*recompute_segments=*/1, DType::kFloat32,
                       unit_bytes);
      ASSERT_EQ(gathered.GatheredStep(), want) << unit_bytes;
      units += gathered.executor().gather_units().size();
    }
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(units, kSeeds * 2);
}

// All is rounded in the same places, so the bits are the same.
TEST(StepMemoryTest, SharingChangesNoBitIn16Bits) {
  int differ = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed, "\n", RandomGraph(seed).body()));
    for (const DType type : {DType::kBfloat16, DType::kFloat16}) {
      Fixture fixture(seed, /*recompute_segments=*/1, type);
      const auto want = fixture.Interpreted();
      ASSERT_EQ(fixture.Step(/*overwrite=*/false), want);
      ASSERT_EQ(fixture.Step(/*overwrite=*/true), want);
      for (const int segments : {2, 5, 40}) {
        Fixture recomputed(seed, segments, type);
        ASSERT_EQ(recomputed.Step(/*overwrite=*/true), want) << segments;
      }
      differ += want != Fixture(seed).Step(/*overwrite=*/false);
    }
    if (::testing::Test::HasFailure()) return;
  }
  // Most graphs have a product.
  EXPECT_GT(differ, static_cast<int>(kSeeds));
}

}  // namespace
}  // namespace syncline::worker

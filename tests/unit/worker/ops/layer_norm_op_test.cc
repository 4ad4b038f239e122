// Goal: a gradient flows from each output of LayerNormalization, also where the
// others have none. Method: central differences of the reference, in double,
// for every choice of outputs.

#include "worker/ops/layer_norm_op.h"

#include "absl/strings/str_cat.h"
#include "common/base/aligned_buffer.h"
#include "kernels/reference_layer_norm.h"
#include "tests/testing/arrays.h"
#include "worker/ops/op_table.h"

namespace syncline {
namespace {

using testing::Dot;
using testing::DoubleArray;
using testing::ExpectNear;
using testing::FiniteDifferences;
using testing::RandomArray;
using testing::ToFloats;

constexpr int64_t kRows = 3;
constexpr int64_t kWidth = 5;

// Y, Mean and InvStdDev.
std::vector<DoubleArray> Outputs(const std::vector<DoubleArray>& in) {
  const reference::LayerNormAttributes a = {.axis = 1,
                                            .epsilon = double{1e-5f}};
  std::vector<DoubleArray> out = {reference::LayerNorm(a, in),
                                  DoubleArray({kRows, 1}),
                                  DoubleArray({kRows, 1})};
  for (int64_t r = 0; r < kRows; ++r) {
    const auto row =
        reference::NormalizeRow(a, in[0].values.data() + r * kWidth, kWidth);
    out[1].values[r] = row.mean;
    out[2].values[r] = row.inverse;
  }
  return out;
}

TEST(LayerNormOpTest, EveryOutputHasAGradient) {
  std::vector<DoubleArray> in = {RandomArray({kRows, kWidth}, 1),
                                 RandomArray({kWidth}, 2),
                                 RandomArray({kWidth}, 3)};
  const std::vector<DoubleArray> dy = {RandomArray({kRows, kWidth}, 4),
                                       RandomArray({kRows, 1}, 5),
                                       RandomArray({kRows, 1}, 6)};
  Node node;
  node.op_type = "LayerNormalization";
  node.since_version = 17;
  node.inputs = {0, 1, 2};
  OpSpec spec;
  spec.node = &node;
  std::vector<std::vector<float>> x, y, up;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (size_t i = 0; i < 3; ++i) {
    x.push_back(ToFloats(in[i].values));
    y.emplace_back(dy[i].values.size());
    up.push_back(ToFloats(dy[i].values));
    spec.inputs.push_back({.present = true, .dims = in[i].dims});
    spec.outputs.push_back({.present = true, .dims = dy[i].dims});
    inputs.push_back(x[i].data());
    outputs.push_back(y[i].data());
  }
  spec.wants_gradient = {true, true, true};
  auto op = CreateOp(spec);
  ASSERT_TRUE(op.ok()) << op.status();
  AlignedFloats workspace((*op)->traits().workspace_bytes / sizeof(float));
  const Op::Tensors tensors = {
      .inputs = inputs, .outputs = outputs, .workspace = workspace.data()};
  ASSERT_TRUE((*op)->Forward(tensors).ok());
  for (size_t i = 0; i < 3; ++i) ExpectNear(y[i], Outputs(in)[i].values, 1e-5);

  for (uint32_t chosen = 1; chosen < 8; ++chosen) {
    for (const float before : {0.0f, 1.0f}) {
      SCOPED_TRACE(absl::StrCat("outputs ", chosen, ", added to ", before));
      std::vector<const float*> gradients;
      for (size_t i = 0; i < 3; ++i) {
        gradients.push_back(chosen >> i & 1 ? up[i].data() : nullptr);
      }
      std::vector<std::vector<float>> dx;
      std::vector<float*> pointers;
      for (size_t i = 0; i < 3; ++i) {
        dx.emplace_back(x[i].size(), before != 0 ? before : std::nanf(""));
      }
      for (size_t i = 0; i < 3; ++i) pointers.push_back(dx[i].data());
      ASSERT_TRUE(
          (*op)
              ->Backward(tensors, {.outputs = gradients,
                                   .inputs = pointers,
                                   .accumulate_mask = before != 0 ? 7u : 0u})
              .ok());
      for (size_t i = 0; i < 3; ++i) {
        std::vector<double> want = FiniteDifferences(in[i].values, [&] {
          const std::vector<DoubleArray> out = Outputs(in);
          double sum = 0;
          for (size_t o = 0; o < 3; ++o) {
            if (chosen >> o & 1) sum += Dot(out[o].values, dy[o].values);
          }
          return sum;
        });
        for (double& v : want) v += before;
        ExpectNear(dx[i], want, 1e-4);
      }
    }
  }
}

}  // namespace
}  // namespace syncline

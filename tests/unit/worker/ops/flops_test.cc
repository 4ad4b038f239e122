// Goal: FLOPs are what one would count by hand. Method: a table of nodes with
// their shapes, each with the number written out.

#include "worker/ops/flops.h"

#include "gtest/gtest.h"
#include "tests/testing/op_device.h"

namespace syncline::worker {
namespace {

TensorType Of(const Dims& dims) { return {.present = true, .dims = dims}; }

// All inputs want gradients unless `wants` says which.
OpFlops Flops(const Node& node, const std::vector<Dims>& inputs,
              const Dims& output, std::vector<bool> wants = {}) {
  OpSpec spec = testing::HostSpec();
  spec.node = &node;
  for (const Dims& dims : inputs) spec.inputs.push_back(Of(dims));
  spec.outputs.push_back(Of(output));
  spec.wants_gradient =
      wants.empty() ? std::vector<bool>(inputs.size(), true) : wants;
  return FlopsOf(spec);
}

Node Named(const std::string& type) {
  Node node;
  node.op_type = type;
  return node;
}

OpFlops Both(double forward, double backward) { return {forward, backward}; }

TEST(FlopsTest, GemmIsTwiceItsProductAndTheSumOfItsBias) {
  Node gemm = Named("Gemm");
  EXPECT_EQ(Flops(gemm, {{32, 784}, {784, 256}, {256}}, {32, 256}),
            Both(2.0 * 32 * 784 * 256 + 32 * 256,
                 2 * 2.0 * 32 * 784 * 256 + 32 * 256));
  // The first layer's input has no gradient.
  EXPECT_EQ(Flops(gemm, {{32, 784}, {784, 256}}, {32, 256}, {false, true}),
            Both(2.0 * 32 * 784 * 256, 2.0 * 32 * 784 * 256));
  gemm.attributes["transA"] = int64_t{1};
  EXPECT_EQ(Flops(gemm, {{784, 32}, {784, 256}}, {32, 256}, {false, false}),
            Both(2.0 * 32 * 784 * 256, 0));
}

TEST(FlopsTest, MatMulCountsItsBatches) {
  EXPECT_EQ(
      Flops(Named("MatMul"), {{8, 4, 16, 32}, {8, 4, 32, 10}}, {8, 4, 16, 10}),
      Both(2.0 * 8 * 4 * 16 * 32 * 10, 4.0 * 8 * 4 * 16 * 32 * 10));
}

TEST(FlopsTest, ConvolutionsCountTheirKernelPerGroup) {
  EXPECT_EQ(Flops(Named("Conv"), {{2, 6, 10, 10}, {8, 3, 5, 5}, {8}},
                  {2, 8, 6, 6}, {false, true, true}),
            Both(2.0 * 2 * 8 * 36 * 3 * 25 + 2 * 8 * 36,
                 2.0 * 2 * 8 * 36 * 3 * 25 + 2 * 8 * 36));
  EXPECT_EQ(Flops(Named("ConvTranspose"), {{2, 8, 6, 6}, {8, 3, 5, 5}},
                  {2, 3, 10, 10}),
            Both(2.0 * 2 * 8 * 36 * 3 * 25, 4.0 * 2 * 8 * 36 * 3 * 25));
}

TEST(FlopsTest, AttentionIsTwoProductsAHead) {
  const double flops = 2.0 * 2 * 4 * 16 * 16 * (8 + 8);
  const Dims heads = {2, 4, 16, 8};
  EXPECT_EQ(Flops(Named("Attention"), {heads, heads, heads}, heads),
            Both(flops, 2 * flops));
  const Dims rows = {2, 16, 32};
  EXPECT_EQ(Flops(Named("Attention"), {rows, rows, rows}, rows,
                  {false, false, false}),
            Both(flops, 0));
}

TEST(FlopsTest, EinsumIsOneTermForAllLabels) {
  Node einsum = Named("Einsum");
  einsum.attributes["equation"] = std::string("bij,bjk->bik");
  EXPECT_EQ(Flops(einsum, {{2, 3, 4}, {2, 4, 5}}, {2, 3, 5}),
            Both(2.0 * 2 * 3 * 4 * 5, 4.0 * 2 * 3 * 4 * 5));
}

TEST(FlopsTest, RecurrentNetworksMeetTheirWeightsInEveryStep) {
  const double of_input = 2.0 * 7 * 5 * 2 * (4 * 16) * 8;
  const double of_state = 2.0 * 7 * 5 * 2 * (4 * 16) * 16;
  const std::vector<Dims> inputs = {{7, 5, 8}, {2, 64, 8}, {2, 64, 16}};
  const Dims y = {7, 2, 5, 16};
  EXPECT_EQ(Flops(Named("LSTM"), inputs, y),
            Both(of_input + of_state, 2 * of_input + 2 * of_state));
  EXPECT_EQ(Flops(Named("LSTM"), inputs, y, {false, true, true}),
            Both(of_input + of_state, of_input + 2 * of_state));
  EXPECT_EQ(Flops(Named("LSTM"), inputs, y, {false, false, false}),
            Both(of_input + of_state, 0));
  EXPECT_EQ(Flops(Named("GRU"), {{7, 5, 8}, {1, 48, 8}, {1, 48, 16}},
                  {7, 1, 5, 16}, {false, false, false}),
            Both(2.0 * 7 * 5 * 48 * (8 + 16), 0));
}

TEST(FlopsTest, TheRestCountsNumbersAndWhatOnlyMovesNothing) {
  EXPECT_EQ(Flops(Named("Relu"), {{4, 8}}, {4, 8}), Both(32, 32));
  EXPECT_EQ(Flops(Named("Add"), {{4, 8}, {8}}, {4, 8}), Both(32, 64));
  EXPECT_EQ(Flops(Named("ReduceSum"), {{4, 8}}, {4}), Both(32, 32));
  for (const char* type : {"Reshape", "Transpose", "Gather", "Split", "Pad",
                           "ScatterElements", "ScatterND"}) {
    EXPECT_EQ(Flops(Named(type), {{4, 8}}, {4, 8}), Both(0, 0)) << type;
  }
}

}  // namespace
}  // namespace syncline::worker

// Goal: Xavier and He scale by the fans of the operator that uses the weights,
// whatever order of dimensions it keeps them in. Method: graphs of one or a few
// nodes; fans counted by hand. Where PyTorch has the layer, the numbers are
// what its nn.init computes for that layer's weight.

#include "worker/compute/fans.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "common/model/graph/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/compute/initializers.h"

namespace syncline::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Attributes = std::map<std::string, Attribute>;

// Value 0 is the weights, 1 and 2 are what else there is.
class GraphOf {
 public:
  explicit GraphOf(const Dims& weights) {
    graph_.values.resize(3);
    graph_.values[0].dims = weights;
  }

  // Reads `value` as its input number `position`.
  GraphOf& Reads(const std::string& op_type, size_t position,
                 const Attributes& attributes = {}, ValueId value = 0) {
    Node node;
    node.name = op_type + "_node";
    node.op_type = op_type;
    node.inputs = {1, 2, kNoValue, kNoValue, kNoValue, kNoValue, kNoValue, 1};
    node.inputs[position] = value;
    node.outputs = {kNoValue};
    node.attributes = attributes;
    graph_.nodes.push_back(node);
    return *this;
  }
  // The value that a node with `dims` makes of `value`.
  ValueId Makes(const std::string& op_type, const Dims& dims,
                const Attributes& attributes = {}, ValueId value = 0) {
    Node node;
    node.name = op_type + "_node";
    node.op_type = op_type;
    node.inputs = {value};
    node.outputs = {static_cast<ValueId>(graph_.values.size())};
    node.attributes = attributes;
    graph_.nodes.push_back(node);
    graph_.values.emplace_back().dims = dims;
    return graph_.nodes.back().outputs[0];
  }
  GraphOf& Multiplies(const std::string& equation, const Dims& other,
                      size_t position) {
    Node node;
    node.op_type = "Einsum";
    node.inputs = {1, 1};
    node.inputs[position] = 0;
    node.attributes = {{"equation", equation}};
    graph_.nodes.push_back(node);
    graph_.values[1].dims = other;
    return *this;
  }
  FansOfUse Fans() const { return FansOf(graph_, 0); }

 private:
  Graph graph_;
};

void ExpectFans(const FansOfUse& use, int64_t in, int64_t out) {
  EXPECT_EQ(use.fans.in, in);
  EXPECT_EQ(use.fans.out, out);
  EXPECT_THAT(use.doubt, IsEmpty());
}

TEST(FansTest, OfMatrices) {
  // nn.Linear(784, 256): [256, 784].
  ExpectFans(
      GraphOf({256, 784}).Reads("Gemm", 1, {{"transB", int64_t{1}}}).Fans(),
      784, 256);
  ExpectFans(GraphOf({784, 256}).Reads("Gemm", 1).Fans(), 784, 256);
  ExpectFans(GraphOf({256, 784}).Reads("Gemm", 0).Fans(), 784, 256);
  ExpectFans(
      GraphOf({784, 256}).Reads("Gemm", 0, {{"transA", int64_t{1}}}).Fans(),
      784, 256);
  ExpectFans(GraphOf({784, 256}).Reads("MatMul", 1).Fans(), 784, 256);
  ExpectFans(GraphOf({256, 784}).Reads("MatMul", 0).Fans(), 784, 256);
  ExpectFans(GraphOf({8, 784, 256}).Reads("MatMul", 1).Fans(), 784, 256);
  ExpectFans(GraphOf({784}).Reads("MatMul", 1).Fans(), 784, 1);
}

TEST(FansTest, OfConvolutions) {
  // nn.Conv2d(32, 64, 5): 32 * 25 and 64 * 25.
  ExpectFans(GraphOf({64, 32, 5, 5}).Reads("Conv", 1).Fans(), 800, 1600);
  // nn.Conv2d(1, 32, 5), the first layer of the mnist-cnn example.
  ExpectFans(GraphOf({32, 1, 5, 5}).Reads("Conv", 1).Fans(), 25, 800);
  // nn.Conv1d(6, 4, 3).
  ExpectFans(GraphOf({4, 6, 3}).Reads("Conv", 1).Fans(), 18, 12);
  // nn.Conv2d(16, 32, 3, groups=4): an output has 4 of the 16 channels.
  ExpectFans(
      GraphOf({32, 4, 3, 3}).Reads("Conv", 1, {{"group", int64_t{4}}}).Fans(),
      36, 288);
  // Depthwise.
  ExpectFans(
      GraphOf({16, 1, 3, 3}).Reads("Conv", 1, {{"group", int64_t{16}}}).Fans(),
      9, 144);
}

TEST(FansTest, OfTransposedConvolutions) {
  // nn.ConvTranspose2d(64, 32, 5): [64, 32, 5, 5], 64 channels in.
  ExpectFans(GraphOf({64, 32, 5, 5}).Reads("ConvTranspose", 1).Fans(), 1600,
             800);
  // 16 channels in, 32 out, 4 groups: as the Conv with these.
  ExpectFans(GraphOf({16, 8, 3, 3})
                 .Reads("ConvTranspose", 1, {{"group", int64_t{4}}})
                 .Fans(),
             36, 288);
}

TEST(FansTest, OfRecurrentLayers) {
  // nn.LSTM(10, 20): weight_ih_l0 [80, 10], weight_hh_l0 [80, 20].
  ExpectFans(GraphOf({1, 80, 10}).Reads("LSTM", 1).Fans(), 10, 80);
  ExpectFans(GraphOf({1, 80, 20}).Reads("LSTM", 2).Fans(), 20, 80);
  // A direction does not read the other's weights.
  ExpectFans(GraphOf({2, 60, 10}).Reads("GRU", 1).Fans(), 10, 60);
  ExpectFans(GraphOf({2, 20, 20}).Reads("RNN", 2).Fans(), 20, 20);
  ExpectFans(GraphOf({2, 160}).Reads("LSTM", 3).Fans(), 160, 160);
  ExpectFans(GraphOf({2, 60}).Reads("LSTM", 7).Fans(), 60, 60);
  // An initial state is not multiplied by.
  EXPECT_THAT(GraphOf({1, 4, 20}).Reads("LSTM", 5).Fans().doubt,
              HasSubstr("no node"));
}

TEST(FansTest, OfEinsum) {
  ExpectFans(GraphOf({784, 256}).Multiplies("bi,io->bo", {-1, 784}, 1).Fans(),
             784, 256);
  ExpectFans(
      GraphOf({256, 784}).Multiplies("oi,...i->...o", {-1, 7, 784}, 0).Fans(),
      784, 256);
  // Heads of attention: [dim, heads, size] each.
  ExpectFans(
      GraphOf({64, 4, 16}).Multiplies("btd,dhk->bthk", {-1, 9, 64}, 1).Fans(),
      64, 64);
  // One matrix for each of 3 experts.
  ExpectFans(
      GraphOf({3, 8, 5}).Multiplies("ebi,eio->ebo", {3, -1, 8}, 1).Fans(), 8,
      5);
}

TEST(FansTest, OfTables) {
  // nn.Embedding(1000, 64).
  ExpectFans(GraphOf({1000, 64}).Reads("Gather", 0).Fans(), 64, 1000);
  // A table that is the last layer's weights, too.
  ExpectFans(GraphOf({1000, 64})
                 .Reads("Gather", 0)
                 .Reads("Gemm", 1, {{"transB", int64_t{1}}})
                 .Fans(),
             64, 1000);
}

TEST(FansTest, ThroughWhatOnlyRearranges) {
  const std::vector<int64_t> swap = {1, 0};
  GraphOf linear({256, 784});
  linear.Reads("MatMul", 1, {},
               linear.Makes("Transpose", {784, 256}, {{"perm", swap}}));
  ExpectFans(linear.Fans(), 784, 256);

  GraphOf reversed({256, 784});
  reversed.Reads("MatMul", 1, {}, reversed.Makes("Transpose", {784, 256}));
  ExpectFans(reversed.Fans(), 784, 256);

  GraphOf window({64, 32, 5});
  window.Reads("Conv", 1, {},
               window.Makes("Unsqueeze", {64, 32, 5, 1}, {},
                            window.Makes("Identity", {64, 32, 5})));
  ExpectFans(window.Fans(), 160, 320);

  // An operator that puts numbers elsewhere is not followed.
  GraphOf other({64, 32});
  other.Reads("MatMul", 1, {}, other.Makes("Reshape", {32, 64}));
  EXPECT_THAT(other.Fans().doubt, HasSubstr("no node"));
}

TEST(FansTest, ByTheShapeWhereNoNodeMultiplies) {
  const auto expect = [](const FansOfUse& use, int64_t in, int64_t out) {
    EXPECT_EQ(use.fans.in, in);
    EXPECT_EQ(use.fans.out, out);
    EXPECT_EQ(use.doubt.find("no node is known to multiply by it"), 0u);
  };
  expect(GraphOf({256}).Reads("Gemm", 2).Fans(), 256, 256);
  expect(GraphOf({}).Reads("Add", 1).Fans(), 1, 1);
  expect(GraphOf({4, 3}).Reads("Mul", 1).Fans(), 3, 4);
  expect(GraphOf({4, 3, 5}).Reads("Add", 1).Fans(), 15, 20);
  EXPECT_EQ(GraphOf({4, 3, 5}).Fans().doubt,
            "no node is known to multiply by it; its shape [4,3,5] gives in=15 "
            "out=20");
}

TEST(FansTest, TheFirstOfDifferingReadersCountsAndIsNamed) {
  const FansOfUse use = GraphOf({30, 40})
                            .Reads("Add", 1)
                            .Reads("MatMul", 1)
                            .Reads("Gemm", 1, {{"transB", int64_t{1}}})
                            .Fans();
  EXPECT_EQ(use.fans.in, 30);
  EXPECT_EQ(use.fans.out, 40);
  EXPECT_EQ(use.doubt,
            "node \"MatMul_node\" gives in=30 out=40, which counts, and node "
            "\"Gemm_node\" in=40 out=30");
}

TEST(FansTest, AProductCountsBeforeATable) {
  const FansOfUse use =
      GraphOf({30, 40}).Reads("Gather", 0).Reads("MatMul", 1).Fans();
  EXPECT_EQ(use.fans.in, 30);
  EXPECT_THAT(use.doubt, HasSubstr("Gather_node"));
}

// nn.init.kaiming_normal_ of nn.Conv2d(1, 32, 5).weight: deviation
// sqrt(2 / 25). With the two dimensions exchanged it would be 5.7 x smaller.
TEST(FansTest, HeScalesAConvolutionAsPyTorchDoes) {
  InitializerRule rule;
  rule.set_scheme(InitializerRule::HE_NORMAL);
  std::vector<float> values(32 * 25 * 100);
  InitializeParameter(rule, GraphOf({32, 1, 5, 5}).Reads("Conv", 1).Fans().fans,
                      1, "w1", absl::MakeSpan(values));
  double squares = 0;
  for (const float v : values) squares += double{v} * v;
  EXPECT_NEAR(std::sqrt(squares / values.size()), std::sqrt(2.0 / 25), 0.003);
}

}  // namespace
}  // namespace syncline::worker

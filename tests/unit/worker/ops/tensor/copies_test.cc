// Goal: Split cuts along its axis, and its gradient is the outputs' gradients
// joined again, zero where an output has none. Method: counted numbers through
// each way of asking for the sizes.

#include <array>
#include <numeric>

#include "tests/testing/arrays.h"
#include "tests/testing/op_device.h"
#include "worker/ops/op_table.h"

namespace syncline::worker {
namespace {

class SplitTest : public ::testing::Test {
 protected:
  SplitTest() {
    node_.name = "split";
    node_.op_type = "Split";
    node_.since_version = 13;
    node_.attributes["axis"] = int64_t{1};
    node_.outputs = {1, 2, 3};
    spec_.node = &node_;
    spec_.inputs = {{.present = true, .dims = {2, 4}}};
    spec_.wants_gradient = {true};
    SetWidths({1, 2, 1});
    std::iota(x_.begin(), x_.end(), 0.0f);
  }

  void SetWidths(const std::vector<int64_t>& widths) {
    spec_.outputs.clear();
    y_.clear();
    for (int64_t width : widths) {
      spec_.outputs.push_back({.present = true, .dims = {2, width}});
      y_.emplace_back(2 * width, -1.0f);
    }
  }

  void Create() {
    auto op = CreateOp(spec_);
    ASSERT_TRUE(op.ok()) << op.status();
    op_ = *std::move(op);
  }

  void Forward(std::vector<void*> outputs) {
    const std::vector<const void*> inputs = {x_.data()};
    ASSERT_TRUE(
        testing::RunForward(*op_, {.inputs = inputs, .outputs = outputs}).ok());
  }

  std::vector<float> Backward(std::vector<const float*> dy, bool accumulate) {
    std::vector<float> dx(8, 100.0f);
    const std::vector<float*> pointers = {dx.data()};
    const std::array<bool, 1> accumulates = {accumulate};
    EXPECT_TRUE(
        testing::RunBackward(
            *op_, {},
            {.outputs = dy, .inputs = pointers, .accumulates = accumulates})
            .ok());
    return dx;
  }

  Node node_;
  OpSpec spec_ = testing::HostSpec();
  std::unique_ptr<Op> op_;
  std::vector<float> x_ = std::vector<float>(8);
  std::vector<std::vector<float>> y_;
};

TEST_F(SplitTest, CutsAlongItsAxis) {
  Create();
  Forward({y_[0].data(), y_[1].data(), y_[2].data()});
  EXPECT_EQ(y_[0], (std::vector<float>{0, 4}));
  EXPECT_EQ(y_[1], (std::vector<float>{1, 2, 5, 6}));
  EXPECT_EQ(y_[2], (std::vector<float>{3, 7}));
}

TEST_F(SplitTest, AnOutputThatNobodyReadsIsNotWritten) {
  Create();
  Forward({y_[0].data(), nullptr, y_[2].data()});
  EXPECT_EQ(y_[2], (std::vector<float>{3, 7}));
}

TEST_F(SplitTest, GradientsAreJoined) {
  Create();
  const std::vector<float> a = {1, 2}, b = {3, 4, 5, 6}, c = {7, 8};
  EXPECT_EQ(Backward({a.data(), b.data(), c.data()}, false),
            (std::vector<float>{1, 3, 4, 7, 2, 5, 6, 8}));
  EXPECT_EQ(Backward({a.data(), b.data(), c.data()}, true),
            (std::vector<float>{101, 103, 104, 107, 102, 105, 106, 108}));
}

TEST_F(SplitTest, NoGradientIsZero) {
  Create();
  const std::vector<float> b = {3, 4, 5, 6};
  EXPECT_EQ(Backward({nullptr, b.data(), nullptr}, false),
            (std::vector<float>{0, 3, 4, 0, 0, 5, 6, 0}));
  EXPECT_EQ(Backward({nullptr, b.data(), nullptr}, true),
            (std::vector<float>{100, 103, 104, 100, 100, 105, 106, 100}));
}

TEST_F(SplitTest, PartsThatDoNotAddUpAreRefused) {
  SetWidths({1, 2, 2});
  EXPECT_EQ(CreateOp(spec_).status().message(),
            "node \"split\" (Split): the outputs' dimensions add up to 5, not "
            "4");
}

}  // namespace
}  // namespace syncline::worker

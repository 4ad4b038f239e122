// Goal: a node whose plane, or whose window along an axis, 32 bits do not count
// is refused by its name. Method: the text of the error, from shapes alone; at
// the limit there is none. (Windows that fit are op_table_test's.)

#include "worker/ops/nn/window.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/testing/op_device.h"
#include "worker/ops/op_table.h"

namespace syncline::worker {
namespace {

using ::testing::HasSubstr;

using Attributes = std::map<std::string, Attribute>;

std::string Refused(const std::string& op_type, const std::vector<Dims>& inputs,
                    const Dims& output, const Attributes& attributes) {
  Node node;
  node.name = "it";
  node.op_type = op_type;
  node.since_version = 13;
  node.attributes = attributes;
  OpSpec spec = testing::HostSpec();
  spec.node = &node;
  for (const Dims& dims : inputs) {
    spec.inputs.push_back({.present = true, .dims = dims});
  }
  spec.outputs = {{.present = true, .dims = output}};
  return std::string(CreateOp(spec).status().message());
}

const Attributes kOneByOne = {{"kernel_shape", std::vector<int64_t>{1, 1}}};

TEST(WindowTest, PlanesOfTooManyElementsAreRefused) {
  const Dims x = {1, 1, 65536, 65536};
  for (const char* const pool : {"AveragePool", "MaxPool"}) {
    EXPECT_EQ(Refused(pool, {x}, x, kOneByOne),
              std::string("node \"it\" (") + pool +
                  "): a plane of 65536 x 65536 elements; at most 2^31 - 1");
  }
  for (const char* const layer : {"Conv", "ConvTranspose"}) {
    EXPECT_EQ(Refused(layer, {x, {1, 1, 1, 1}}, x, {}),
              std::string("node \"it\" (") + layer +
                  "): a plane of 65536 x 65536 elements; at most 2^31 - 1");
  }
}

// Padding alone can make so many results.
TEST(WindowTest, ResultsOfTooManyElementsAreRefused) {
  Attributes padded = kOneByOne;
  padded["pads"] = std::vector<int64_t>{32768, 32768, 32768, 32768};
  EXPECT_THAT(Refused("MaxPool", {{1, 1, 2, 2}}, {1, 1, 65538, 65538}, padded),
              HasSubstr("a plane of 65538 x 65538 elements; at most 2^31 - 1"));
}

TEST(WindowTest, AWindowThatReachesTooFarIsRefused) {
  const Attributes dilated = {{"auto_pad", std::string("SAME_UPPER")},
                              {"dilations", std::vector<int64_t>{1 << 24}}};
  EXPECT_THAT(Refused("Conv", {{1, 1, 4}, {1, 1, 300}}, {1, 1, 4}, dilated),
              HasSubstr("a dimension of 4 with 5016387584 of padding, under a "
                        "window of 5016387585 with a stride of 1; together at "
                        "most 2^31 - 1"));
}

Window OfOneAxis(int64_t in) {
  Node node;
  const Dims dims = {1, 1, in};
  const auto window = WindowOf(node, dims, dims, {1});
  EXPECT_TRUE(window.ok()) << window.status();
  return window.ok() ? *window : Window();
}

TEST(WindowTest, TheLargestPlaneIsTaken) {
  constexpr int64_t kLargest = (int64_t{1} << 31) - 1;
  // A window of 1 and a stride of 1 are counted too.
  EXPECT_EQ(OfOneAxis(kLargest - 2).in_count(), kLargest - 2);
  Node node;
  const Dims dims = {1, 1, kLargest - 1};
  EXPECT_FALSE(WindowOf(node, dims, dims, {1}).ok());
}

}  // namespace
}  // namespace syncline::worker

// Goal: an absent attribute, or one of another type, gives the default. Method:
// examples.

#include "common/model/graph/node.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(NodeTest, AttributesFallBack) {
  Node node;
  node.attributes["axis"] = int64_t{2};
  node.attributes["alpha"] = 0.5f;
  node.attributes["mode"] = std::string("tanh");
  node.attributes["perm"] = std::vector<int64_t>{1, 0};
  EXPECT_EQ(node.Int("axis", 7), 2);
  EXPECT_EQ(node.Int("absent", 7), 7);
  EXPECT_EQ(node.Int("alpha", 7), 7);  // another type
  EXPECT_EQ(node.Float("alpha", 1), 0.5f);
  EXPECT_EQ(node.Float("absent", 1), 1);
  EXPECT_EQ(node.String("mode", "none"), "tanh");
  EXPECT_EQ(node.String("absent", "none"), "none");
  EXPECT_THAT(node.Ints("perm"), ElementsAre(1, 0));
  EXPECT_THAT(node.Ints("absent"), IsEmpty());
  EXPECT_TRUE(node.Has("axis"));
  EXPECT_FALSE(node.Has("absent"));
}

}  // namespace
}  // namespace syncline

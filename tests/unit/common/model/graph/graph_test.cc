// Goal: a value is found by its name. Method: examples.

#include "common/model/graph/graph.h"

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(GraphTest, ValuesAreFoundByName) {
  Graph graph;
  graph.values.resize(2);
  graph.values[1].name = "x";
  EXPECT_EQ(graph.FindValue("x"), 1);
  EXPECT_EQ(graph.FindValue("y"), kNoValue);
}

}  // namespace
}  // namespace syncline

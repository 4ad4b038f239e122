// Goal: a value is found by its name as Graph::FindValue finds it. Method: a
// graph with a name that is there twice.

#include "common/model/graph/value_index.h"

#include "common/model/graph/graph.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(ValueIndexTest, FindsWhatTheGraphFinds) {
  Graph graph;
  for (const char* name : {"a", "b", "a"}) {
    graph.values.emplace_back().name = name;
  }
  const ValueIndex index(graph);
  for (const char* name : {"a", "b", "c", ""}) {
    EXPECT_EQ(index.Find(name), graph.FindValue(name)) << name;
  }
  EXPECT_EQ(index.Find("a"), 0);
}

}  // namespace
}  // namespace syncline

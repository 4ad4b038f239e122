// Goal: names from hostile files are printable and short in messages, patterns
// match as documented, and size limits hold without overflow.
// Method: tables; patterns against a plain recursive matcher on all short
// strings.

#include "common/model/graph/describe.h"

#include <limits>
#include <string>
#include <vector>

#include "common/model/graph/graph.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(DescribeTest, NamesAreEscapedAndShortened) {
  EXPECT_EQ(Quote("fc1/weight"), "'fc1/weight'");
  EXPECT_EQ(Quote("a\x1b[2J\n"), "'a\\x1b[2J\\n'");
  EXPECT_EQ(Quote(std::string(200, 'x')), "'" + std::string(120, 'x') + "...'");
}

TEST(DescribeTest, NodesAndTensors) {
  EXPECT_EQ(DescribeNode("fc1", "Gemm", 13), "node 'fc1' (Gemm, opset 13)");
  EXPECT_EQ(DescribeTensor(DType::kInt64, Dims{kBatchDim, 3}), "int64[N,3]");
}

TEST(DescribeTest, OfManyNamesTheFirstAreShown) {
  Graph graph;
  graph.values.resize(10);
  std::vector<ValueId> ids;
  for (ValueId v = 0; v < 10; ++v) {
    graph.values[v].name = std::string(1, static_cast<char>('a' + v));
    ids.push_back(v);
  }
  EXPECT_EQ(DescribeNames(graph, {}), "(none)");
  EXPECT_EQ(DescribeNames(graph, absl::MakeSpan(ids).first(2)), "('a', 'b')");
  EXPECT_EQ(DescribeNames(graph, ids),
            "('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', ...)");
}

bool MatchesSlowly(absl::string_view pattern, absl::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    return MatchesSlowly(pattern.substr(1), name) ||
           (!name.empty() && MatchesSlowly(pattern, name.substr(1)));
  }
  return !name.empty() && (pattern[0] == '?' || pattern[0] == name[0]) &&
         MatchesSlowly(pattern.substr(1), name.substr(1));
}

// All strings over `alphabet` of up to `length` characters.
std::vector<std::string> Strings(const std::string& alphabet, int length) {
  std::vector<std::string> all = {""};
  size_t begin = 0;
  for (int n = 0; n < length; ++n) {
    const size_t end = all.size();
    for (size_t i = begin; i < end; ++i) {
      for (char c : alphabet) all.push_back(all[i] + c);
    }
    begin = end;
  }
  return all;
}

TEST(DescribeTest, PatternsMatchLikeTheDefinition) {
  for (const std::string& pattern : Strings("a?*", 5)) {
    for (const std::string& name : Strings("ab", 5)) {
      ASSERT_EQ(MatchesPattern(pattern, name), MatchesSlowly(pattern, name))
          << pattern << " " << name;
    }
  }
  EXPECT_TRUE(MatchesPattern("fc*.weight", "fc12.weight"));
  EXPECT_FALSE(MatchesPattern("fc[1].weight", "fc1.weight"));
}

TEST(DescribeTest, LimitsDoNotOverflow) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(WithinLimits({}));
  EXPECT_TRUE(WithinLimits(Dims(kRankMax, 1)));
  EXPECT_FALSE(WithinLimits(Dims(kRankMax + 1, 1)));
  EXPECT_TRUE(WithinLimits(Dims{kElementsMax}));
  EXPECT_FALSE(WithinLimits(Dims{kElementsMax + 1}));
  EXPECT_FALSE(WithinLimits(Dims{kHuge, kHuge}));
  // An empty dimension does not hide large ones.
  EXPECT_FALSE(WithinLimits(Dims{0, kHuge, kHuge}));
  EXPECT_TRUE(WithinLimits(Dims{kBatchDim, 784}));
}

}  // namespace
}  // namespace syncline

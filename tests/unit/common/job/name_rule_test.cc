// Goal: a rule gives each name of a file the name that the model has, and what
// cannot say a name is refused.
// Method: rules and names by hand; the division of a name among several "*" is
// compared with every division there is.

#include "common/job/name_rule.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

NameRule Rule(const std::string& pattern, const std::string& name) {
  NameRule rule;
  rule.set_pattern(pattern);
  rule.set_name(name);
  return rule;
}

TEST(NameRuleTest, StarsCarryTheirTextOver) {
  EXPECT_EQ(ApplyNameRule(Rule("old.*", "new.*"), "old.0.weight"),
            "new.0.weight");
  EXPECT_EQ(ApplyNameRule(Rule("old.*", "*"), "old."), "");
  EXPECT_EQ(ApplyNameRule(Rule("old.*", "new.*"), "older"), std::nullopt);
  EXPECT_EQ(ApplyNameRule(Rule("*.gamma", "*.weight"), "ln.1.gamma"),
            "ln.1.weight");
  EXPECT_EQ(ApplyNameRule(Rule("a.?.*", "b.*"), "a.7.x"), "b.x");
  EXPECT_EQ(ApplyNameRule(Rule("a.*.b.*", "*/*"), "a.1.b.b.2"), "1/b.2");
  EXPECT_EQ(ApplyNameRule(Rule("drop.*", ""), "drop.it"), "");
  EXPECT_EQ(ApplyNameRule(Rule("same", "same"), "same"), "same");
  EXPECT_EQ(ApplyNameRule(Rule("same", "same"), "same2"), std::nullopt);
}

// By trying each end of each "*".
bool Matches(const std::string& pattern, const std::string& name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    for (size_t taken = 0; taken <= name.size(); ++taken) {
      if (Matches(pattern.substr(1), name.substr(taken))) return true;
    }
    return false;
  }
  return !name.empty() && (pattern[0] == '?' || pattern[0] == name[0]) &&
         Matches(pattern.substr(1), name.substr(1));
}

TEST(NameRuleTest, EveryMatchIsFoundAndPutTogetherAgain) {
  std::vector<std::string> names = {""};
  for (size_t i = 0; i < names.size() && names[i].size() < 5; ++i) {
    for (const char c : {'a', 'b'}) names.push_back(names[i] + c);
  }
  std::vector<std::string> patterns = {""};
  for (size_t i = 0; i < patterns.size() && patterns[i].size() < 4; ++i) {
    for (const char c : {'a', 'b', '*'}) patterns.push_back(patterns[i] + c);
  }
  for (const std::string& pattern : patterns) {
    for (const std::string& name : names) {
      const auto same = ApplyNameRule(Rule(pattern, pattern), name);
      ASSERT_EQ(same.has_value(), Matches(pattern, name))
          << pattern << " and " << name;
      ASSERT_EQ(same.value_or(name), name) << pattern;
    }
  }
}

TEST(NameRuleTest, TheFirstRuleThatMatchesCounts) {
  StartSpec start;
  *start.add_names() = Rule("a.*", "x.*");
  *start.add_names() = Rule("*", "y.*");
  EXPECT_EQ(RenamedTensor(start.names(), "a.1"), "x.1");
  EXPECT_EQ(RenamedTensor(start.names(), "b.1"), "y.b.1");
  start.mutable_names()->RemoveLast();
  EXPECT_EQ(RenamedTensor(start.names(), "b.1"), "b.1");
}

TEST(NameRuleTest, ARuleThatCannotSayANameIsRefused) {
  EXPECT_THAT(CheckNameRule(Rule("", "x")).message(),
              HasSubstr("pattern is required"));
  EXPECT_THAT(CheckNameRule(Rule("a.*", "*.*")).message(),
              HasSubstr("name has 2 \"*\", and pattern has 1"));
  EXPECT_THAT(CheckNameRule(Rule(std::string(1025, 'a'), "")).message(),
              HasSubstr("more than 1024 bytes"));
  EXPECT_EQ(ParseNameRule("a.*=b.*")->name(), "b.*");
  EXPECT_EQ(ParseNameRule("a.*=")->name(), "");
  EXPECT_THAT(ParseNameRule("a.*").status().message(),
              HasSubstr("'a.*' is not OLD=NEW"));
  EXPECT_FALSE(ParseNameRule("=b").ok());
}

}  // namespace
}  // namespace syncline

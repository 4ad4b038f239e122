// Goal: exactly the values that name a class are accepted, and mapped to it.
// Method: a table.

#include "worker/data/label_map.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/batch.h"

namespace syncline::worker {
namespace {

using ::testing::HasSubstr;

LabelMap Map(const std::vector<float>& classes, int64_t class_count) {
  Label label;
  for (const float value : classes) label.add_classes(value);
  return LabelMap(label, class_count);
}

std::string Problem(const LabelMap& map, float value) {
  const absl::Status status = map.Check(value);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << value;
  return std::string(status.message());
}

TEST(LabelMapTest, WithoutClassesTheValueIsTheClass) {
  const LabelMap map = Map({}, 10);
  for (const float value : {0.0f, 1.0f, 9.0f}) {
    EXPECT_TRUE(map.Check(value).ok());
    EXPECT_EQ(map.Map(value), value);
  }
  EXPECT_EQ(Problem(map, 10), "label 10 is not one of the 10 classes, 0..9");
  EXPECT_THAT(Problem(map, -1), HasSubstr("label -1"));
  EXPECT_THAT(Problem(map, 0.5f), HasSubstr("label 0.5"));
}

TEST(LabelMapTest, ClassesAreNumberedInOrder) {
  const LabelMap map = Map({-1, 1}, 2);
  EXPECT_TRUE(map.Check(-1).ok());
  EXPECT_TRUE(map.Check(1).ok());
  EXPECT_EQ(map.Map(-1), 0);
  EXPECT_EQ(map.Map(1), 1);
  EXPECT_EQ(Problem(map, 0), "label 0 is not among label.classes: -1, 1");
}

TEST(LabelMapTest, MoreClassesThanTheOutputHas) {
  const LabelMap map = Map({10, 20, 30}, 2);
  EXPECT_TRUE(map.Check(20).ok());
  EXPECT_EQ(Problem(map, 30),
            "label 30 (class 2) is not one of the 2 classes, 0..1");
}

TEST(LabelMapTest, TheIgnoredLabelIsNoClassWhateverItsValue) {
  Label label;
  label.set_ignore(-100);
  const LabelMap outside(label, 10);
  EXPECT_TRUE(outside.Check(-100).ok());
  EXPECT_EQ(outside.Map(-100), kIgnoredLabel);
  EXPECT_FALSE(outside.Check(kIgnoredLabel).ok());
  label.set_ignore(0);
  EXPECT_EQ(LabelMap(label, 10).Map(0), kIgnoredLabel);
  label.add_classes(7);
  label.add_classes(9);
  const LabelMap named(label, 2);
  EXPECT_TRUE(named.Check(0).ok());
  EXPECT_EQ(named.Map(0), kIgnoredLabel);
  EXPECT_EQ(named.Map(9), 1);
  EXPECT_FALSE(named.Check(1).ok());
}

TEST(LabelMapTest, RegressionTakesEveryValue) {
  const LabelMap map = Map({}, 0);
  EXPECT_TRUE(map.Check(-3.25f).ok());
  EXPECT_EQ(map.Map(-3.25f), -3.25f);
}

}  // namespace
}  // namespace syncline::worker

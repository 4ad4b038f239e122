// Goal: layers that a file has in inference mode keep their statistics where
// others are in training mode, and only there. Method: small graphs with two
// BatchNormalizations, a table of their modes.

#include "common/model/import/training_mode.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string Norm(const std::string& y, const std::string& x,
                 const std::string& mean, const std::string& variance,
                 bool training) {
  return absl::StrCat(
      y, training ? ", u, v" : "",
      " = BatchNormalization<training_mode = ", training ? 1 : 0, ">(", x,
      ", s, s, ", mean, ", ", variance, ")\n");
}

std::shared_ptr<const Model> ModelOf(const std::string& nodes, int opset = 15) {
  const auto model = Model::Parse(
      absl::StrCat(R"(<ir_version: 8, opset_import: ["" : )", opset, R"(]>
      g (float[N,2] x) => (float[N,2] y)
      <float[2] s = {1,1}, float[2] m1 = {0,0}, float[2] v1 = {1,2},
       float[2] m2 = {0,0}, float[2] v2 = {1,2}> {)",
                   nodes, "}"),
      "test");
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *model : nullptr;
}

std::vector<std::string> Kept(const std::string& nodes, int opset = 15) {
  const auto model = ModelOf(nodes, opset);
  if (model == nullptr) return {"?"};
  const std::vector<bool> kept = KeptStatistics(model->graph());
  std::vector<std::string> names;
  for (size_t v = 0; v < kept.size(); ++v) {
    if (kept[v]) names.push_back(model->graph().values[v].name);
  }
  return names;
}

TEST(TrainingModeTest, InferenceBesideTrainingKeeps) {
  EXPECT_THAT(Kept(Norm("h", "x", "m1", "v1", false) +
                   Norm("y", "h", "m2", "v2", true)),
              ElementsAre("m1", "v1"));
}

TEST(TrainingModeTest, DropoutTellsToo) {
  EXPECT_THAT(Kept(Norm("h", "x", "m1", "v1", false) +
                   "r = Constant<value = float {0.5}>()\n"
                   "t = Constant<value = bool {1}>()\ny = Dropout(h, r, t)"),
              ElementsAre("m1", "v1"));
  EXPECT_THAT(Kept(Norm("h", "x", "m1", "v1", false) + "y = Dropout(h)"),
              IsEmpty());
}

// Before opset 14 a node in training mode has the statistics as outputs.
TEST(TrainingModeTest, OlderFilesTellByTheirOutputs) {
  const std::string trains =
      "y, u, v, p, q = BatchNormalization(h, s, s, m2, v2)\n";
  const std::string infers = "h = BatchNormalization(x, s, s, m1, v1)\n";
  EXPECT_THAT(Kept(infers + trains, 13), ElementsAre("m1", "v1"));
  EXPECT_THAT(Kept("r = Constant<value = float {0.5}>()\n"
                   "t = Constant<value = bool {1}>()\nh = Dropout(x, r, t)\n" +
                       trains,
                   13),
              IsEmpty());
}

TEST(TrainingModeTest, AllOfOneModeKeepNothing) {
  EXPECT_THAT(Kept(Norm("h", "x", "m1", "v1", false) +
                   Norm("y", "h", "m2", "v2", false)),
              IsEmpty());
  EXPECT_THAT(Kept(Norm("y", "x", "m1", "v1", true)), IsEmpty());
}

}  // namespace
}  // namespace syncline

// Goal: the loss output and the fed inputs are found by name, and everything
// about them that does not fit the job is reported with its field path. Method:
// one model and job, a table of edits to each and the exact reports.

#include "common/model/loss_and_feeds.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_resolution.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::Resolve;
using testing::Resolved;
using testing::ResolvedModelWith;

TEST(LossAndFeedsTest, JobsThatDoNotFitTheModel) {
  const std::pair<const char*, std::vector<std::string>> table[] = {
      {"data { feeds { input: 'z' field: 'features' } }",
       {"data.feeds[1].input: 'z' is not an input of the model, which takes "
        "('x')"}},
      {"data { feeds { input: 'w1' field: 'features' } }",
       {"data.feeds[1].input: 'w1' is an initializer of the model, which takes "
        "('x')"}},
      {"loss { output: 'h1' }",
       {"loss.output: 'h1' is not an output of the model, which has ('y')"}},
      {"loss { output: 'y' kind: SIGMOID_CROSS_ENTROPY }",
       {"loss.output: 'y' is float32[N,3], but SIGMOID_CROSS_ENTROPY needs "
        "float32[N,1] or [N]"}},
      {"loss { kind: MEAN_SQUARED_ERROR }", {}},
      {"data { label { classes: [1, 2] } }",
       {"data.label.classes: 2 values, but 'y' has 3 classes"}},
      {"data { test { libsvm { path: 't' dimension: 4 } } } metrics: AUC",
       {"metrics[0]: AUC is for 2 classes, but 'y' has 3"}},
      {"data { test { libsvm { path: 't' dimension: 4 } } } "
       "metrics: [CALIBRATION, MEAN_SQUARED_ERROR, TOP5_ACCURACY, LOG_LOSS]",
       {"metrics[0]: CALIBRATION is for 2 classes, but 'y' has 3",
        "metrics[1]: MEAN_SQUARED_ERROR is for 2 classes, but 'y' has 3",
        "metrics[2]: TOP5_ACCURACY is for more than 5 classes, but 'y' has "
        "3"}},
  };
  for (const auto& [edit, problems] : table) {
    EXPECT_EQ(Resolve(edit).problems, problems) << edit;
  }
}

TEST(LossAndFeedsTest, ModelsThatDoNotFitTheJob) {
  const std::pair<std::string, std::vector<std::string>> table[] = {
      // Two outputs.
      {ResolvedModelWith("=> (float[N,3] y)",
                         "=> (float[N,3] y, float[N,3] h4)"),
       {"loss.output: the model has several outputs ('y', 'h4'); name one"}},
      // An input without data.
      {ResolvedModelWith("(float[N,4] x,", "(float[N,4] x, float[N,1] z,"),
       {"data.feeds: graph input 'z' is not fed, and no rule of "
        "model.initialize makes it a parameter"}},
      // An input of fixed shape that no rule matches.
      {ResolvedModelWith("(float[N,4] x,", "(float[N,4] x, float[2] v,"),
       {"data.feeds: graph input 'v' is not fed, and no rule of "
        "model.initialize makes it a parameter"}},
      // A batch of fixed size.
      {ResolvedModelWith("float[N,", "float[8,"),
       {"loss.output: 'y' is float32[8,3], but SOFTMAX_CROSS_ENTROPY needs "
        "float32[N,classes] or [N,...,classes] with at least 2 classes",
        "data.feeds[0].input: 'x' is [8,4], but its first dimension must be "
        "open, because batches differ in size; export the model with a "
        "symbolic first dimension"}},
      // Feeds are float32 or int64.
      {R"(<ir_version: 8, opset_import: ["" : 13]>
          g (int32[N,4] x) => (float[4] y) <float[4] w = {1,2,3,4}>
          { y = Relu(w) z = Identity(x) })",
       {"loss.output: 'y' is float32[4], but SOFTMAX_CROSS_ENTROPY needs "
        "float32[N,classes] or [N,...,classes] with at least 2 classes",
        "data.feeds[0].input: 'x' is int32, but feeds are float32 or int64"}},
  };
  for (const auto& [text, problems] : table) {
    EXPECT_EQ(Resolve("", text).problems, problems) << text;
  }
}

TEST(LossAndFeedsTest, ALossOverEveryPositionOfASample) {
  const auto problems = [](const std::string& shape) {
    return Resolve("", absl::StrCat(R"(<ir_version: 8, opset_import: ["" : 13]>
        g (float[N,4] x) => (float[N,2,)",
                                    shape, R"(] y)
        <float[4] w = {1,2,3,4}, int64[3] s = {-1, 2, )",
                                    shape, R"(}>
        { p = Mul(x, w) y = Reshape(p, s) })"))
        .problems;
  };
  EXPECT_THAT(problems("2"), IsEmpty());
  EXPECT_THAT(problems("1"),
              ElementsAre("loss.output: 'y' is float32[?,2,1], but "
                          "SOFTMAX_CROSS_ENTROPY needs float32[N,classes] or "
                          "[N,...,classes] with at least 2 classes"));
}

TEST(LossAndFeedsTest, AFeedsShapeHasAsManyValuesAsItsInput) {
  const std::string model =
      ResolvedModelWith("(float[N,4] x,", "(float[N,4] x, float[N,3,2] image,");
  const auto problems = [&](const std::string& reshape) {
    return Resolve("data { feeds { input: 'image' field: 'features' reshape: " +
                       reshape + " } }",
                   model)
        .problems;
  };
  EXPECT_THAT(problems("[2, 3]"), IsEmpty());
  EXPECT_THAT(problems("[2, 2]"),
              ElementsAre("data.feeds[1].reshape: [2,2] has 4 values, but "
                          "'image' takes 6 a sample"));
}

TEST(LossAndFeedsTest, WhatFitsAnInt64FeedOnly) {
  const std::string model =
      ResolvedModelWith("(float[N,4] x,", "(float[N,4] x, int64[N,4] ids,");
  const auto problems = [&](const std::string& feeds) {
    return Resolve(feeds, model).problems;
  };
  EXPECT_THAT(problems("data { feeds { input: 'ids' field: 'indices' "
                       "padding: -1 } }"),
              IsEmpty());
  EXPECT_THAT(problems("data { feeds { input: 'ids' field: 'indices' "
                       "scale: 2 } }"),
              ElementsAre("data.feeds[1]: scale and offset are for float32, "
                          "but 'ids' is int64"));
  EXPECT_THAT(problems("data { feeds { input: 'ids' field: 'indices' "
                       "offset: 1 } }"),
              ElementsAre("data.feeds[1]: scale and offset are for float32, "
                          "but 'ids' is int64"));
  const auto padded = [&](const std::string& dims) {
    return Resolve(
               "data { train { csv { path: 'a' has_header: true "
               "                     list_delimiter: '|' } } "
               "       feeds { input: 'ids' field: 'f' padding: 3 } }",
               ResolvedModelWith(
                   "(float[N,4] x,",
                   absl::StrCat("(float[N,4] x, int64", dims, " ids,")))
        .problems;
  };
  EXPECT_THAT(padded("[N,4]"), IsEmpty());
  for (const char* one : {"[N]", "[N,1]"}) {
    EXPECT_THAT(padded(one),
                ElementsAre("data.feeds[1].padding: is for lists, but 'ids' "
                            "takes one value a sample"));
  }
  EXPECT_THAT(problems("data { feeds { input: 'ids' field: 'indices' } "
                       "feeds { input: 'v' field: 'values' } }"),
              ElementsAre("data.feeds[2].input: 'v' is not an input of the "
                          "model, which takes ('x', 'ids')"));
  EXPECT_THAT(Resolve("data { feeds { input: 'z' field: 'indices' "
                      "padding: 3 } }",
                      ResolvedModelWith("(float[N,4] x,",
                                        "(float[N,4] x, float[N,4] z,"))
                  .problems,
              ElementsAre("data.feeds[1].padding: is for int64, but 'z' is "
                          "float32, which is padded with 0"));
}

constexpr char kModelWithLoss[] = R"(<ir_version: 8, opset_import: ["" : 13]>
g (float[N,4] x, int64[N] labels, float[4,3] w1) => (float[N,3] scores, float l)
{
  scores = MatMul(x, w1)
  l = SoftmaxCrossEntropyLoss(scores, labels)
})";

TEST(LossAndFeedsTest, ALossBesideTheScoresNeedsNoLabels) {
  const Resolved resolved =
      Resolve("loss { output: 'scores' }", kModelWithLoss);
  EXPECT_THAT(resolved.problems, IsEmpty());
  ASSERT_EQ(resolved.training.parameters.size(), 1u);
  EXPECT_EQ(resolved.training.parameters[0].name, "w1");
}

// The loss of probabilities is another one than that of scores, and trains
// badly.
TEST(LossAndFeedsTest, AnActivationThatTheLossComputesItselfIsWarnedOf) {
  const auto warnings = [](const std::string& body, const std::string& loss) {
    return Resolve(loss,
                   absl::StrCat(R"(<ir_version: 8, opset_import: ["" : 13]>
g (float[N,4] x, float[4,3] w1) => (float[N,3] y)
{
)",
                                body, "\n}"))
        .training.warnings;
  };
  EXPECT_THAT(warnings("z = MatMul(x, w1)\n y = Softmax(z)", ""),
              ElementsAre(::testing::HasSubstr(
                  "SOFTMAX_CROSS_ENTROPY computes the Softmax "
                  "itself, but 'y' is one already")));
  EXPECT_THAT(
      warnings("z = MatMul(x, w1)\n s = Softmax(z)\n y = Identity(s)", ""),
      ElementsAre(::testing::HasSubstr("computes the Softmax")));
  // The softmax of logarithms of probabilities is the softmax again.
  EXPECT_THAT(warnings("z = MatMul(x, w1)\n y = LogSoftmax(z)", ""), IsEmpty());
  EXPECT_THAT(warnings("z = Softmax(x)\n y = MatMul(z, w1)", ""), IsEmpty());
}

// [N,C,H,W] with as many columns as classes would fit, and train something
// else.
TEST(LossAndFeedsTest, ClassesInTheSecondDimensionAreRefused) {
  const auto problems = [](const std::string& body, const std::string& dims) {
    return Resolve("", absl::StrCat(R"(<ir_version: 8, opset_import: ["" : 13]>
g (float[N,1,4,4] x, float[4,1,1,1] w) => (float)",
                                    dims, R"( y)
{
)",
                                    body, "\n}"))
        .problems;
  };
  EXPECT_THAT(
      problems("y = Conv(x, w)", "[N,4,4,4]"),
      ElementsAre(
          "loss.output: 'y' is float32[N,4,4,4] and has its "
          "classes in the second dimension, as node 'Conv#0' "
          "(Conv, opset 13) gives them, but SOFTMAX_CROSS_ENTROPY takes them "
          "from the last one; end the model with a Transpose "
          "that moves them there, as PyTorch's "
          ".permute(0, 2, 3, 1) is"));
  EXPECT_THAT(problems("a = Conv(x, w)\n y = Relu(a)", "[N,4,4,4]"),
              ElementsAre(::testing::HasSubstr("second dimension")));
  EXPECT_THAT(problems("a = Conv(x, w)\n y = Transpose<perm = [0, 2, 3, 1]>(a)",
                       "[N,4,4,4]"),
              IsEmpty());
  EXPECT_THAT(problems("a = Conv(x, w)\n y = Flatten(a)", "[N,64]"), IsEmpty());
}

TEST(LossAndFeedsTest, ALossOfTheGraphIsNoneOfTheJob) {
  EXPECT_THAT(
      Resolve("loss { output: 'l' }", kModelWithLoss).problems,
      ElementsAre(
          "loss.output: 'l' is float32[], but SOFTMAX_CROSS_ENTROPY needs "
          "float32[N,classes] or [N,...,classes] with at least 2 classes; it "
          "is the result of a SoftmaxCrossEntropyLoss node, but the job "
          "computes the loss itself: make the scores 'scores' an output of the "
          "model and name them here",
          "data.feeds: graph input 'labels' is not fed, and no rule of "
          "model.initialize makes it a parameter"));
}

}  // namespace
}  // namespace syncline

// Goal: a precision and its loss scale are checked, completed and explained.
// Method: jobs with one field or another, through the whole validator.

#include "common/job/precision_validator.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/job_spec_validator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> ProblemsOf(const std::string& edit) {
  return ValidateJobSpec(JobFromText(kSmallJob, edit));
}

TEST(PrecisionValidatorTest, TakesEachPrecision) {
  for (const char* edit :
       {"precision: FLOAT32", "precision: TF32", "precision: BFLOAT16",
        "precision: FLOAT16", "precision: FLOAT16 non_finite: SKIP_STEP",
        "precision: FLOAT16 loss_scale { initial: 16777216 window: 1 }",
        "precision: FLOAT16 loss_scale { initial: 0.5 minimum: 0.25 }",
        "precision: FLOAT16 loss_scale { hysteresis: 3 minimum: 65536 }",
        "precision: FLOAT16 loss_scale { fixed: 1024 } non_finite: DROP_BLOCK",
        "precision: BFLOAT16 non_finite: DROP_BLOCK"}) {
    EXPECT_THAT(ProblemsOf(edit), IsEmpty()) << edit;
  }
}

TEST(PrecisionValidatorTest, AScaleIsForFloat16) {
  EXPECT_THAT(ProblemsOf("loss_scale {}"),
              ElementsAre("loss_scale: has no meaning for precision FLOAT32, "
                          "only for FLOAT16: other types have the range of "
                          "float32"));
  EXPECT_THAT(ProblemsOf("precision: BFLOAT16 loss_scale { fixed: 1 }"),
              ElementsAre(HasSubstr("for precision BFLOAT16")));
}

TEST(PrecisionValidatorTest, ScalesArePowersOfTwo) {
  for (const char* field : {"fixed", "initial", "minimum"}) {
    for (const char* value : {"3", "-2", "33554432", "2.9e-8", "65535.996"}) {
      const auto problems = ProblemsOf(absl::StrCat(
          "precision: FLOAT16 loss_scale { ", field, ": ", value, " }"));
      ASSERT_FALSE(problems.empty()) << field << value;
      EXPECT_THAT(problems[0],
                  AllOf(HasSubstr(absl::StrCat("loss_scale.", field, ": ")),
                        HasSubstr(" must be a power of two from 2^-24 to "
                                  "2^24")));
    }
  }
  EXPECT_THAT(ProblemsOf("precision: FLOAT16 loss_scale { fixed: 0 }"),
              ElementsAre(HasSubstr("loss_scale.fixed: 0 must be a power")));
}

TEST(PrecisionValidatorTest, WhatDoesNotGoTogether) {
  EXPECT_THAT(
      ProblemsOf("precision: FLOAT16 loss_scale { minimum: 8 initial: 4 }"),
      ElementsAre("loss_scale.minimum: 8 is above loss_scale.initial, 4"));
  EXPECT_THAT(ProblemsOf("precision: FLOAT16 loss_scale { initial: 0.5 }"),
              ElementsAre("loss_scale.minimum: 1 is above loss_scale.initial, "
                          "0.5"));
  EXPECT_THAT(
      ProblemsOf("precision: FLOAT16 loss_scale { fixed: 8 window: 4 }"),
      ElementsAre("loss_scale.fixed: not together with initial, window, "
                  "hysteresis or minimum: a fixed scale never changes"));
  EXPECT_THAT(ProblemsOf("precision: FLOAT16 non_finite: DROP_BLOCK"),
              ElementsAre(HasSubstr("non_finite: DROP_BLOCK is not for FLOAT16 "
                                    "with a dynamic loss scale")));
  EXPECT_THAT(
      ProblemsOf("precision: FLOAT16 loss_scale { window: 1000000001 }"),
      ElementsAre("loss_scale.window: 1000000001 is too large, at most "
                  "1000000000"));
  EXPECT_THAT(ProblemsOf("precision: FLOAT16 loss_scale { hysteresis: 1001 }"),
              ElementsAre("loss_scale.hysteresis: 1001 is too large, at most "
                          "1000"));
}

TEST(PrecisionValidatorTest, DefaultsAreWrittenOut) {
  JobSpec spec;
  FillPrecision(&spec);
  EXPECT_EQ(spec.precision(), FLOAT32);
  EXPECT_FALSE(spec.has_loss_scale());
  spec.set_precision(FLOAT16);
  FillPrecision(&spec);
  EXPECT_EQ(spec.loss_scale().initial(), 65536);
  EXPECT_EQ(spec.loss_scale().window(), 1000u);
  EXPECT_EQ(spec.loss_scale().hysteresis(), 1u);
  EXPECT_EQ(spec.loss_scale().minimum(), 1);
  EXPECT_FALSE(spec.loss_scale().has_fixed());
  EXPECT_THAT(ValidateJobSpec(
                  WithDefaults(JobFromText(kSmallJob, "precision: FLOAT16"))),
              IsEmpty());
  spec.mutable_loss_scale()->Clear();
  spec.mutable_loss_scale()->set_fixed(2);
  FillPrecision(&spec);
  EXPECT_EQ(spec.loss_scale().initial(), 0);
}

TEST(PrecisionValidatorTest, TheNoteSaysWhatSixteenBitsCost) {
  const auto note = [](const std::string& edit) {
    return PrecisionNote(JobFromText(kSmallJob, edit));
  };
  EXPECT_EQ(note(""), "");
  EXPECT_EQ(note("precision: FLOAT32"), "");
  EXPECT_THAT(note("precision: TF32"),
              HasSubstr("precision TF32: processors compute in float32"));
  EXPECT_EQ(note("precision: TF32 resources { device: CUDA }"), "");
  EXPECT_THAT(note("precision: BFLOAT16"),
              AllOf(HasSubstr("precision BFLOAT16: on the CPU 16 bits save "
                              "memory of activations, and no time"),
                    Not(HasSubstr("scale"))));
  EXPECT_THAT(note("precision: FLOAT16"),
              HasSubstr("on all workers: each step costs a norm"));
  EXPECT_THAT(note("precision: FLOAT16 consistency { mode: ASYNC }"),
              HasSubstr("each worker has its own scale"));
  EXPECT_THAT(note("precision: FLOAT16 loss_scale { fixed: 8 }"),
              Not(HasSubstr("dynamic")));
  EXPECT_EQ(note("precision: BFLOAT16 resources { device: CUDA }"), "");
  EXPECT_THAT(note("precision: FLOAT16 resources { device: CUDA }"),
              AllOf(HasSubstr("precision FLOAT16: the loss scale is dynamic"),
                    Not(HasSubstr("on the CPU"))));
}

}  // namespace
}  // namespace syncline

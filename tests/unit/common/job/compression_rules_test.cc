// Goal: a compression is checked, completed and explained, and everything that
// does not go with it is refused by name.
// Method: jobs with one field or another, through the whole validator.

#include "common/job/compression_rules.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/job_spec_validator.h"
#include "common/job/regime_rules.h"
#include "common/regime/job_regimes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> ProblemsOf(const std::string& edit) {
  return ValidateJobSpec(JobFromText(kSmallJob, edit));
}

TEST(CompressionRulesTest, TakesWhatIsBuilt) {
  for (const char* edit :
       {"compression { kind: NONE }", "compression { kind: INT8 }",
        "compression { kind: INT8 block_elements: 32 }",
        "compression { kind: INT8 block_elements: 65536 }",
        "compression { kind: TOP_K fraction: 0.999 }",
        "compression { kind: TERNGRAD }",
        "optimizer { kind: LAMB } compression { kind: TOP_K }",
        "optimizer { kind: ADAM } compression { kind: INT8 }",
        "optimizer { kind: MOMENTUM clip_norm: 1 } compression { kind: DGC "
        "fraction: 0.001 warmup_clocks: 100 }",
        "optimizer { kind: SGD weight_decay: 0.1 } compression { kind: DGC }",
        "consistency { mode: ASYNC } compression { kind: TOP_K }",
        "strategy: ALL_REDUCE resources { workers: 2 } compression { kind: "
        "INT8 }",
        "strategy: ALL_REDUCE resources { workers: 2 } compression { kind: "
        "TOP_K values: true }",
        "strategy: ALL_REDUCE resources { workers: 2 } optimizer { kind: "
        "ADAMW weight_decay: 0.1 } compression { kind: ONE_BIT_ADAM "
        "warmup_clocks: 1 block_elements: 64 }",
        "strategy: SHARDED sharding { stage: 3 } resources { workers: 2 } "
        "compression { kind: DGC }",
        "strategy: SHARDED resources { workers: 2 } optimizer { clip_norm: 1 } "
        "compression { kind: DGC }"}) {
    EXPECT_THAT(ProblemsOf(edit), IsEmpty()) << edit;
  }
}

TEST(CompressionRulesTest, RefusesByName) {
  const struct {
    const char* edit;
    const char* field;
    const char* what;
  } kCases[] = {
      {"compression {}", "compression.kind: ", "is required"},
      {"compression { kind: ONE_BIT_ADAM } optimizer { kind: ADAM }",
       "compression.kind: ",
       "for ALL_REDUCE, where every worker has the "
       "moments, not PARAMETER_SERVER"},
      {"compression { kind: ONE_BIT_ADAM } optimizer { kind: ADAM }",
       "compression.warmup_clocks: ", "is required for ONE_BIT_ADAM"},
      {"compression { kind: ONE_BIT_ADAM } optimizer { kind: LAMB }",
       "compression.kind: ", "for ADAM and ADAMW only, not LAMB"},
      {"compression { kind: ONE_BIT_ADAM } optimizer { kind: ADAM "
       "weight_decay: 0.1 }",
       "optimizer.weight_decay: ", "use ADAMW"},
      {"compression { kind: ONE_BIT_ADAM } optimizer { kind: ADAM } "
       "non_finite: SKIP_STEP",
       "compression.kind: ", "non_finite FAIL_JOB only"},
      {"compression { kind: ONE_BIT_ADAM } optimizer { kind: ADAM } "
       "precision: FLOAT16",
       "compression.kind: ", "with FLOAT16 by loss_scale.fixed"},
      {"compression { kind: ONE_BIT_ADAM } optimizer { kind: ADAM } "
       "wire_type: WIRE_BFLOAT16",
       "compression.kind: ", "with wire_type WIRE_FLOAT32 only"},
      {"compression { kind: ONE_BIT_ADAM warmup_clocks: 9 } optimizer { kind: "
       "ADAM } training { max_clocks: 9 }",
       "compression.warmup_clocks: ", "nothing would be compressed"},
      {"compression { kind: ONE_BIT_ADAM } optimizer { kind: ADAM clip_norm: 1 "
       "}",
       "optimizer.clip_norm: ", "does not go with compression ONE_BIT_ADAM"},
      {"strategy: ALL_REDUCE resources { workers: 2 } optimizer { kind: ADAM } "
       "compression { kind: ONE_BIT_ADAM warmup_clocks: 5 } regimes { when { "
       "clock: 9 } then { compression: NONE } }",
       "regimes[0].then.compression: ", "cannot change from it"},
      {"compression { kind: TOP_K fraction: 1 }",
       "compression.fraction: ", "1 is outside (0, 1)"},
      {"compression { kind: DGC fraction: -0.5 }",
       "compression.fraction: ", "-0.5 is outside (0, 1)"},
      {"compression { kind: INT8 fraction: 0.5 }",
       "compression.fraction: ", "has no meaning for INT8"},
      {"compression { kind: INT8 block_elements: 31 }",
       "compression.block_elements: ", "31 is outside 32..65536"},
      {"compression { kind: TERNGRAD block_elements: 65537 }",
       "compression.block_elements: ", "65537 is outside"},
      {"compression { kind: TOP_K block_elements: 64 }",
       "compression.block_elements: ", "has no meaning for TOP_K"},
      {"compression { kind: TOP_K warmup_clocks: 5 }",
       "compression.warmup_clocks: ", "only for DGC, ONE_BIT_ADAM"},
      {"compression { kind: INT8 values: true } consistency { mode: ASYNC }",
       "compression.values: ", "goes with SYNC by PARAMETER_SERVER"},
      {"compression { kind: INT8 values: true } wire_type: WIRE_BFLOAT16",
       "compression.values: ", "does not go with wire_type WIRE_BFLOAT16"},
      {"compression { kind: INT8 values: true } strategy: SHARDED "
       "resources { workers: 2 }",
       "compression.values: ", "not built yet for SHARDED"},
      {"compression { kind: NONE values: true } strategy: ALL_REDUCE "
       "resources { workers: 2 }",
       "compression.values: ", "does not go with NONE"},
      {"compression { kind: DGC } strategy: SHARDED sharding { stage: 2 } "
       "resources { workers: 2 } optimizer { clip_norm: 1 }",
       "optimizer.clip_norm: ", "DGC and sharding.stage 2"},
      {"compression { kind: DGC } optimizer { kind: ADAM }",
       "compression.kind: ", "DGC is for SGD and MOMENTUM only, not ADAM"},
      {"compression { kind: DGC } optimizer { kind: NESTEROV }",
       "compression.kind: ", "not NESTEROV"},
      {"compression { kind: DGC } optimizer { kind: MOMENTUM weight_decay: 1 }",
       "optimizer.weight_decay: ", "does not go with compression DGC"},
      {"compression { kind: TOP_K } optimizer { kind: SGD clip_norm: 1 }",
       "optimizer.clip_norm: ", "DGC clips before it compresses"},
      {"compression { kind: INT8 } optimizer { kind: SGD clip_value: 1 }",
       "optimizer.clip_value: ", "does not go with compression"},
      {"compression { kind: DGC } regimes { when { clock: 1 } then { "
       "compression: NONE } }",
       "regimes[0].then.compression: ", "DGC has the momentum at the workers"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(ProblemsOf(c.edit),
                ::testing::Contains(
                    AllOf(::testing::StartsWith(c.field), HasSubstr(c.what))))
        << c.edit;
  }
}

TEST(CompressionRulesTest, FillsDefaults) {
  const auto of = [](const char* edit) {
    return WithDefaults(JobFromText(kSmallJob, edit)).compression();
  };
  EXPECT_EQ(of("compression { kind: DGC }").fraction(), 0.01);
  EXPECT_EQ(of("compression { kind: DGC }").block_elements(), 0u);
  EXPECT_EQ(of("compression { kind: INT8 }").block_elements(), 256u);
  EXPECT_EQ(
      of("compression { kind: INT8 block_elements: 64 }").block_elements(),
      64u);
  EXPECT_TRUE(of("compression { kind: ONE_BIT_ADAM }").values());
  EXPECT_EQ(of("compression { kind: ONE_BIT_ADAM }").block_elements(), 256u);
  EXPECT_FALSE(WithDefaults(JobFromText(kSmallJob, "")).has_compression());
}

TEST(CompressionRulesTest, SaysWhatIsLostOnResume) {
  const auto note = [](const char* edit) {
    return CompressionNote(WithDefaults(JobFromText(kSmallJob, edit)));
  };
  EXPECT_EQ(note(""), "");
  EXPECT_EQ(note("compression { kind: NONE }"), "");
  EXPECT_THAT(note("compression { kind: TOP_K }"),
              HasSubstr("checkpoints have no residuals"));
  EXPECT_THAT(note("compression { kind: ONE_BIT_ADAM }"),
              HasSubstr("of dense gradients and their sums"));
  EXPECT_THAT(note("optimizer { kind: MOMENTUM } compression { kind: DGC }"),
              HasSubstr("without momentum"));
  constexpr char kSaved[] =
      "checkpoint { every_clocks: 5 directory: \"/c\" } compression ";
  EXPECT_THAT(note(absl::StrCat(kSaved, "{ kind: TOP_K }").c_str()),
              Not(HasSubstr("residuals")));
  EXPECT_THAT(
      note(absl::StrCat(kSaved, "{ kind: TOP_K values: true }").c_str()),
      HasSubstr("checkpoints have no residuals of values"));
  EXPECT_THAT(note(absl::StrCat(kSaved,
                                "{ kind: TOP_K } consistency { mode: "
                                "ASYNC }")
                       .c_str()),
              HasSubstr("checkpoints have no residuals"));
}

}  // namespace
}  // namespace syncline

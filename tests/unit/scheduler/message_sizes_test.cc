// Goal: a job whose messages would be larger than gRPC takes is refused when it
// is submitted, with the number that is too large. Method: specs on both sides
// of the limit, for each part that may be large.

#include "scheduler/message_sizes.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

JobSpec Spec(uint32_t workers, uint32_t ps) {
  JobSpec spec;
  spec.mutable_resources()->set_workers(workers);
  spec.mutable_resources()->set_ps(ps);
  return spec;
}

std::vector<ParameterInfo> Parameters(size_t count) {
  std::vector<ParameterInfo> parameters(count);
  for (ParameterInfo& parameter : parameters) {
    parameter.set_name(std::string(90, 'n'));
    parameter.add_dims(1000);
  }
  return parameters;
}

TEST(MessageSizesTest, OrdinaryJobsFit) {
  EXPECT_TRUE(CheckMessageSizes(Spec(1, 1), {}, {}).ok());
  EXPECT_TRUE(CheckMessageSizes(Spec(1000, 100), Parameters(10'000), {}).ok());
}

TEST(MessageSizesTest, ALongSpecIsRefusedWithItsLength) {
  JobSpec spec = Spec(1, 1);
  spec.set_name(std::string(4'000'000, 'n'));
  const absl::Status refused = CheckMessageSizes(spec, {}, {});
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("the spec has 4000"));
}

TEST(MessageSizesTest, TooManyParametersAreRefusedWithTheirNumber) {
  const absl::Status refused =
      CheckMessageSizes(Spec(1, 1), Parameters(50'000), {});
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("50000 parameters"));
}

TEST(MessageSizesTest, TooManyParticipantsAreRefusedWithTheirNumber) {
  for (const JobSpec& spec : {Spec(10'000, 1), Spec(1, ~0u), Spec(~0u, ~0u)}) {
    const absl::Status refused = CheckMessageSizes(spec, {}, {});
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.message(), HasSubstr("participants"));
  }
}

}  // namespace
}  // namespace syncline

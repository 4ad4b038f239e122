// Goal: a job whose messages would be larger than gRPC takes is refused when it
// is submitted, with the number that is too large. Method: specs on both sides
// of the limit, for each part that may be large.

#include "scheduler/core/message_sizes.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
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

// A report that is said to fit does fit into a message.
TEST(MessageSizesTest, TablesFitWithAsManyHotKeysAsAreTold) {
  PsReport report;
  report.set_job_id("j-0001");
  std::vector<int> told;
  while (true) {
    for (int t = 0; t < 10; ++t) {
      ShardStatus::Table* const table = report.add_tables();
      table->set_name(std::string(1000, 'n'));
      table->set_memory_bytes(~0ull);
      for (int k = 0; k < 16; ++k) {
        table->add_hot_keys()->set_key(-1 - k);
        table->mutable_hot_keys(k)->set_pushes(~0ull);
        table->mutable_hot_keys(k)->set_refused(~0ull);
        table->mutable_hot_keys(k)->set_refused_error(~0ull);
      }
    }
    // Of each of 8 ps.
    const auto fit = HotKeysThatFit(std::vector<const PsReport*>(8, &report));
    if (!fit.ok()) {
      EXPECT_EQ(fit.status().code(), absl::StatusCode::kResourceExhausted);
      EXPECT_THAT(fit.status().message(), HasSubstr("8 ps"));
      break;
    }
    if (told.empty() || told.back() != *fit) told.push_back(*fit);
    JobTableStatus answer;
    answer.set_job_id("j-0001");
    for (uint32_t rank = 0; rank < 8; ++rank) {
      JobTableStatus::Ps* const ps = answer.add_ps();
      ps->set_rank(1000 + rank);
      ps->set_age_seconds(0.1);
      *ps->mutable_tables() = report.tables();
      for (ShardStatus::Table& table : *ps->mutable_tables()) {
        while (table.hot_keys_size() > *fit) {
          table.mutable_hot_keys()->RemoveLast();
        }
      }
    }
    ASSERT_LE(answer.ByteSizeLong(), kCommandBytesMax) << *fit;
  }
  EXPECT_THAT(told, ElementsAre(16, 4, 1, 0));
}

}  // namespace
}  // namespace syncline::scheduler

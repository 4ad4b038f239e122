// Goal: quotas are read strictly, a job's demand is what its members take, and
// each quota says by name what is too much. Method: tables of lines, and jobs.

#include "scheduler/core/cluster/tenant_quotas.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/optimizer/optimizer.h"

namespace syncline::scheduler {
namespace {

using ::testing::HasSubstr;

TenantQuotas Parsed(const std::string& text) {
  auto quotas = TenantQuotas::Parse(text);
  EXPECT_TRUE(quotas.ok()) << quotas.status();
  return *std::move(quotas);
}

JobDemand Demand(uint64_t workers, uint64_t ps, uint64_t memory,
                 uint64_t disk) {
  JobDemand demand;
  demand.amounts.values = {workers, ps, memory, disk, 0};
  return demand;
}

TEST(TenantQuotasTest, ABadLineIsNamed) {
  for (const auto& [line, text] :
       std::vector<std::pair<std::string, std::string>>{
           {"acme cpus=3", "\"cpus=3\" is no quota"},
           {"acme workers", "workers: \"\" is no amount"},
           {"acme workers=", "\"\" is no amount"},
           {"acme workers=-1", "\"-1\" is no amount"},
           {"acme workers=2GiB", "\"2GiB\" is no amount"},
           {"acme disk=2GB", "\"2GB\" is no amount"},
           {"acme disk=99999999999TiB", "is no amount"},
           {"acme workers=1 workers=2", "workers is there twice"},
           {"zeta workers=1", "zeta has a line already"}}) {
    const auto quotas =
        TenantQuotas::Parse("# quotas\n\nzeta ps=1\n" + line + "\n");
    EXPECT_EQ(quotas.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(quotas.status().message()), HasSubstr("line 4: "));
    EXPECT_THAT(std::string(quotas.status().message()), HasSubstr(text));
  }
  EXPECT_TRUE(Parsed("").empty());
  EXPECT_TRUE(Parsed("# nothing\n").empty());
}

TEST(TenantQuotasTest, EachQuotaIsChecked) {
  const TenantQuotas quotas =
      Parsed("acme workers=4 ps=2 ps-memory=1GiB disk=10MiB queued=3");
  EXPECT_TRUE(quotas.CheckFits("acme", Demand(4, 2, 1 << 30, 10 << 20)).ok());
  for (const auto& [demand, text] :
       std::vector<std::pair<JobDemand, std::string>>{
           {Demand(5, 1, 0, 0), "resources.workers: the job needs 5 workers"},
           {Demand(1, 3, 0, 0), "resources.ps: the job needs 3 ps"},
           {Demand(1, 1, 3ull << 29, 0),
            "needs 1.5 GiB of ps-memory; the quota of tenant acme is 1 GiB"},
           {Demand(1, 1, 0, 11 << 20), "needs 11 MiB of disk"}}) {
    const absl::Status refused = quotas.CheckFits("acme", demand);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr(text));
    // Nobody else has a quota.
    EXPECT_TRUE(quotas.CheckFits("zeta", demand).ok());
    EXPECT_TRUE(quotas.CheckFits("", demand).ok());
  }
  TenantAmounts use;
  use.values = {3, 1, 1 << 29, 9 << 20, 2};
  EXPECT_EQ(quotas.WhyWaits("acme", Demand(1, 1, 1 << 29, 1 << 20), use), "");
  for (const auto& [demand, text] :
       std::vector<std::pair<JobDemand, std::string>>{
           {Demand(2, 1, 0, 0), "4 workers: it has 3 workers in use"},
           {Demand(1, 2, 0, 0), "2 ps: it has 1 ps in use"},
           {Demand(1, 1, (1 << 29) + 1, 0), "1 GiB of ps-memory"},
           {Demand(1, 1, 0, 2 << 20), "9 MiB of disk in results"}}) {
    EXPECT_THAT(quotas.WhyWaits("acme", demand, use), HasSubstr(text));
    EXPECT_EQ(quotas.WhyWaits("zeta", demand, use), "");
  }
  EXPECT_TRUE(quotas.CheckQueue("acme", use).ok());
  use[Quota::kQueued] = 3;
  EXPECT_EQ(quotas.CheckQueue("acme", use).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(TenantQuotasTest, ATableOfUnknownSizeIsRefusedWhereMemoryCounts) {
  JobDemand demand = Demand(1, 1, 0, 0);
  demand.table_without_limit = "users";
  const absl::Status refused =
      Parsed("acme ps-memory=1GiB").CheckFits("acme", demand);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("tables: users does not say memory_bytes"));
  EXPECT_TRUE(Parsed("acme workers=1").CheckFits("acme", demand).ok());
}

JobSpec SpecWith(OptimizerSpec::Kind kind) {
  JobSpec spec;
  spec.mutable_resources()->set_workers(2);
  spec.mutable_resources()->set_ps(3);
  spec.mutable_optimizer()->set_kind(kind);
  return spec;
}
std::vector<ParameterInfo> Parameters() {
  std::vector<ParameterInfo> parameters(2);
  for (const int64_t dim : {10, 20}) parameters[0].add_dims(dim);
  parameters[1].add_dims(5);
  return parameters;
}

TEST(TenantQuotasTest, ADemandIsWhatMembersTake) {
  const auto parameters = Parameters();
  JobSpec spec = SpecWith(OptimizerSpec::ADAM);
  TableSpec* table = spec.add_tables();
  table->set_name("users");
  table->set_memory_bytes(1000);
  const JobDemand demand = DemandOf(spec, parameters);
  EXPECT_EQ(demand.amounts[Quota::kWorkers], 2u);
  EXPECT_EQ(demand.amounts[Quota::kPs], 3u);
  EXPECT_EQ(demand.amounts[Quota::kPsMemory], 205u * 4 * 3 + 3 * 1000);
  EXPECT_EQ(demand.amounts[Quota::kDisk], 205u * 4);
  EXPECT_EQ(demand.table_without_limit, "");
  spec.add_tables()->set_name("items");
  EXPECT_EQ(DemandOf(spec, parameters).table_without_limit, "items");
  spec.clear_tables();
  spec.mutable_resources()->set_ps(0);
  EXPECT_EQ(DemandOf(spec, parameters).amounts[Quota::kPsMemory], 0u);
}

TEST(TenantQuotasTest, AJobThatOnlyEvaluatesTakesOneMember) {
  JobSpec spec = SpecWith(OptimizerSpec::ADAM);
  spec.mutable_evaluate()->set_only(true);
  const JobDemand demand = DemandOf(spec, Parameters());
  EXPECT_EQ(demand.amounts[Quota::kWorkers], 1u);
  EXPECT_EQ(demand.amounts[Quota::kPs], 0u);
  EXPECT_EQ(demand.amounts[Quota::kPsMemory], 0u);
}

// The scheduler does not link the optimizers.
TEST(TenantQuotasTest, SlotsAreThoseOfTheOptimizers) {
  const auto slots = [](const JobSpec& spec) {
    return DemandOf(spec, Parameters()).amounts[Quota::kPsMemory] / (205 * 4) -
           1;
  };
  for (const auto& [kind, optimizer] :
       std::vector<std::pair<OptimizerSpec::Kind, OptimizerKind>>{
           {OptimizerSpec::SGD, OptimizerKind::kSgd},
           {OptimizerSpec::MOMENTUM, OptimizerKind::kMomentum},
           {OptimizerSpec::NESTEROV, OptimizerKind::kNesterov},
           {OptimizerSpec::ADAGRAD, OptimizerKind::kAdagrad},
           {OptimizerSpec::ADAM, OptimizerKind::kAdam},
           {OptimizerSpec::ADAMW, OptimizerKind::kAdamW},
           {OptimizerSpec::LAMB, OptimizerKind::kLamb},
           {OptimizerSpec::FTRL, OptimizerKind::kFtrl}}) {
    OptimizerParams params;
    params.kind = optimizer;
    EXPECT_EQ(slots(SpecWith(kind)),
              static_cast<uint64_t>(OptimizerSlots(params)))
        << OptimizerSpec::Kind_Name(kind);
  }
  // In LOCAL the ps have the outer optimizer's.
  JobSpec local = SpecWith(OptimizerSpec::ADAM);
  local.mutable_consistency()->set_mode(ConsistencySpec::LOCAL);
  local.mutable_consistency()->mutable_local()->mutable_optimizer()->set_kind(
      OptimizerSpec::NESTEROV);
  EXPECT_EQ(slots(local), 1u);
  for (const bool centered : {false, true}) {
    for (const float momentum : {0.0f, 0.5f}) {
      OptimizerParams params;
      params.kind = OptimizerKind::kRmsProp;
      params.centered = centered;
      params.momentum = momentum;
      JobSpec spec = SpecWith(OptimizerSpec::RMSPROP);
      spec.mutable_optimizer()->set_centered(centered);
      spec.mutable_optimizer()->set_momentum(momentum);
      EXPECT_EQ(slots(spec), static_cast<uint64_t>(OptimizerSlots(params)));
    }
  }
}

TEST(TenantQuotasTest, DiskIsWhatIsKept) {
  StoredJob stored;
  stored.status.set_job_id("j-0001");
  stored.status.set_tenant("acme");
  stored.status.set_state(SUCCEEDED);
  stored.status.add_artifacts()->set_size_bytes(100);
  stored.status.add_artifacts()->set_size_bytes(20);
  stored.status.add_checkpoints()->set_bytes(3);
  StoredJob waiting;
  waiting.status.set_job_id("j-0002");
  waiting.status.set_state(QUEUED);
  const Job ended(std::move(stored), Job::Options());
  const Job queued(std::move(waiting), Job::Options());
  const std::vector<const Job*> jobs = {&ended, &queued};
  const auto uses = UseOfTenants(jobs);
  EXPECT_EQ(uses.at("acme")[Quota::kDisk], 123u);
  EXPECT_EQ(uses.at("acme")[Quota::kWorkers], 0u);
  EXPECT_EQ(uses.at("acme")[Quota::kQueued], 0u);
  EXPECT_EQ(uses.at("")[Quota::kQueued], 1u);
}

}  // namespace
}  // namespace syncline::scheduler

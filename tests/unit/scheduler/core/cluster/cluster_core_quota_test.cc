// Goal: a job over its tenant's quota waits and says so, and others pass it.
// Method: jobs of two tenants on members that are enough for all of them.

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/cluster/cluster_core.h"
#include "tests/unit/scheduler/core/cluster/cluster_core_fixture.h"

namespace syncline::scheduler {
namespace {

using ::testing::HasSubstr;

class ClusterCoreQuotaTest : public ClusterCoreTest {
 protected:
  ClusterCoreQuotaTest() {
    for (uint32_t i = 0; i < 4; ++i) {
      Join(1 + i, WORKER, i, 1 + i);
      Join(11 + i, PS, i, 11 + i);
    }
  }
  void Quotas(const std::string& text) {
    auto quotas = TenantQuotas::Parse(text);
    ASSERT_TRUE(quotas.ok()) << quotas.status();
    actions_.clear();
    core_.SetQuotas(*std::move(quotas), now_, &actions_);
  }
  absl::Status May(const std::string& tenant, uint32_t workers) {
    JobSpec spec;
    spec.mutable_resources()->set_workers(workers);
    spec.mutable_resources()->set_ps(1);
    return core_.CheckQuota(tenant, spec, {});
  }
  std::string SubmitAs(const std::string& tenant, uint32_t workers) {
    JobSpec spec;
    spec.mutable_resources()->set_workers(workers);
    spec.mutable_resources()->set_ps(1);
    auto job = core_.Prepare(spec, {}, {}, core_.NextJobId(), now_);
    EXPECT_TRUE(job.ok()) << job.status();
    job->status.set_tenant(tenant);
    const std::string id = job->status.job_id();
    actions_.clear();
    core_.Submit(*job, now_, &actions_);
    return id;
  }
};

TEST_F(ClusterCoreQuotaTest, ATenantAtItsQuotaHoldsUpNobodyElse) {
  Quotas("acme workers=2\n");
  const std::string first = SubmitAs("acme", 2);
  const std::string second = SubmitAs("acme", 1);
  const std::string of_zeta = SubmitAs("zeta", 1);
  const std::string of_none = SubmitAs("", 1);
  EXPECT_EQ(State(first), PREPARING);
  EXPECT_EQ(State(second), QUEUED);
  EXPECT_EQ(State(of_zeta), PREPARING);
  EXPECT_EQ(State(of_none), PREPARING);
  EXPECT_EQ(WaitingFor(second),
            "the quota of tenant acme, 2 workers: it has 2 workers in use, and "
            "this job needs 1 worker");
  // Its members are free one by one; the quota counts them until all are.
  Cancel(first);
  EXPECT_EQ(State(second), QUEUED);
  Released(1, first);
  Released(2, first);
  Released(11, first);
  EXPECT_EQ(State(second), PREPARING);
}

TEST_F(ClusterCoreQuotaTest, ALargerQuotaCountsAtOnce) {
  Quotas("acme workers=0\n");
  const std::string job = SubmitAs("acme", 1);
  EXPECT_EQ(State(job), QUEUED);
  Quotas("acme workers=1\n");
  EXPECT_EQ(State(job), PREPARING);
}

TEST_F(ClusterCoreQuotaTest, WhatNeverFitsIsRefused) {
  Quotas("acme workers=2 queued=1\n* workers=1\n");
  EXPECT_TRUE(May("acme", 2).ok());
  const absl::Status refused = May("acme", 3);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(),
            "resources.workers: the job needs 3 workers; the quota of tenant "
            "acme is 2 workers, so it could never run");
  EXPECT_EQ(May("zeta", 2).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(May("", 4).ok());
  SubmitAs("acme", 2);
  SubmitAs("acme", 1);
  const absl::Status full = May("acme", 1);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("1 queued job, and 1 wait"));
}

// The disk that a job has taken itself is no reason for it to wait.
TEST_F(ClusterCoreQuotaTest, AJobThatGoesOnDoesNotWaitForItsOwnDisk) {
  Quotas("acme disk=120\n");
  ParameterInfo weights;
  weights.add_dims(10);
  JobSpec spec;
  spec.mutable_resources()->set_workers(1);
  spec.mutable_resources()->set_ps(1);
  for (const uint32_t attempt : {1u, 0u}) {
    auto job = core_.Prepare(spec, {weights}, {}, core_.NextJobId(), now_);
    ASSERT_TRUE(job.ok()) << job.status();
    job->status.set_tenant("acme");
    job->status.set_attempt(attempt);
    if (attempt > 0) {
      CheckpointInfo* const whole = job->status.add_checkpoints();
      whole->set_path("/c/9");
      whole->set_clock(9);
      whole->set_bytes(100);
      whole->set_attempt(attempt);
    }
    const std::string id = job->status.job_id();
    core_.Submit(*job, now_, &actions_);
    EXPECT_EQ(State(id), attempt > 0 ? PREPARING : QUEUED);
    if (attempt == 0) {
      EXPECT_THAT(WaitingFor(id), HasSubstr("in results and checkpoints"));
    }
  }
}

}  // namespace
}  // namespace syncline::scheduler

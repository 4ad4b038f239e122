// Goal: keys and folders of one tenant are none of another's. Method: specs
// with paths of all kinds, and jobs of two tenants.

#include "scheduler/core/cluster/tenant_rules.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::HasSubstr;

TEST(TenantRulesTest, EqualKeysOfTwoTenantsAreTwoKeys) {
  EXPECT_EQ(*ScopedClientKey("", "k"), "k");
  EXPECT_EQ(*ScopedClientKey("acme", ""), "");
  EXPECT_NE(*ScopedClientKey("acme", "k"), *ScopedClientKey("zeta", "k"));
  EXPECT_NE(*ScopedClientKey("acme", "k"), "k");
  EXPECT_EQ(KeyAsGiven(*ScopedClientKey("acme", "k")), "k");
  EXPECT_EQ(KeyAsGiven("k"), "k");
}

TEST(TenantRulesTest, NobodyWritesAKeyOfATenant) {
  const std::string key = *ScopedClientKey("acme", "k");
  EXPECT_FALSE(ScopedClientKey("", key).ok());
  EXPECT_FALSE(ScopedClientKey("zeta", key).ok());
}

TEST(TenantRulesTest, JobsOfOthersAreInUse) {
  ClusterStatus cluster;
  for (const char* const job : {"", "j-0001", "j-0002"}) {
    cluster.add_members()->set_job_id(job);
  }
  HideOthersJobs([](const std::string& job_id) { return job_id == "j-0001"; },
                 &cluster);
  EXPECT_EQ(cluster.members(0).job_id(), "");
  EXPECT_EQ(cluster.members(1).job_id(), "j-0001");
  EXPECT_EQ(cluster.members(2).job_id(), "(in use)");
}

JobSpec WithDirectory(const std::string& path) {
  JobSpec spec;
  spec.mutable_checkpoint()->set_directory(path);
  return spec;
}
JobSpec WithStart(const std::string& path) {
  JobSpec spec;
  spec.mutable_start()->set_checkpoint(path);
  return spec;
}

TEST(TenantRulesTest, ATenantWritesCheckpointsBelowItsOwnFolder) {
  const auto may = [](const std::string& path, const std::string& tenant,
                      const std::string& root) {
    return CheckTenantPaths(WithDirectory(path), tenant, root,
                            /*of_operator=*/false, {});
  };
  for (const char* path : {"", "/c/acme", "/c/acme/", "/c/acme/runs",
                           "/c/acme/a..b", "/c//acme"}) {
    EXPECT_TRUE(may(path, "acme", "/c").ok()) << path;
  }
  // Behind a link ".." is not what its text says.
  for (const char* path :
       {"/c", "/c/", "/c/acme-2", "/c/zeta", "/c/acme/..", "/c/acme/../zeta",
        "/c/./acme/x", "/c/zeta/../acme/x", "/c/acme/link/../x", "/d/acme",
        "c/acme", "/"}) {
    const absl::Status refused = may(path, "acme", "/c");
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("checkpoint.directory: "));
  }
  // Without the flag of the scheduler none may be named.
  EXPECT_TRUE(may("", "acme", "").ok());
  EXPECT_THAT(std::string(may("/acme", "acme", "").message()),
              HasSubstr("no --tenant-checkpoints"));
  // A job of no tenant.
  EXPECT_TRUE(may("/d", "", "/c").ok());
  EXPECT_TRUE(may("/d", "", "").ok());
  EXPECT_FALSE(may("/c/acme", "", "/c").ok());
  EXPECT_FALSE(may("/c", "", "/c").ok());
}

TEST(TenantRulesTest, ATenantStartsFromItsOwnCheckpoints) {
  std::vector<std::unique_ptr<Job>> owners;
  std::vector<const Job*> jobs;
  const auto add = [&](const std::string& id, const std::string& tenant,
                       const std::string& path) {
    StoredJob stored;
    stored.status.set_job_id(id);
    stored.status.set_state(SUCCEEDED);
    stored.status.set_tenant(tenant);
    stored.status.add_checkpoints()->set_path(path);
    owners.push_back(std::make_unique<Job>(std::move(stored), Job::Options()));
    jobs.push_back(owners.back().get());
  };
  add("j-0001", "acme", "/ps/j-0001/10");
  add("j-0002", "zeta", "/ps/j-0002/10");
  add("j-0003", "", "/ps/j-0003/10");
  const auto may = [&](const std::string& path, const std::string& tenant) {
    return CheckTenantPaths(WithStart(path), tenant, "/c",
                            /*of_operator=*/false, jobs)
        .ok();
  };
  EXPECT_TRUE(may("", "acme"));
  EXPECT_TRUE(may("/ps/j-0001/10", "acme"));
  EXPECT_TRUE(may("/ps/j-0001/10/", "acme"));
  EXPECT_TRUE(may("/c/acme/j-0009/10", "acme"));
  EXPECT_TRUE(may("/ps/j-0003/10", ""));
  for (const char* path :
       {"/ps/j-0002/10", "/ps/j-0003/10", "/ps/j-0001", "/ps/j-0001/20",
        "/ps/j-0001/../j-0002/10", "/ps/./j-0001/10", "/ps/j-0002/../j-0001/10",
        "/c/zeta/j-0009/10", "/c/acme/../zeta/j-0009/10"}) {
    EXPECT_FALSE(may(path, "acme")) << path;
  }
  EXPECT_FALSE(may("/ps/j-0001/10", ""));
  EXPECT_FALSE(may("/c/acme/j-0009/10", ""));
  EXPECT_THAT(
      std::string(CheckTenantPaths(WithStart("/ps/j-0002/10"), "acme", "/c",
                                   /*of_operator=*/false, jobs)
                      .message()),
      HasSubstr("start.checkpoint: /ps/j-0002/10 is no checkpoint that a job "
                "of tenant acme has here"));
  // A job of another tenant, or of none, that lies in the tenant's folder.
  add("j-0004", "", "/c/acme/j-0004/10");
  EXPECT_FALSE(may("/c/acme/j-0004/10", "acme"));
  EXPECT_TRUE(may("/c/acme/j-0005/10", "acme")) << "of no job that is known";
}

TEST(TenantRulesTest, WhatAnOperatorGoesOnWithIsTheTenants) {
  StoredJob stored;
  stored.status.set_job_id("j-0001");
  stored.status.set_tenant("acme");
  stored.status.add_checkpoints()->set_path("/ps/j-0001/10");
  const Job job(std::move(stored), Job::Options());
  const Job* const jobs[] = {&job};
  JobSpec spec = WithStart("/ps/j-0001/10");
  EXPECT_EQ(TenantOfOperators(spec, "/c", jobs), "acme");
  spec.mutable_start()->set_weights_only(true);
  EXPECT_EQ(TenantOfOperators(spec, "/c", jobs), "") << "it begins anew";
  EXPECT_EQ(TenantOfOperators(WithStart("/ps/j-0009/10"), "/c", jobs), "");
  EXPECT_EQ(TenantOfOperators(WithStart("/c/zeta/j-0009/10"), "/c/", jobs),
            "zeta")
      << "its job is not known any more";
  EXPECT_EQ(TenantOfOperators(WithStart("/c/zeta/j-0009/10"), "", jobs), "");
  EXPECT_EQ(TenantOfOperators(WithStart("/c"), "/c", jobs), "");
  EXPECT_EQ(TenantOfOperators(JobSpec(), "/c", jobs), "");
  // An operator starts from anywhere, and writes where no tenant does.
  EXPECT_TRUE(CheckTenantPaths(WithStart("/ps/j-0001/10"), "", "/c",
                               /*of_operator=*/true, jobs)
                  .ok());
  EXPECT_FALSE(CheckTenantPaths(WithDirectory("/c/acme/x"), "", "/c",
                                /*of_operator=*/true, jobs)
                   .ok());
  EXPECT_TRUE(CheckTenantPaths(WithDirectory("/c/acme/x"), "acme", "/c",
                               /*of_operator=*/true, jobs)
                  .ok());
}

}  // namespace
}  // namespace syncline::scheduler

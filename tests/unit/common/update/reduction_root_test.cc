// Goal: a job with ps reduces at its first ps, one without at its first worker.
// Method: assignments with and without ps.

#include "common/update/reduction_root.h"

#include <string>

#include "gtest/gtest.h"

namespace syncline {
namespace {

using Role = ReductionRoot::Role;

JobAssignment JobOf(int ps, int workers) {
  JobAssignment job;
  for (int rank = 0; rank < ps; ++rank) {
    job.add_ps()->mutable_member()->set_incarnation(500 + rank);
  }
  for (int rank = 0; rank < workers; ++rank) {
    job.add_workers()->mutable_member()->set_incarnation(100 + rank);
  }
  return job;
}

TEST(ReductionRootTest, IsTheFirstPs) {
  const ReductionRoot root = ReductionRootOf(JobOf(2, 3));
  EXPECT_TRUE(root.Is(Role::kPs, 0));
  EXPECT_FALSE(root.Is(Role::kPs, 1));
  EXPECT_FALSE(root.Is(Role::kWorker, 0));
  EXPECT_EQ(root.participant.member().incarnation(), 500u);
  EXPECT_EQ(RoleName(root.role), std::string("ps"));
}

TEST(ReductionRootTest, IsThePsThatHasTheFirstShard) {
  JobAssignment job = JobOf(2, 3);
  for (const uint32_t ps : {1, 0, 1}) {
    job.mutable_routing()->add_shard_ps(ps);
  }
  EXPECT_TRUE(ReductionRootOf(job).Is(Role::kPs, 1));
  EXPECT_EQ(ReductionRootOf(job).participant.member().incarnation(), 501u);
}

TEST(ReductionRootTest, IsTheFirstWorkerOfAJobWithoutPs) {
  const ReductionRoot root = ReductionRootOf(JobOf(0, 3));
  EXPECT_TRUE(root.Is(Role::kWorker, 0));
  EXPECT_FALSE(root.Is(Role::kPs, 0));
  EXPECT_EQ(root.participant.member().incarnation(), 100u);
  EXPECT_EQ(RoleName(root.role), std::string("worker"));
}

}  // namespace
}  // namespace syncline

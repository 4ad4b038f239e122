// Goal: each worker is in one group, groups are as many as they are to be, and
// what cannot be is refused with the field's name. Method: groups by size and
// by host of small jobs.

#include "common/job/worker_groups.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

GroupSpec OfSize(uint32_t size) {
  GroupSpec spec;
  spec.set_size(size);
  return spec;
}

GroupSpec ByHost() {
  GroupSpec spec;
  spec.set_by_host(true);
  return spec;
}

JobStatus JobOn(const std::vector<std::string>& hosts, const GroupSpec& spec) {
  JobStatus job;
  *job.mutable_spec()->mutable_groups() = spec;
  for (const std::string& host : hosts) {
    Member* const member = job.add_workers()->mutable_member();
    member->set_hostname(host);
    member->mutable_task()->set_type(WORKER);
    member->mutable_task()->set_index(
        static_cast<uint32_t>(job.workers_size() - 1));
  }
  return job;
}

TEST(WorkerGroupsTest, BySizeTheFirstRanksAreGroup0) {
  const auto groups = WorkerGroups::Of(OfSize(2), std::vector<std::string>(6));
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_EQ(groups->count(), 3u);
  EXPECT_EQ(groups->size(), 2u);
  EXPECT_EQ(groups->workers(), 6u);
  EXPECT_THAT(groups->MembersOf(1), ElementsAre(2, 3));
  EXPECT_EQ(groups->LeaderOf(2), 4u);
  EXPECT_EQ(groups->GroupOf(3), 1u);
  EXPECT_EQ(groups->PlaceOf(3), 1u);
}

TEST(WorkerGroupsTest, ByHostTheLowestRankLeads) {
  const auto groups =
      WorkerGroups::Of(ByHost(), {"b", "a", "b", "a", "a", "b"});
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_EQ(groups->count(), 2u);
  EXPECT_THAT(groups->MembersOf(0), ElementsAre(0, 2, 5));
  EXPECT_THAT(groups->MembersOf(1), ElementsAre(1, 3, 4));
  EXPECT_EQ(groups->PlaceOf(5), 2u);
}

TEST(WorkerGroupsTest, SaysOfGroupsWhatIsSaidOfWorkers) {
  const auto groups = WorkerGroups::Of(ByHost(), {"a", "b", "a", "b"});
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_THAT(groups->ToGroups({5, 3, 0, 4}), ElementsAre(5, 4));
  EXPECT_THAT(groups->ToWorkers({5, 4}), ElementsAre(5, 4, 5, 4));
  // Of some other length: whoever reads it says so.
  EXPECT_THAT(groups->ToGroups({5}), ElementsAre(5));
  EXPECT_THAT(groups->ToWorkers({5}), ElementsAre(5));
}

TEST(WorkerGroupsTest, RefusesByName) {
  const std::vector<std::string> four(4, "a");
  const auto error = [](const GroupSpec& spec,
                        const std::vector<std::string>& hosts) {
    const auto groups = WorkerGroups::Of(spec, hosts);
    EXPECT_TRUE(absl::IsInvalidArgument(groups.status()));
    return std::string(groups.status().message());
  };
  EXPECT_THAT(error(OfSize(0), four), HasSubstr("groups.size: is 0"));
  EXPECT_EQ(error(OfSize(3), four),
            "groups.size: 3 does not divide the number of workers, 4");
  EXPECT_THAT(error(OfSize(8), four), HasSubstr("8 does not divide"));
  GroupSpec both = ByHost();
  both.set_size(2);
  EXPECT_THAT(error(both, four), HasSubstr("not together"));
  EXPECT_THAT(error(ByHost(), {"a", "b", "a"}),
              AllOf(HasSubstr("groups.by_host: hosts have different"),
                    HasSubstr("a has 2"), HasSubstr("b has 1")));
  EXPECT_THAT(error(ByHost(), {"a", ""}), HasSubstr("rank 1 is not known"));
}

TEST(WorkerGroupsTest, OneWorkerEachIsNoGroup) {
  JobSpec spec = JobFromText(kSmallJob);
  EXPECT_FALSE(HasGroups(spec));
  EXPECT_EQ(KnownGroupSize(spec), 0u);
  spec.mutable_groups()->set_size(1);
  EXPECT_FALSE(HasGroups(spec));
  spec.mutable_resources()->set_workers(6);
  EXPECT_EQ(GroupCountMax(spec), 6u);
  spec.mutable_groups()->set_size(3);
  EXPECT_TRUE(HasGroups(spec));
  EXPECT_EQ(GroupCountMax(spec), 2u);
  EXPECT_EQ(KnownGroupSize(spec), 3u);
  *spec.mutable_groups() = ByHost();
  EXPECT_TRUE(HasGroups(spec));
  EXPECT_EQ(GroupCountMax(spec), 6u);
  EXPECT_EQ(KnownGroupSize(spec), 0u);
  const WorkerGroups none = WorkerGroups::None(3);
  EXPECT_EQ(none.count(), 3u);
  EXPECT_EQ(none.size(), 1u);
  EXPECT_EQ(none.GroupOf(2), 2u);
  EXPECT_EQ(WorkerGroups().size(), 1u);
}

TEST(WorkerGroupsTest, AreSaidInWords) {
  EXPECT_EQ(GroupsText(JobOn({"a", "a", "b", "b"}, ByHost())),
            "2 groups of 2 workers: worker:0 (leader), worker:1; worker:2 "
            "(leader), worker:3");
  EXPECT_EQ(GroupsText(JobOn({"a", "a"}, OfSize(2))),
            "1 group of 2 workers: worker:0 (leader), worker:1");
  EXPECT_EQ(GroupsText(JobOn({"a", "a"}, OfSize(1))), "");
  EXPECT_EQ(GroupsText(JobOn({}, ByHost())), "");
  EXPECT_THAT(GroupsText(JobOn({"a", "a", "b"}, ByHost())),
              HasSubstr("groups.by_host: hosts have different"));
}

}  // namespace
}  // namespace syncline

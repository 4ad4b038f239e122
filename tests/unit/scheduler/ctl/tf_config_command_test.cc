// Goal: a TF_CONFIG can be written from flags and from a running cluster.
// Method: flags and a cluster's status in, tasks out.

#include "scheduler/ctl/tf_config_command.h"

#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ctl {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Describe(const std::vector<TaskAddress>& tasks) {
  std::string text;
  for (const TaskAddress& task : tasks) {
    text += TaskName(task.task) + "=" + task.address + " ";
  }
  return text;
}

TEST(ParseClusterFlagsTest, CountsAddressesFromTheGivenIndex) {
  const auto tasks =
      ParseClusterFlags({"chief=a:1", "worker:3=b:1,c:1", "ps=d:1,[::1]:2"});
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  EXPECT_EQ(Describe(*tasks),
            "chief:0=a:1 worker:3=b:1 worker:4=c:1 ps:0=d:1 ps:1=[::1]:2 ");
}

TEST(ParseClusterFlagsTest, NamesEveryBadFlag) {
  const auto tasks = ParseClusterFlags({"chef=a:1", "ps=b", "worker", "ps="});
  ASSERT_TRUE(absl::IsInvalidArgument(tasks.status()));
  const std::string message(tasks.status().message());
  EXPECT_THAT(message, AllOf(HasSubstr("'chef=a:1'"), HasSubstr("'ps=b'"),
                             HasSubstr("'worker'"), HasSubstr("'ps='")));
}

TEST(TasksOfTest, NamesTheSchedulerToo) {
  ClusterStatus cluster;
  cluster.set_scheduler_address("s:7070");
  Member* member = cluster.add_members()->mutable_member();
  member->mutable_task()->set_type(CHIEF);
  member->set_address("a:1");
  EXPECT_EQ(Describe(TasksOf(cluster)), "chief:0=a:1 scheduler:0=s:7070 ");
  cluster.set_scheduler_address("a:1");
  EXPECT_EQ(Describe(TasksOf(cluster)), "chief:0=a:1 ") << "the chief hosts it";
}

TEST(RunTfConfigTest, WritesWhatParseTfConfigReads) {
  std::ostringstream out, err;
  const Console console{.out = out, .err = err};
  ASSERT_EQ(RunTfConfig("", {"chief=a:1", "ps=b:1"}, "ps:0", console), 0)
      << err.str();
  const auto config = ParseTfConfig(out.str());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(TaskName(config->self), "ps:0");
  EXPECT_EQ(config->scheduler_address, "a:1");
  EXPECT_EQ(RunTfConfig("", {"chief=a:1"}, "ps:0", console), 1);
  EXPECT_EQ(RunTfConfig("", {"chief=a:1"}, "no-task", console), 2);
}

}  // namespace
}  // namespace syncline::ctl

// Goal: the doctor finds every problem of a configuration and no others.
// Method: TF_CONFIG texts offline; a cluster's status as the scheduler sends
// it.

#include "scheduler/ctl/doctor.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "common/rpc/user_calls.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ctl {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::string Problems(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    if (finding.verdict == Finding::Verdict::kProblem) {
      text += finding.subject + ": " + finding.detail + "\n";
    }
  }
  return text;
}

DoctorOptions Offline(std::optional<std::string> tf_config) {
  DoctorOptions options;
  options.tf_config = std::move(tf_config);
  options.offline = true;
  return options;
}

std::string OfflineProblems(const std::string& tf_config) {
  return Problems(Diagnose(Offline(tf_config)));
}

TEST(DiagnoseTest, AGoodConfigurationHasNoProblem) {
  EXPECT_THAT(OfflineProblems(
                  R"({"cluster": {"chief": ["a:1"], "ps": ["b:1", "c:1"]},
                      "task": {"type": "ps", "index": 1}})"),
              IsEmpty());
}

TEST(DiagnoseTest, AllProblemsAreFound) {
  EXPECT_THAT(OfflineProblems(
                  R"({"cluster": {"chief": ["0.0.0.0:1"], "ps": ["b:1", "b:1"]},
                      "task": {"type": "ps", "index": 1}})"),
              AllOf(HasSubstr("cluster.chief[0]"), HasSubstr("cluster.ps[1]")));
  EXPECT_THAT(OfflineProblems(R"({"cluster": 7})"), HasSubstr("TF_CONFIG"));
}

TEST(DiagnoseTest, NoTokenGoesInPlainTextToTheSchedulerOfTfConfig) {
  SetCallToken("secret");
  // Addresses for documentation: nobody answers there.
  DoctorOptions options = Offline(
      R"({"cluster": {"chief": ["192.0.2.1:7070"], "ps": ["127.0.0.1:7071"]},
          "task": {"type": "ps", "index": 0}})");
  options.offline = false;
  const std::string problems = Problems(Diagnose(options));
  SetCallToken("");
  EXPECT_THAT(problems, HasSubstr("in plain text to 192.0.2.1:7070"));
}

TEST(DiagnoseTest, NoTfConfigIsANoteOnly) {
  const auto findings = Diagnose(Offline(std::nullopt));
  EXPECT_THAT(Problems(findings), IsEmpty());
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].detail, HasSubstr("is not set"));
}

TEST(DiagnoseTest, SharedMemoryIsTriedAndNeverAProblem) {
  DoctorOptions options = Offline(std::nullopt);
  options.offline = false;
  const auto findings = Diagnose(options);
  EXPECT_EQ(std::count_if(
                findings.begin(), findings.end(),
                [](const Finding& f) { return f.subject == "shared memory"; }),
            1);
  EXPECT_THAT(Problems(findings), IsEmpty());
}

TEST(DiagnoseTest, ABadSchedulerFlagIsFound) {
  DoctorOptions options = Offline(std::nullopt);
  options.scheduler = "nowhere";
  EXPECT_THAT(Problems(Diagnose(options)), HasSubstr("--scheduler: "));
}

ClusterStatus ClusterWithPs1() {
  ClusterStatus cluster;
  cluster.set_version("1.0");
  Member* member = cluster.add_members()->mutable_member();
  member->mutable_task()->set_type(PS);
  member->mutable_task()->set_index(1);
  member->set_version("1.0");
  member->set_address("h:2222");
  member->set_pid(4711);
  return cluster;
}

TEST(CompareWithClusterTest, EqualVersionsAndAFreeTaskAreFine) {
  const auto findings =
      CompareWithCluster(ClusterWithPs1(), "1.0", TaskId{TaskKind::kPs, 0});
  EXPECT_THAT(Problems(findings), IsEmpty());
}

TEST(CompareWithClusterTest, DifferentVersionsAreNamedWithTheirOwners) {
  EXPECT_THAT(
      Problems(CompareWithCluster(ClusterWithPs1(), "1.1", std::nullopt)),
      AllOf(HasSubstr("the scheduler is 1.0, this is 1.1"),
            HasSubstr("ps:1 at h:2222 is 1.0, this is 1.1")));
}

TEST(CompareWithClusterTest, APatchLevelApartIsANoteOnly) {
  ClusterStatus cluster = ClusterWithPs1();
  cluster.set_version("1.0.1");
  cluster.mutable_members(0)->mutable_member()->set_version("1.0.2");
  const auto findings = CompareWithCluster(cluster, "1.0.3", std::nullopt);
  EXPECT_THAT(Problems(findings), IsEmpty());
  EXPECT_THAT(findings, SizeIs(2));
}

TEST(CompareWithClusterTest, ATakenTaskIsNamedWithItsHolder) {
  EXPECT_THAT(Problems(CompareWithCluster(ClusterWithPs1(), "1.0",
                                          TaskId{TaskKind::kPs, 1})),
              HasSubstr("ps:1 is already taken by process 4711"));
}

TEST(RunDoctorTest, TheExitCodeIsTheVerdict) {
  std::ostringstream out, err;
  const Console console{.out = out, .err = err};
  EXPECT_EQ(RunDoctor(Offline(std::nullopt), console), 0);
  EXPECT_THAT(out.str(), HasSubstr("usable"));
  EXPECT_EQ(RunDoctor(Offline("{"), console), 1);
  EXPECT_THAT(out.str(), HasSubstr("not usable: 1 problem"));
}

}  // namespace
}  // namespace syncline::ctl

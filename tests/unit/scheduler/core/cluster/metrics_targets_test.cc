// Goal: Prometheus is told of each process once, by its task; what a member
// says of itself breaks nothing. Method: lists of members.

#include "scheduler/core/cluster/metrics_targets.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Member MemberWith(TaskType type, uint32_t index, const std::string& http) {
  Member member;
  member.mutable_task()->set_type(type);
  member.mutable_task()->set_index(index);
  member.set_http_address(http);
  member.set_hostname("node1");
  return member;
}

// "worker:2 on node1 at w:2", .. of the JSON, whatever the order of its fields.
std::vector<std::string> TargetsOf(const std::string& json) {
  google::protobuf::ListValue list;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json, &list).ok());
  std::vector<std::string> targets;
  for (const auto& value : list.values()) {
    const auto& fields = value.struct_value().fields();
    const auto& labels = fields.at("labels").struct_value().fields();
    const auto host = labels.find("host");
    EXPECT_EQ(fields.at("targets").list_value().values_size(), 1);
    targets.push_back(absl::StrCat(
        labels.at("task").string_value(), ":",
        labels.at("index").string_value(),
        host == labels.end() ? "" : " on " + host->second.string_value(),
        " at ", fields.at("targets").list_value().values(0).string_value()));
  }
  return targets;
}

TEST(MetricsTargetsTest, EachProcessIsATargetWithItsTask) {
  EXPECT_THAT(
      TargetsOf(MetricsTargetsJson("s:1", {MemberWith(WORKER, 2, "w:2")})),
      ElementsAre("worker:2 on node1 at w:2", "scheduler:0 at s:1"));
  EXPECT_EQ(MetricsTargetsJson("", {}), "[]");
}

TEST(MetricsTargetsTest, OneProcessWithSeveralTasksIsOneTarget) {
  const std::string json = MetricsTargetsJson(
      "a:1", {MemberWith(CHIEF, 0, "a:1"), MemberWith(PS, 0, "a:1")});
  EXPECT_THAT(json, AllOf(HasSubstr("chief"), Not(HasSubstr("ps")),
                          Not(HasSubstr("scheduler"))));
}

TEST(MetricsTargetsTest, WhatIsNoAddressIsLeftOut) {
  const std::string json = MetricsTargetsJson(
      "", {MemberWith(PS, 0, ""), MemberWith(PS, 1, "no port"),
           MemberWith(PS, 2, "p:2")});
  EXPECT_THAT(json, AllOf(HasSubstr("p:2"), Not(HasSubstr("no port")),
                          Not(HasSubstr("[\"\"]"))));
}

TEST(MetricsTargetsTest, TextsAreEscaped) {
  Member member = MemberWith(PS, 0, "p:1");
  member.set_hostname("a\",\"x\":\"\n");
  EXPECT_THAT(MetricsTargetsJson("", {member}),
              HasSubstr("\"host\":\"a\\\",\\\"x\\\":\\\"\\n\""));
}

}  // namespace
}  // namespace syncline::scheduler

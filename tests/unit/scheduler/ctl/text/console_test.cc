// Goal: people and machines both get what they can read. Method: a console on
// string streams.

#include "scheduler/ctl/text/console.h"

#include <sstream>

#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "proto/job.pb.h"

namespace syncline::ctl {
namespace {

TEST(ConsoleTest, PrintsErrorsForPeopleOnTheErrorStream) {
  std::ostringstream out, err;
  const Console console{.out = out, .err = err};
  EXPECT_EQ(console.PrintError(absl::InvalidArgumentError("one\ntwo")), 1);
  EXPECT_EQ(out.str(), "");
  EXPECT_EQ(err.str(), "synctl: one\n  two\n");
}

TEST(ConsoleTest, PrintsErrorsAsJsonOnTheOutputStream) {
  std::ostringstream out, err;
  const Console console{.out = out, .err = err, .json = true};
  EXPECT_EQ(console.PrintError(absl::UnavailableError("say \"no\"")), 3);
  EXPECT_THAT(out.str(), testing::StartsWith("{\"error\":{"));
  EXPECT_THAT(out.str(), testing::HasSubstr("\"code\":\"UNAVAILABLE\""));
  EXPECT_THAT(out.str(), testing::HasSubstr("\"message\":\"say \\\"no\\\"\""));
  EXPECT_THAT(out.str(), testing::EndsWith("}}\n"));
  EXPECT_EQ(err.str(), "");
}

TEST(ConsoleTest, JsonKeepsTheFieldNamesAndDefaults) {
  Artifact artifact;
  artifact.set_name("a\nb");
  EXPECT_EQ(ToJson(artifact),
            "{\"name\":\"a\\nb\",\"size_bytes\":\"0\",\"crc32c\":0}");
}

TEST(ConsoleTest, JsonOfAJobHasNoFieldsOfItsSpecThatNobodySet) {
  JobStatus job;
  job.set_job_id("j-0001");
  job.mutable_spec()->set_name("mnist");
  job.mutable_spec()->mutable_training()->set_epochs(3);
  const std::string json = ToJson(job);
  EXPECT_THAT(json, testing::HasSubstr("\"exit_code\":0"));
  EXPECT_THAT(json, testing::HasSubstr("\"training\":{\"epochs\":3}"));
  EXPECT_THAT(json, testing::HasSubstr("\"name\":\"mnist\""));
  EXPECT_THAT(json, testing::Not(testing::HasSubstr("max_clocks")));
  JobStatus again;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(json, &again).ok());
  EXPECT_EQ(again.SerializeAsString(), job.SerializeAsString());
}

}  // namespace
}  // namespace syncline::ctl

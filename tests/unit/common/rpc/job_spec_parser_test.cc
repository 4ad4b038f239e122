// Goal: a job file is read from text format or JSON, and whatever is wrong with
// its form is reported with label, line and column, unknown fields all at once.
// Method: table of texts and the exact report.

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/rpc/job_spec_validator.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ErrorOf(absl::string_view text) {
  const auto spec = ParseJobSpec(text, "job");
  EXPECT_FALSE(spec.ok());
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(spec.status().message());
}

TEST(JobSpecParserTest, BothFormsGiveTheSameSpec) {
  const auto text = ParseJobSpec(
      "# a comment\nname: 'a' optimizer { kind: ADAM beta1: 0.5 }\n"
      "data { feeds { input: 'x' field: 'f' } }",
      "job");
  const auto json = ParseJobSpec(
      " {\"name\": \"a\", \"optimizer\": {\"kind\": \"ADAM\", \"beta1\": 0.5},"
      "\"data\": {\"feeds\": [{\"input\": \"x\", \"field\": \"f\"}]}}",
      "job");
  ASSERT_TRUE(text.ok()) << text.status();
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_TRUE(MessageDifferencer::Equals(*text, *json));
  EXPECT_EQ(text->optimizer().beta1(), 0.5f);
}

TEST(JobSpecParserTest, JsonTakesBothSpellingsOfAName) {
  for (const char* key : {"batch_size", "batchSize"}) {
    const auto spec =
        ParseJobSpec(absl::StrCat("{\"training\": {\"", key, "\": 7}}"), "job");
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->training().batch_size(), 7u);
  }
}

TEST(JobSpecParserTest, TextFormatErrorsHaveTheirPlace) {
  const std::pair<const char*, const char*> table[] = {
      {"model {\n  path: 3 }", "job:2:9: Expected string, got: 3"},
      {"optimizer { kind: ADM }",
       "job:1:23: Unknown enumeration value of \"ADM\" for field \"kind\"."},
      {"training { epochs: -1 }", "job:1:20: Expected integer, got: -"},
      {"name: 'a'\nname: 'b'",
       "job:2:5: Non-repeated field \"name\" is specified multiple times."},
      {"data { train { idx {}\n csv {} } }",
       "job:2:6: Field \"csv\" is specified along with field \"idx\", another "
       "member of oneof \"format\"."},
      {"foo: 1\nbar { x { y: [1] } }\nname: 'a'",
       "job:1:4: Message type \"syncline.JobSpec\" has no field named \"foo\"."
       "\njob:2:5: Message type \"syncline.JobSpec\" has no field named "
       "\"bar\"."},
  };
  for (const auto& [text, error] : table) {
    EXPECT_EQ(ErrorOf(text), error) << text;
  }
}

TEST(JobSpecParserTest, JsonErrorsHaveTheirPlace) {
  const std::pair<const char*, const char*> table[] = {
      {"{\n \"name\": \"a\",\n \"model\": {\"path\": 3 \"x\": 1}}",
       "job:3:22: not JSON: expected ',' or '}'"},
      {"{\"name\":", "job:1:9: not JSON: it ends where a value should be"},
      {"{\"name\": \"a\"} x",
       "job:1:15: not JSON: text after the end of the value"},
      {"{\"training\":\n {\"batchSize\": \"x\"}}",
       "job:2:3: (training.batch_size): invalid value \"x\" for type "
       "TYPE_UINT32"},
      {"{\"optimizer\": {\"kind\": \"ADM\"}}",
       "job:1:16: (optimizer.kind): invalid value \"ADM\" for type "
       "type.googleapis.com/syncline.OptimizerSpec.Kind"},
      {"{\"foo\": 1,\n \"data\": {\"feeds\": [{\"inputs\": 1}]}}",
       "job:1:2: Message type \"syncline.JobSpec\" has no field named \"foo\"."
       "\njob:2:22: Message type \"syncline.Feed\" has no field named "
       "\"inputs\"."},
  };
  for (const auto& [text, error] : table) {
    EXPECT_EQ(ErrorOf(text), error) << text;
  }
}

TEST(JobSpecParserTest, JsonKeysMayNotRepeat) {
  EXPECT_THAT(ErrorOf("{\"name\": \"a\",\n \"name\": \"b\"}"),
              StartsWith("job:2:"));
}

TEST(JobSpecParserTest, JsonIsReadStrictly) {
  for (const char* text : {"{'name': 'a'}", "{name: \"a\"}",
                           "{\"name\": \"a\",}", "{\"metrics\": [1,]}"}) {
    EXPECT_THAT(ErrorOf(text), StartsWith("job:1:")) << text;
  }
}

TEST(JobSpecParserTest, HostileTextIsRefusedNotFollowed) {
  // Deep nesting, in known and unknown fields.
  std::string deep;
  for (int i = 0; i < 200'000; ++i) deep += "a{";
  EXPECT_THAT(ErrorOf(deep), HasSubstr("recursion limit"));
  std::string json = "{\"model\":";
  for (int i = 0; i < 200'000; ++i) json += "[";
  EXPECT_THAT(ErrorOf(json), StartsWith("job"));
  json = "{\"a\": 1";
  for (int i = 0; i < 50'000; ++i) absl::StrAppend(&json, ",\"a", i, "\": 1");
  EXPECT_EQ(std::count(json.begin(), json.end(), ':'), 50'001);
  const std::string error = ErrorOf(json + "}");
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 99);
  // Bytes that are no text do not reach a terminal.
  EXPECT_EQ(ErrorOf("\xff\x1b[2J").find('\x1b'), std::string::npos);
  EXPECT_THAT(ErrorOf(std::string((1 << 20) + 1, ' ')), HasSubstr("too large"));
}

}  // namespace
}  // namespace syncline

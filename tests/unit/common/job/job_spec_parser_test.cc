// Goal: a job file is read from text format or JSON, and whatever is wrong with
// its form is reported with label, line and column, unknown fields all at once.
// Method: table of texts and the exact report.

#include "common/job/job_spec_parser.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/job_spec_validator.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

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
      {"model {\n  path: 3 }",
       "job:2:9: (model.path): Expected string, got: 3"},
      {"optimizer { kind: ADM }",
       "job:1:13: (optimizer.kind): Unknown enumeration value of \"ADM\" for "
       "field \"kind\"; it "
       "is "
       "one of SGD, MOMENTUM, NESTEROV, ADAGRAD, ADAM, ADAMW, RMSPROP, LAMB, "
       "FTRL, ROW_WISE_ADAGRAD"},
      {"training { epochs: -1 }",
       "job:1:20: (training.epochs): Expected integer, got: -"},
      {"name: 'a'\nname: 'b'",
       "job:2:5: (name): Non-repeated field \"name\" is specified multiple "
       "times."},
      {"data { train { idx {}\n csv {} } }",
       "job:2:6: (data.train.csv): Field \"csv\" is specified along with field "
       "\"idx\", another "
       "member of oneof \"format\"."},
      {"foo: 1\nbar { x { y: [1] } }\nname: 'a'",
       "job:1:1: Message type \"syncline.JobSpec\" has no field named \"foo\"."
       "\njob:2:1: Message type \"syncline.JobSpec\" has no field named "
       "\"bar\"."},
  };
  for (const auto& [text, error] : table) {
    EXPECT_EQ(ErrorOf(text), error) << text;
  }
}

TEST(JobSpecParserTest, JsonErrorsHaveTheirPlace) {
  const std::pair<const char*, const char*> table[] = {
      {"{\n \"name\": \"a\",\n \"model\": {\"path\": 3 \"x\": 1}}",
       "job:3:22: not JSON: expected ',' or '}'\n"
       "job:3:12: (model.path): invalid value 3 for type TYPE_STRING\n"
       "job:3:22: Message type \"syncline.ModelSpec\" has no field named "
       "\"x\"."},
      {"{\"name\":", "job:1:9: not JSON: it ends where a value should be"},
      {"{\"name\": \"a\"} x",
       "job:1:15: not JSON: text after the end of the value"},
      {"{\"training\":\n {\"batchSize\": \"x\"}}",
       "job:2:3: (training.batch_size): invalid value \"x\" for type "
       "TYPE_UINT32"},
      {"{\"optimizer\": {\"kind\": \"ADM\"}}",
       "job:1:16: (optimizer.kind): invalid value \"ADM\" for type "
       "type.googleapis.com/syncline.OptimizerSpec.Kind; it is one of SGD, "
       "MOMENTUM, NESTEROV, ADAGRAD, ADAM, ADAMW, RMSPROP, LAMB, FTRL, "
       "ROW_WISE_ADAGRAD"},
      {"{\"foo\": 1,\n \"data\": {\"feeds\": [{\"inputs\": 1}]}}",
       "job:1:2: Message type \"syncline.JobSpec\" has no field named \"foo\"."
       "\njob:2:22: Message type \"syncline.Feed\" has no field named "
       "\"inputs\". Did you mean \"input\"?"},
  };
  for (const auto& [text, error] : table) {
    EXPECT_EQ(ErrorOf(text), error) << text;
  }
}

TEST(JobSpecParserTest, OneBadFieldHidesNoOther) {
  constexpr char kText[] =
      "name: 7\n"
      "nam: 'a'\n"
      "optimizer { kind: SGDD weight_decay: 0.5 }\n"
      "training {\n"
      "\tepochs: -1\n"
      "  batch_size: 8\n"
      "  seed\n"
      "}\n"
      "data { feeds { input: 'x' scale: 'y' } shuffle: maybe }\n"
      "metrics: [AUC, ACURACY]\n"
      "loss: 3\n";
  const JobReading text = ReadJobSpec(kText, "job");
  EXPECT_THAT(text.problems,
              ElementsAre(StartsWith("job:1:7: "), StartsWith("job:2:1: "),
                          StartsWith("job:3:13: "), StartsWith("job:5:10: "),
                          StartsWith("job:8:1: "), StartsWith("job:9:34: "),
                          StartsWith("job:9:40: "), StartsWith("job:10:16: "),
                          StartsWith("job:11:")));
  EXPECT_THAT(
      text.unread_paths,
      UnorderedElementsAre("name", "nam", "optimizer.kind", "training.epochs",
                           "training.seed", "data.feeds[0].scale",
                           "data.shuffle", "metrics[1]", "loss"));
  EXPECT_TRUE(text.complete);
  EXPECT_EQ(text.spec.training().batch_size(), 8u);
  EXPECT_EQ(text.spec.data().feeds(0).input(), "x");
  EXPECT_EQ(text.spec.optimizer().weight_decay(), 0.5f);
  EXPECT_EQ(text.spec.optimizer().kind(), kUnreadEnum);
  EXPECT_EQ(text.spec.metrics_size(), 1);

  const JobReading json = ReadJobSpec(
      "{\"name\": 7, \"nam\": \"a\",\n"
      "\"optimizer\": {\"kind\": \"SGDD\", \"weightDecay\": 0.5},\n"
      "\"training\": {\"epochs\": -1, \"batch_size\": 8},\n"
      "\"data\": {\"feeds\": [{\"input\": \"x\", \"scale\": \"y\"}]},\n"
      "\"metrics\": [\"AUC\", \"ACURACY\"],\n"
      "\"loss\": 3}",
      "job");
  EXPECT_THAT(json.problems,
              ElementsAre(StartsWith("job:1:2: "), StartsWith("job:1:13: "),
                          StartsWith("job:2:15: "), StartsWith("job:3:14: "),
                          StartsWith("job:4:35: "), StartsWith("job:5:20: "),
                          StartsWith("job:6:1: ")));
  EXPECT_TRUE(json.complete);
  EXPECT_EQ(json.spec.training().batch_size(), 8u);
  EXPECT_EQ(json.spec.optimizer().weight_decay(), 0.5f);
}

TEST(JobSpecParserTest, WhatComesBeforeABrokenFormIsRead) {
  const JobReading text = ReadJobSpec(
      "training { epochs: 3 batch_size: 'x' }\nmodel { path: 'm'", "job");
  EXPECT_THAT(text.problems,
              ElementsAre(StartsWith("job:1:34: "), StartsWith("job:2:18: ")));
  EXPECT_FALSE(text.complete);
  EXPECT_EQ(text.spec.training().epochs(), 3u);
  EXPECT_EQ(text.spec.model().path(), "m");
  // A comma too many is no reason to read nothing.
  const JobReading json =
      ReadJobSpec("{\"training\": {\"epochs\": 3,\n \"seed\": \"x\",}}", "job");
  EXPECT_THAT(json.problems, ElementsAre(HasSubstr("a comma before '}'"),
                                         StartsWith("job:2:2: ")));
  EXPECT_EQ(json.spec.training().epochs(), 3u);
  EXPECT_FALSE(ReadJobSpec("{\"name\":", "job").complete);
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

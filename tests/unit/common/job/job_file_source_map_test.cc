// Goal: the fields of a job file are found where they are, in both forms and in
// broken ones. Method: small texts; the fields as "path=text", and seeded
// garbage, of which only the bounds are asked.

#include "common/job/job_file_source_map.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> FieldsOf(absl::string_view text) {
  const JobFileSourceMap source_map(text);
  std::vector<std::string> fields;
  for (const JobFileSourceMap::Field& field : source_map.fields()) {
    fields.push_back(
        absl::StrCat(field.descriptor == nullptr ? "?" : "", field.path, "=",
                     text.substr(field.begin, field.end - field.begin),
                     field.has_value ? "" : "!"));
  }
  return fields;
}

TEST(JobFileSourceMapTest, FindsFieldsInTextFormat) {
  EXPECT_THAT(
      FieldsOf("name: 'a' \"b\" # name: 'c'\n"
               "data { feeds { scale: - 1 } feeds <input: \"}\"> }"),
      ElementsAre("name=name: 'a' \"b\"",
                  "data=data { feeds { scale: - 1 } feeds <input: \"}\"> }",
                  "data.feeds[0]=feeds { scale: - 1 }",
                  "data.feeds[0].scale=scale: - 1",
                  "data.feeds[1]=feeds <input: \"}\">",
                  "data.feeds[1].input=input: \"}\""));
}

TEST(JobFileSourceMapTest, FindsFieldsInJson) {
  EXPECT_THAT(
      FieldsOf(
          "{\"training\": {\"batchSize\": -7}, \"metrics\": [\"AUC\", 1]}"),
      ElementsAre("training=\"training\": {\"batchSize\": -7}",
                  "training.batch_size=\"batchSize\": -7",
                  "metrics=\"metrics\": [\"AUC\", 1]", "metrics[0]=\"AUC\"",
                  "metrics[1]=1"));
}

TEST(JobFileSourceMapTest, FindsFieldsInBrokenText) {
  EXPECT_THAT(FieldsOf("training { epochs: } } nam: 1 model { path \"x\""),
              ElementsAre("training=training { epochs: }",
                          "training.epochs=epochs:!", "?nam=nam: 1",
                          "model=model { path \"x\"", "model.path=path \"x\""));
  EXPECT_THAT(FieldsOf("training { epochs batch_size: 3 }"),
              ElementsAre("training=training { epochs batch_size: 3 }",
                          "training.epochs=epochs!",
                          "training.batch_size=batch_size: 3"));
  EXPECT_THAT(FieldsOf("{\"metrics\": [[1], [2]], \"name\": \"a\"}"),
              ElementsAre("metrics=\"metrics\": [[1], [2]]", "metrics[0]=1",
                          "metrics[1]=2", "name=\"name\": \"a\""));
}

TEST(JobFileSourceMapTest, NothingInsideAnUnknownFieldIsListed) {
  EXPECT_THAT(FieldsOf("foo { name: 'a' bar: [1, {name: 2}] } name: 'b'"),
              ElementsAre("?foo=foo { name: 'a' bar: [1, {name: 2}] }",
                          "name=name: 'b'"));
}

TEST(JobFileSourceMapTest, AFieldIsFoundByPlaceAndByPath) {
  const JobFileSourceMap source_map("model { path: 'm' } name: 'a'");
  EXPECT_EQ(source_map.At(9)->path, "model.path");
  EXPECT_EQ(source_map.At(18)->path, "model");
  EXPECT_EQ(source_map.At(19), nullptr);
  EXPECT_EQ(source_map.Before(18)->path, "model.path");
  EXPECT_EQ(source_map.Before(3), nullptr);
  EXPECT_EQ(source_map.Find("name")->begin, 20u);
  EXPECT_EQ(source_map.Find("model.freeze"), nullptr);
  EXPECT_EQ(source_map.FindNearest("model.freeze[3]")->path, "model");
  EXPECT_EQ(source_map.FindNearest("data.train"), nullptr);
}

TEST(JobFileSourceMapTest, ABlankedFieldTakesAComma) {
  const std::pair<const char*, const char*> table[] = {
      {"[{\"path\": 1}", "[{         }"},
      {"{\"name\": 1 , \"model\": 2}", "{            \"model\": 2}"},
      {"{\"x\": 2,\n \"name\": 1}", "{\"x\": 2 \n          }"},
  };
  for (const auto& [before, after] : table) {
    std::string text = before;
    const JobFileSourceMap source_map(text);
    for (const JobFileSourceMap::Field& field : source_map.fields()) {
      if (field.path == "name" || field.path == "path") {
        BlankField(field, &text);
      }
    }
    EXPECT_EQ(text, after);
  }
}

TEST(JobFileSourceMapTest, FieldsStayInsideAnyText) {
  constexpr absl::string_view kPieces[] = {
      "{", "}",    "[",    "]",     "<",       ">",  ":",
      ",", "\"",   "'",    "#",     "\n",      "\\", "-",
      " ", "name", "data", "feeds", "metrics", "x1", "\xff"};
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    std::string text;
    for (int i = 0; i < 40; ++i) {
      absl::StrAppend(&text, kPieces[random.Below(std::size(kPieces))]);
    }
    const JobFileSourceMap source_map(text);
    for (const JobFileSourceMap::Field& field : source_map.fields()) {
      ASSERT_LT(field.begin, field.end) << text;
      ASSERT_LE(field.end, text.size()) << text;
    }
  }
}

}  // namespace
}  // namespace syncline

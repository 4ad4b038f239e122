// Goal: every range and contradiction that proto/job_spec.proto documents for
// the job's data is reported once, with its field path.
// Method: a valid job, a table of edits to it and what each must report; both
// ends of each range.

#include "common/job/data_spec_validator.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/job_spec_validator.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::google::protobuf::TextFormat;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobSpec Edited(const std::string& edit) { return JobFromText(kImageJob, edit); }

TEST(DataSpecValidatorTest, SaysWhatALargeOffsetLoses) {
  const auto note = [](const std::string& edit) {
    return OffsetNote(JobFromText(kSmallJob, edit));
  };
  EXPECT_EQ(note(""), "");
  EXPECT_EQ(note("data { feeds { input: 'y' field: 'b' offset: -1000 } }"), "");
  EXPECT_THAT(note("data { feeds { input: 'y' field: 'b' offset: -1.7e9 } }"),
              HasSubstr("data.feeds[1].offset is added to values that are "
                        "float32, of which those near 1.7e+09 are 128 apart"));
  EXPECT_EQ(note("data { train { npy { } } feeds { input: 'y' field: 'b' "
                 "offset: -1.7e9 } }"),
            "");
}

TEST(DataSpecValidatorTest, OneProblemEach) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"data { train { digits { } } }",
       "data.train.digits.count: 0 is outside 1..10000000"},
      {"data { train { digits { count: 10000001 } } }",
       "data.train.digits.count: 10000001 is outside 1..10000000"},
      {"data { train { idx { images: '' } } }",
       "data.train.idx.images: is required"},
      {"data { test { idx { labels: '' } } }",
       "data.test.idx.labels: is required"},
      {"data { feeds { input: 'image' field: 'image' } }",
       "data.feeds[1].input: 'image' is fed by data.feeds[0] already"},
      {"data { feeds { input: 'x' field: 'image' padding: -1 } }",
       "data.feeds[1].padding: is for 'indices' of libsvm and lists of csv "
       "(csv.list_delimiter, one column) only"},
      {"data { train { csv { path: 'a' has_header: true "
       "                     list_delimiter: '|' } } "
       "       feeds { input: 'x' field: 'label:image' padding: -1 } "
       "       test { csv { path: 'a' has_header: true } } }",
       "data.feeds[1].padding: is for 'indices' of libsvm and lists of csv "
       "(csv.list_delimiter, one column) only"},
      {"data { feeds { field: 'image' } }", "data.feeds[1].input: is required"},
      {"data { feeds { input: 'x' } }", "data.feeds[1].field: is required"},
      {"data { label { field: '3' } train { csv { path: 'a' has_header: true } "
       "} }",
       "data.label.field: '3' is not a field of data.test, which has 'image' "
       "and 'label'"},
      {"data { sharing: 7 }", "data.sharing: 7 is no value of Sharing"},
      {"data { label { classes: 1 } }",
       "data.label.classes: needs at least 2 values"},
      {"data { label { classes: [1, 16777217] } }",
       "data.label.classes[1]: 1.67772e+07: labels are float32, which from "
       "2^24 on does not tell neighbouring integers apart; number the classes "
       "from 0 in the data"},
      {"data { label { classes: [1, 2, 1] } }",
       "data.label.classes[2]: 1 is listed twice"},
      {"data { label { classes: [1, 2, 3] } } "
       "loss { kind: SIGMOID_CROSS_ENTROPY }",
       "data.label.classes: 3 values; SIGMOID_CROSS_ENTROPY has 2 classes"},
      {"data { feeds { input: 'n' field: 'x#length' } }",
       "data.feeds[1].field: 'x#length' is the length of what a feed or the "
       "label reads, but none reads 'x'"},
      {"data { feeds { input: 'n' field: 'image#length' } "
       "       feeds { input: 'm' field: 'image#length#length' } }",
       "data.feeds[2].field: 'image#length#length' is the length of what a "
       "feed or the label reads, but none reads 'image#length'"},
      {"data { feeds { input: 'n' field: 'image#length' padding: 1 } }",
       "data.feeds[1].padding: is for lists"},
      {"data { feeds { input: 'x' field: 'image' reshape: [28, 0] } }",
       "data.feeds[1].reshape[1]: 0 must be at least 1, and all of them "
       "together at most 2147483647 elements"},
      {"data { feeds { input: 'x' field: 'image' "
       "               reshape: [4294967296, 4294967296] } }",
       "data.feeds[1].reshape[0]: 4294967296 must be at least 1, and all of "
       "them together at most 2147483647 elements"},
      {"data { feeds { input: 'x' field: 'image' "
       "               reshape: [1, 1, 1, 1, 1, 1, 1, 1, 1] } }",
       "data.feeds[1].reshape: has more than 8 dimensions"},
      {"data { feeds { input: 'x' field: 'image' transpose: [0, 2] } }",
       "data.feeds[1].transpose: [0, 2] must have each of 0..1 once"},
      {"data { feeds { input: 'x' field: 'image' transpose: [1, 1] } }",
       "data.feeds[1].transpose: [1, 1] must have each of 0..1 once"},
      {"data { feeds { input: 'x' field: 'image' reshape: [28, 28] "
       "               transpose: [0, 2, 1] } }",
       "data.feeds[1].transpose: [0, 2, 1] must have each of 0..1 once"},
      {"data { feeds { input: 'n' field: 'image#length' reshape: 1 } }",
       "data.feeds[1].reshape: is for values; 'image#length' is one number"},
      {"data { label { ignore: -16777216 } }",
       "data.label.ignore: -16777216 is outside -16777215..16777215"},
      {"data { label { ignore: 16777216 } }",
       "data.label.ignore: 16777216 is outside -16777215..16777215"},
      {"data { label { ignore: 0 } } loss { kind: SIGMOID_CROSS_ENTROPY }",
       "data.label.ignore: is for SOFTMAX_CROSS_ENTROPY only"},
      {"data { label { classes: [1, 2] ignore: 2 } }",
       "data.label.ignore: 2 is one of data.label.classes"},
      {"data { label { classes: [1, 2] } } loss { kind: MEAN_SQUARED_ERROR }",
       "data.label.classes: has no meaning for MEAN_SQUARED_ERROR"},
  };
  for (const auto& [edit, problem] : table) {
    SCOPED_TRACE(edit);
    EXPECT_THAT(ValidateJobSpec(Edited(edit)), ElementsAre(problem));
  }
}

TEST(DataSpecValidatorTest, BothEndsOfRangesAreValid) {
  for (const char* edit : {"data { train { digits { count: 1 } } }",
                           "data { train { digits { count: 10000000 } } }"}) {
    EXPECT_THAT(ValidateJobSpec(Edited(edit)), IsEmpty()) << edit;
  }
}

// A job over csv or libsvm data; `feed` and `label` name its fields.
JobSpec WithFields(const std::string& source, const std::string& feed,
                   const std::string& label, const std::string& loss) {
  JobSpec spec = Edited("");
  spec.mutable_data()->Clear();
  EXPECT_TRUE(TextFormat::MergeFromString(
      absl::StrCat("data { train { ", source, " } feeds { input: 'x' field: '",
                   feed, "' } label { field: '", label,
                   "' } } loss { kind: ", loss, " }"),
      &spec));
  return spec;
}

TEST(DataSpecValidatorTest, FieldNamesFitTheFormat) {
  struct Case {
    const char* source;
    const char* feed;
    const char* label;
    const char* loss;
    std::vector<std::string> problems;
  };
  const char kCsv[] = "csv { path: 'a.csv' }";
  const char kNamed[] = "csv { path: 'a.csv' has_header: true }";
  const char kLibsvm[] = "libsvm { path: 'a' dimension: 3 }";
  const char kSoftmax[] = "SOFTMAX_CROSS_ENTROPY";
  const auto not_column = [](const char* path, const char* field) {
    return absl::StrCat(path, ": '", field,
                        "' is not a column number or range (\"7\", \"0:64\"), "
                        "and data.train.csv has no header line");
  };
  const std::vector<Case> cases = {
      {kCsv, "0:64", "64", kSoftmax, {}},
      {kCsv, "0", "1:3", "MEAN_SQUARED_ERROR", {}},
      {kNamed, "age", "income", kSoftmax, {}},
      {kLibsvm, "features", "label", kSoftmax, {}},
      {kCsv, "3:3", "64", kSoftmax, {not_column("data.feeds[0].field", "3:3")}},
      {kCsv,
       "1:2:3",
       "64",
       kSoftmax,
       {not_column("data.feeds[0].field", "1:2:3")}},
      {kCsv, "-1", "64", kSoftmax, {not_column("data.feeds[0].field", "-1")}},
      {kCsv, "0", "", kSoftmax, {not_column("data.label.field", "label")}},
      {kCsv,
       "0",
       "1:3",
       kSoftmax,
       {"data.label.field: '1:3' is more than one column; a classification "
        "loss takes one"}},
      {"csv { path: 'a' delimiter: ';;' }",
       "0",
       "1",
       kSoftmax,
       {"data.train.csv.delimiter: ';;' is not one character"}},
      {"csv { path: 'a' delimiter: '.' }",
       "0",
       "1",
       kSoftmax,
       {"data.train.csv.delimiter: '.' can be part of a number or ends a "
        "line"}},
      {"csv { path: 'a' list_delimiter: '-' }",
       "0",
       "1",
       kSoftmax,
       {"data.train.csv.list_delimiter: '-' can be part of a number or ends a "
        "line"}},
      {"csv { path: 'a' list_delimiter: ',' }",
       "0",
       "1",
       kSoftmax,
       {"data.train.csv.list_delimiter: ',' is what is between columns"}},
      {"csv { }", "0", "1", kSoftmax, {"data.train.csv.path: is required"}},
      {"libsvm { path: 'a' }",
       "features",
       "",
       kSoftmax,
       {"data.feeds[0].field: 'features' needs data.train.libsvm.dimension of "
        "at least 1"}},
      {"libsvm { path: 'a' }", "indices", "label", kSoftmax, {}},
      {"libsvm { path: 'a' dimension: 10000001 }",
       "values",
       "label",
       kSoftmax,
       {"data.train.libsvm.dimension: 10000001 is too large, at most "
        "10000000"}},
      {"criteo { path: 'a' }", "categories", "label", kSoftmax, {}},
      {"criteo { path: 'a' }", "dense:12", "label", kSoftmax, {}},
      {"criteo { path: 'a' window_samples: 4096 }",
       "dense",
       "label",
       kSoftmax,
       {}},
      {"criteo { path: 'a' window_samples: 4095 }",
       "dense",
       "label",
       kSoftmax,
       {"data.train.criteo.window_samples: 4095 is outside 4096..1073741824"}},
      {"criteo { path: 'a' }",
       "categories:26",
       "label",
       kSoftmax,
       {"data.feeds[0].field: 'categories:26' is not a field of data.train, "
        "which has 'label', 'dense', 'dense:0' to 'dense:12', 'categories' and "
        "'categories:0' to 'categories:25'"}},
      {"criteo { }",
       "dense",
       "label",
       kSoftmax,
       {"data.train.criteo.path: is required"}},
      {"tokens { path: 'a' }", "tokens", "next", kSoftmax, {}},
      {"npy { arrays { field: 'x' path: 'x.npy' } "
       "arrays { field: 'y' path: 'y.npy' } }",
       "x",
       "y",
       kSoftmax,
       {}},
      {"npy { arrays { field: 'x' } arrays { field: 'x' path: 'x.npy' } }",
       "image",
       "x",
       kSoftmax,
       {"data.train.npy.arrays[0].path: is required",
        "data.train.npy.arrays[1].field: 'x' is there already",
        "data.feeds[0].field: 'image' is not a field of "
        "data.train.npy.arrays"}},
      {"npy { }",
       "x",
       "",
       kSoftmax,
       {"data.train.npy.arrays: is required",
        "data.feeds[0].field: 'x' is not a field of data.train.npy.arrays",
        "data.label.field: 'label' is not a field of data.train.npy.arrays"}},
      {"tokens { stride: 4294967295 vocabulary: 16777217 begin: 0.5 end: 0.5 }",
       "text",
       "next",
       kSoftmax,
       {"data.train.tokens.path: is required",
        "data.train.tokens.vocabulary: 16777217 is too large, at most 16777216",
        "data.train.tokens.stride: 4294967295 is too large, at most 2147483647",
        "data.train.tokens: begin 0.5 and end 0.5 must be 0 <= begin < end <= "
        "1",
        "data.feeds[0].field: 'text' is not a field of data.train, which has "
        "'tokens' and 'next'"}},
      {kLibsvm,
       "image",
       "",
       kSoftmax,
       {"data.feeds[0].field: 'image' is not a field of data.train, which has "
        "'features', 'indices', 'values' and 'label'"}},
      {"",
       "x",
       "",
       kSoftmax,
       {"data.train: needs one of idx, csv, libsvm, digits, criteo, tokens, "
        "npy"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(absl::StrCat(c.source, " ", c.feed, " ", c.label));
    EXPECT_EQ(ValidateJobSpec(WithFields(c.source, c.feed, c.label, c.loss)),
              c.problems);
  }
}

TEST(DataSpecValidatorTest, BucketsAreAscendingLengthsOfLists) {
  const auto problems = [](const std::string& buckets,
                           const std::string& source =
                               "csv { path: 'a' list_delimiter: '|' }") {
    JobSpec spec = WithFields(source, "0", "1", "SOFTMAX_CROSS_ENTROPY");
    EXPECT_TRUE(TextFormat::MergeFromString(
        absl::StrCat("data { buckets { ", buckets, " } }"), &spec));
    return ValidateJobSpec(spec);
  };
  EXPECT_THAT(problems("dimension: 'S' lengths: [1, 8, 1048576]"), IsEmpty());
  EXPECT_THAT(problems(""),
              ElementsAre("data.buckets.dimension: is required",
                          "data.buckets.lengths: 0 lengths, must be 1..64"));
  EXPECT_THAT(
      problems("dimension: 'S' lengths: [0, 8, 8, 4, 1048577]"),
      ElementsAre("data.buckets.lengths[0]: 0 is outside 1..1048576",
                  "data.buckets.lengths[2]: 8 does not ascend, after 8",
                  "data.buckets.lengths[3]: 4 does not ascend, after 8",
                  "data.buckets.lengths[4]: 1048577 is outside 1..1048576"));
  std::string many = "dimension: 'S'";
  for (int i = 1; i <= 65; ++i) absl::StrAppend(&many, " lengths: ", i);
  EXPECT_THAT(problems(many),
              ElementsAre("data.buckets.lengths: 65 lengths, must be 1..64"));
  EXPECT_THAT(problems("dimension: 'S' lengths: 8", "csv { path: 'a' }"),
              ElementsAre("data.buckets: all samples of data.train are of one "
                          "length: no feed reads a list of csv "
                          "(csv.list_delimiter, one column) or 'indices' or "
                          "'values' of libsvm"));
}

}  // namespace
}  // namespace syncline

// Goal: a job's mapping (feeds, scale, label) is applied to every format, what
// does not fit is named, and the real data sets are read as published.
// Method: small files; the real files where they are, against known facts.

#include "worker/data/dataset.h"

#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_files.h"
#include "tests/unit/worker/data/npy_files.h"
#include "worker/data/batch.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

DataSpec Spec(const std::string& text) {
  DataSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec));
  return spec;
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenTrain(
    const std::string& text, const std::string& root,
    const std::vector<FeedShape>& feeds, int64_t class_count,
    int64_t label_width = 1) {
  const DataSpec spec = Spec(text);
  return Dataset::Open(spec.train(), spec, root, feeds, class_count,
                       label_width);
}

class DatasetTest : public DataFilesTest {};

TEST_F(DatasetTest, MapsSeveralFeedsAndTheLabel) {
  Write("t.csv", "1,2,3,yes,7\n4,5,6,no,-7\n");
  const auto dataset = OpenTrain(
      "train { csv { path: 't.csv' } }"
      "feeds { input: 'a' field: '0:2' scale: 0.5 }"
      "feeds { input: 'b' field: '2' offset: 10 }"
      "label { field: '4' classes: -7 classes: 7 }",
      dir_, {{2}, {1}}, 2);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 2);
  Batch batch;
  (*dataset)->Read({1, 0}, &batch);
  EXPECT_EQ(batch.size, 2);
  EXPECT_EQ(batch.label_width, 1);
  EXPECT_THAT(batch.feeds[0], ElementsAre(2, 2.5, 0.5, 1));
  EXPECT_THAT(batch.feeds[1], ElementsAre(16, 13));
  EXPECT_THAT(batch.labels, ElementsAre(0, 1));
  // A batch is reused, smaller and empty too.
  (*dataset)->Read({0}, &batch);
  EXPECT_THAT(batch.feeds[0], ElementsAre(0.5, 1));
  EXPECT_THAT(batch.labels, ElementsAre(1));
  (*dataset)->Read({}, &batch);
  EXPECT_EQ(batch.size, 0);
  EXPECT_TRUE(batch.feeds[0].empty() && batch.labels.empty());
}

TEST_F(DatasetTest, Int64InputsAreFedBesideFloatOnes) {
  Write("t.svm", "1 3:0.5 900719925474099301:2\n0\n");
  const auto dataset = OpenTrain(
      "train { libsvm { path: 't.svm' } }"
      "feeds { input: 'ids' field: 'indices' padding: -1 }"
      "feeds { input: 'weights' field: 'values' scale: 2 }",
      dir_, {{.elements = 3, .integers = true}, {3}}, 2);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  Batch batch;
  (*dataset)->Read({0, 1}, &batch);
  EXPECT_TRUE(batch.feeds[0].empty() && batch.int_feeds[1].empty());
  EXPECT_THAT(batch.int_feeds[0],
              ElementsAre(3, 900719925474099301, -1, -1, -1, -1));
  EXPECT_THAT(batch.feeds[1], ElementsAre(1, 4, 0, 0, 0, 0));
  (*dataset)->Read({}, &batch);
  EXPECT_TRUE(batch.int_feeds[0].empty());
}

// A .npy file of unsigned bytes 0, 1, 2 ...
std::string CountingArray(const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  std::vector<uint8_t> values(count);
  std::iota(values.begin(), values.end(), 0);
  return Npy(NpyText("|u1", absl::StrCat("(", absl::StrJoin(dims, ", "), ",)")),
             Bytes(values));
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenImages(const std::string& root,
                                                    const std::string& layout,
                                                    bool integers) {
  return OpenTrain(
      "train { npy { arrays { field: 'image' path: 'x.npy' }"
      "  arrays { field: 'label' path: 'y.npy' } } }"
      "feeds { input: 'x' field: 'image' " +
          layout + "}",
      root, {{.elements = 12, .integers = integers, .dims = {3, 2, 2}}}, 0);
}

TEST_F(DatasetTest, AnImageWithItsChannelsLastIsTransposedOrRefused) {
  Write("x.npy", CountingArray({2, 2, 2, 3}));
  Write("y.npy", CountingArray({2}));
  EXPECT_THAT(std::string(OpenImages(dir_, "", false).status().message()),
              AllOf(HasSubstr("x.npy: record 0: field \"image\""),
                    HasSubstr("[3, 2, 2]"), HasSubstr("[2, 2, 3]"),
                    HasSubstr("transpose: [2, 0, 1]")));
  for (const bool integers : {false, true}) {
    const auto dataset = OpenImages(
        dir_,
        integers ? "transpose: [2, 0, 1]" : "transpose: [2, 0, 1] scale: 2",
        integers);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    Batch batch;
    (*dataset)->Read({1, 0}, &batch);
    const std::vector<int64_t> expected = {12, 15, 18, 21, 13, 16, 19, 22,
                                           14, 17, 20, 23, 0,  3,  6,  9,
                                           1,  4,  7,  10, 2,  5,  8,  11};
    if (integers) {
      EXPECT_EQ(batch.int_feeds[0], expected);
      continue;
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(batch.feeds[0][i], 2 * expected[i]);
    }
  }
}

TEST_F(DatasetTest, LabelsOfAnotherShapeThanTheOutputAreRefused) {
  Write("x.npy", CountingArray({2, 2}));
  Write("y.npy", CountingArray({2, 3, 2}));
  const DataSpec spec = Spec(
      "train { npy { arrays { field: 'x' path: 'x.npy' }"
      "  arrays { field: 'label' path: 'y.npy' } } }"
      "feeds { input: 'x' field: 'x' }");
  const auto open = [&](const SampleDims& label_dims) {
    return Dataset::Open(spec.train(), spec, dir_, {{2}}, 0, 6, "/var/tmp", {},
                         label_dims)
        .status();
  };
  EXPECT_TRUE(open({3, 2}).ok()) << open({3, 2});
  EXPECT_TRUE(open({6}).ok());
  EXPECT_TRUE(open({}).ok());
  EXPECT_THAT(std::string(open({2, 3}).message()),
              AllOf(HasSubstr("y.npy: record 0: label field \"label\""),
                    HasSubstr("[3, 2] a sample, the loss takes [2, 3]")));
}

TEST_F(DatasetTest, AFieldWithoutIntegersCannotFeedAnInt64Input) {
  EXPECT_EQ(
      OpenTrain("train { digits { count: 5 } }"
                "feeds { input: 'x' field: 'image' }",
                dir_, {{.elements = 784, .integers = true}}, 10)
          .status()
          .message(),
      "field \"image\" of a digits source cannot feed an int64 input: its "
      "values are not integers");
}

TEST_F(DatasetTest, RegressionTargetsMayBeWide) {
  Write("t.csv", "1,2,0.5,-1e3\n");
  const auto dataset = OpenTrain(
      "train { csv { path: 't.csv' } }"
      "feeds { input: 'x' field: '0:2' } label { field: '2:4' }",
      dir_, {{2}}, 0, 2);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  Batch batch;
  (*dataset)->Read({0}, &batch);
  EXPECT_EQ(batch.label_width, 2);
  EXPECT_THAT(batch.labels, ElementsAre(0.5, -1000));
}

TEST_F(DatasetTest, AListOfLabelsIsFollowedByTheIgnoredOne) {
  Write("t.csv", "1|2,0|2\n3,\n4|5|6,2|-7|1\n");
  const std::string spec =
      "train { csv { path: 't.csv' list_delimiter: '|' } }"
      "feeds { input: 'x' field: '0' } label { field: '1' ";
  const auto dataset = OpenTrain(spec + "ignore: -7 }", dir_, {{3}}, 3, 3);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  Batch batch;
  (*dataset)->Read({0, 1, 2}, &batch);
  const float x = kIgnoredLabel;
  EXPECT_THAT(batch.labels, ElementsAre(0, 2, x, x, x, x, 2, x, 1));
  EXPECT_THAT(
      std::string(OpenTrain(spec + "}", dir_, {{3}}, 3, 3).status().message()),
      HasSubstr("t.csv:1:5: 2 values, expected 3 (column 1)"));
}

TEST_F(DatasetTest, TheLengthOfAListIsAFieldToo) {
  Write("t.csv", "5|6,0.5|1|2,0\n,3,1\n");
  const auto dataset = OpenTrain(
      "train { csv { path: 't.csv' list_delimiter: '|' } }"
      "feeds { input: 'n' field: '0#length' }"
      "feeds { input: 'ids' field: '0' padding: -1 }"
      "feeds { input: 'weights' field: '1' }"
      "feeds { input: 'share' field: '1#length' scale: 0.25 offset: 1 }"
      "feeds { input: 'one' field: '2#length' } label { field: '2' }",
      dir_, {{1, true}, {3, true}, {3}, {1}, {1, true}}, 2);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  Batch batch;
  (*dataset)->Read({1, 0}, &batch);
  EXPECT_THAT(batch.int_feeds[0], ElementsAre(0, 2));
  EXPECT_THAT(batch.int_feeds[1], ElementsAre(-1, -1, -1, 5, 6, -1));
  EXPECT_THAT(batch.feeds[3], ElementsAre(1.25, 1.75));
  EXPECT_THAT(batch.int_feeds[4], ElementsAre(1, 1));

  Write("t.svm", "1 3:0.5 9:2\n0\n");
  const auto bags = OpenTrain(
      "train { libsvm { path: 't.svm' } }"
      "feeds { input: 'ids' field: 'indices' }"
      "feeds { input: 'n' field: 'indices#length' }",
      dir_, {{3, true}, {1, true}}, 2);
  ASSERT_TRUE(bags.ok()) << bags.status();
  (*bags)->Read({0, 1}, &batch);
  EXPECT_THAT(batch.int_feeds[1], ElementsAre(2, 0));
}

TEST_F(DatasetTest, ALengthIsOneNumberOfAFieldThatIsRead) {
  Write("t.csv", "5|6,0\n");
  const std::string csv =
      "train { csv { path: 't.csv' list_delimiter: '|' } } label { field: '1' }"
      "feeds { input: 'x' field: '0' }";
  EXPECT_EQ(OpenTrain(csv + "feeds { input: 'n' field: '2#length' }", dir_,
                      {{3}, {1}}, 2)
                .status()
                .message(),
            "no feed reads what \"2#length\" is to be the length of");
  EXPECT_THAT(
      std::string(OpenTrain(csv + "feeds { input: 'n' field: '0#length' }",
                            dir_, {{3}, {2}}, 2)
                      .status()
                      .message()),
      HasSubstr("field \"0#length\" has 1 values per sample, the graph input "
                "\"n\" takes 2"));
}

// Of inputs [batch, S] and [batch, S, 2], and as many labels.
std::vector<BucketShape> Lengths(const std::vector<int64_t>& lengths) {
  std::vector<BucketShape> buckets;
  for (const int64_t length : lengths) {
    buckets.push_back({length, {length, 2 * length}, length});
  }
  return buckets;
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenPairs(const std::string& root) {
  const DataSpec spec = Spec(
      "train { csv { path: 't.csv' list_delimiter: '|' } }"
      "feeds { input: 'ids' field: '0' padding: 9 }"
      "feeds { input: 'pairs' field: '1' } label { field: '2' ignore: -1 }");
  return Dataset::Open(spec.train(), spec, root, {{4, true}, {8}}, 3, 4,
                       "/var/tmp", Lengths({1, 2, 4}));
}

TEST_F(DatasetTest, ASampleIsInTheFirstBucketThatTakesItsLongestList) {
  Write("t.csv",
        "1|2,1,0\n"
        "1,1|2,2\n"
        ",,\n"
        "1,1|2|3|4|5,0\n"
        "1|2|3|4,1|2|3|4|5|6|7|8,0|1|2|1\n"
        "5,6,0|2\n");
  const auto dataset = OpenPairs(dir_);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->buckets(), ElementsAre(1, 0, 0, 2, 2, 1));
  Batch batch;
  (*dataset)->Read({5, 0}, &batch);
  const float x = kIgnoredLabel;
  EXPECT_EQ(batch.length, 2);
  EXPECT_THAT(batch.int_feeds[0], ElementsAre(5, 9, 1, 2));
  EXPECT_THAT(batch.feeds[1], ElementsAre(6, 0, 0, 0, 1, 0, 0, 0));
  EXPECT_EQ(batch.label_width, 2);
  EXPECT_THAT(batch.labels, ElementsAre(0, 2, 0, x));
  EXPECT_EQ(batch.value_count, 1 + 1 + 2 + 1);
  EXPECT_EQ(batch.padding_count, 12 - 5);
  // Samples of several buckets have the largest.
  (*dataset)->Read({2, 4}, &batch);
  EXPECT_EQ(batch.length, 4);
  EXPECT_THAT(batch.int_feeds[0], ElementsAre(9, 9, 9, 9, 1, 2, 3, 4));
  (*dataset)->Read({2}, &batch);
  EXPECT_EQ(batch.length, 1);
  EXPECT_THAT(batch.labels, ElementsAre(x));
  EXPECT_EQ(batch.padding_count, 3);
}

TEST_F(DatasetTest, BagsHaveBucketsToo) {
  Write("t.svm", "0 7:1 9:1\n1 3:0.5\n0\n");
  const DataSpec spec = Spec(
      "train { libsvm { path: 't.svm' } }"
      "feeds { input: 'ids' field: 'indices' }"
      "feeds { input: 'n' field: 'indices#length' }");
  const auto dataset =
      Dataset::Open(spec.train(), spec, dir_, {{2, true}, {1, true}}, 2, 1,
                    "/var/tmp", {{1, {1, 1}, 1}, {2, {2, 1}, 1}});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->buckets(), ElementsAre(1, 0, 0));
  Batch batch;
  (*dataset)->Read({1, 2}, &batch);
  EXPECT_THAT(batch.int_feeds[0], ElementsAre(3, 0));
  EXPECT_THAT(batch.int_feeds[1], ElementsAre(1, 0));
  EXPECT_THAT(batch.labels, ElementsAre(1, 0));
}

TEST_F(DatasetTest, ABucketMustNotTakeLessThanAShorterOne) {
  Write("t.csv", "1|2,0\n");
  const DataSpec spec = Spec(
      "train { csv { path: 't.csv' list_delimiter: '|' } }"
      "feeds { input: 'x' field: '0' } label { field: '1' ignore: -1 }");
  const auto open = [&](const std::vector<BucketShape>& buckets) {
    return Dataset::Open(spec.train(), spec, dir_, {{4}}, 3, 2, "/var/tmp",
                         buckets)
        .status();
  };
  EXPECT_EQ(open({{2, {2}, 2}, {4, {4}, 2}}), absl::OkStatus());
  for (const std::vector<BucketShape>& buckets :
       std::vector<std::vector<BucketShape>>{{{2, {2}, 3}, {4, {4}, 2}},
                                             {{2, {5}, 2}, {4, {4}, 2}},
                                             {{2, {2}, 1}, {4, {4}, 1}},
                                             {{2, {2}, 2}, {4, {3}, 2}},
                                             {{2, {}, 2}, {4, {4}, 2}}}) {
    EXPECT_THAT(std::string(open(buckets).message()),
                HasSubstr("more values or labels of a short sample"));
  }
}

TEST_F(DatasetTest, ASampleLongerThanTheLastBucketIsNamed) {
  Write("t.csv", "1,1,0\n1|2|3|4|5,1,0\n");
  EXPECT_THAT(std::string(OpenPairs(dir_).status().message()),
              HasSubstr("t.csv:2:1: 5 values, expected at most 4 (column 0)"));
}

TEST_F(DatasetTest, NamesAllFieldsThatDoNotFitTheGraph) {
  Write("t.csv", "1,2,3\n");
  const auto dataset = OpenTrain(
      "train { csv { path: 't.csv' } }"
      "feeds { input: 'x' field: '0:2' }"
      "feeds { input: 'y' field: '2' } label { field: '0:2' }",
      dir_, {{3}, {1}}, 2);
  EXPECT_EQ(dataset.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(dataset.status().message()),
      AllOf(HasSubstr("field \"0:2\" has 2 values per sample, the graph "
                      "input \"x\" takes 3"),
            HasSubstr("label field \"0:2\" has 2 values")));
}

TEST_F(DatasetTest, NamesTheLabelOutsideTheClassesByFileAndLine) {
  Write("t.csv", "1,0\n\n2,3\n");
  const std::string csv =
      "train { csv { path: 't.csv' } }"
      "feeds { input: 'x' field: '0' } label { field: '1' }";
  EXPECT_EQ(OpenTrain(csv, dir_, {{1}}, 3).status().message(),
            Path("t.csv:3: label 3 is not one of the 3 classes, 0..2"));
  EXPECT_TRUE(OpenTrain(csv, dir_, {{1}}, 4).ok());

  Write("t.svm", "1 1:1\n-1 1:1\n");
  const std::string libsvm =
      "train { libsvm { path: 't.svm' dimension: 1 } }"
      "feeds { input: 'x' field: 'features' }";
  EXPECT_EQ(OpenTrain(libsvm, dir_, {{1}}, 2).status().message(),
            Path("t.svm:2: label -1 is not one of the 2 classes, 0..1"));

  Write("img", absl::string_view("\0\0\x08\x01\0\0\0\x02"
                                 "ab",
                                 10));
  Write("lab", absl::string_view("\0\0\x08\x01\0\0\0\x02\x09\x0a", 10));
  const std::string idx =
      "train { idx { images: 'img' labels: 'lab' } }"
      "feeds { input: 'x' field: 'image' }";
  EXPECT_EQ(OpenTrain(idx, dir_, {{1}}, 10).status().message(),
            Path("lab: record 1: label 10 is not one of the 10 classes, 0..9"));
}

TEST_F(DatasetTest, LabelsAreCheckedToTheLastSample) {
  std::string content;
  for (int i = 0; i < 10'000; ++i) absl::StrAppend(&content, "1,0\n");
  Write("t.csv", content + "1,5\n");
  EXPECT_THAT(
      std::string(
          OpenTrain("train { csv { path: 't.csv' } }"
                    "feeds { input: 'x' field: '0' } label { field: '1' }",
                    dir_, {{1}}, 2)
              .status()
              .message()),
      HasSubstr(Path("t.csv:10001: label 5")));
}

TEST_F(DatasetTest, ASourceWithoutFormatIsRefused) {
  EXPECT_EQ(OpenTrain("feeds { input: 'x' field: '0' }", dir_, {{1}}, 0)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(DatasetTest, OpensDigits) {
  const auto dataset = OpenTrain(
      "train { digits { count: 50 seed: 3 } }"
      "feeds { input: 'x' field: 'image' scale: 0.00392156862745098 }",
      dir_, {{784}}, 10);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  Batch batch;
  (*dataset)->Read({0, 49}, &batch);
  for (const float value : batch.feeds[0]) {
    EXPECT_GE(value, 0);
    EXPECT_LE(value, 1.0001f);
  }
}

class RealDataTest : public ::testing::Test {
 protected:
  void Require(absl::string_view folder) {
    root_ = RealDataRoot();
    if (!std::filesystem::exists(absl::StrCat(root_, "/", folder))) {
      GTEST_SKIP() << "no real data at " << root_ << "/" << folder;
    }
  }
  // All labels of the training source.
  static std::vector<int> ClassCounts(const Dataset& dataset, int classes) {
    std::vector<int64_t> all(dataset.size());
    std::iota(all.begin(), all.end(), int64_t{0});
    std::vector<int> counts(classes, 0);
    Batch batch;
    dataset.Read(all, &batch);
    for (const float label : batch.labels) ++counts.at(label);
    return counts;
  }
  std::string root_;
};

TEST_F(RealDataTest, Mnist) {
  Require("mnist");
  if (IsSkipped()) return;
  const auto dataset = OpenTrain(
      "train { idx { images: 'mnist/t10k-images-idx3-ubyte.gz' "
      "              labels: 'mnist/t10k-labels-idx1-ubyte.gz' } }"
      "feeds { input: 'x' field: 'image' }",
      root_, {{784}}, 10);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 10'000);
  EXPECT_THAT(
      ClassCounts(**dataset, 10),
      ElementsAre(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009));
  Batch batch;
  (*dataset)->Read({0}, &batch);
  EXPECT_EQ(batch.labels[0], 7);
}

TEST_F(RealDataTest, Optdigits) {
  Require("digits");
  if (IsSkipped()) return;
  const auto dataset = OpenTrain(
      "train { csv { path: 'digits/optdigits.tra' } }"
      "feeds { input: 'x' field: '0:64' scale: 0.0625 }"
      "label { field: '64' }",
      root_, {{64}}, 10);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 3823);
  EXPECT_THAT(ClassCounts(**dataset, 10),
              ElementsAre(376, 389, 380, 389, 387, 376, 377, 387, 380, 382));
  Batch batch;
  (*dataset)->Read({0}, &batch);
  EXPECT_THAT(absl::MakeSpan(batch.feeds[0]).subspan(0, 4),
              ElementsAre(0, 1 / 16.0, 6 / 16.0, 15 / 16.0));
}

TEST_F(RealDataTest, A9a) {
  Require("libsvm");
  if (IsSkipped()) return;
  const auto dataset = OpenTrain(
      "train { libsvm { path: 'libsvm/a9a.gz' dimension: 123 } }"
      "feeds { input: 'x' field: 'features' }",
      root_, {{123}}, 2);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 32'560);
  EXPECT_THAT(ClassCounts(**dataset, 2), ElementsAre(24'719, 7841));
}

}  // namespace
}  // namespace syncline::worker

// Goal: sparse lines become dense features, and every bad line is named by file
// and line. Method: small files.

#include "worker/data/formats/libsvm_table.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_files.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LibsvmTableTest : public DataFilesTest {
 protected:
  LibsvmTableTest() {
    source_.set_path("t.svm");
    source_.set_dimension(4);
  }
  absl::StatusOr<std::unique_ptr<SampleTable>> Load(
      absl::string_view content) const {
    Write("t.svm", content);
    return LoadLibsvm(source_, {"features", "label"}, dir_);
  }
  std::string Error(absl::string_view content) const {
    const absl::Status status = Load(content).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }
  static std::vector<float> Values(const SampleTable& table, int field,
                                   const std::vector<int64_t>& samples,
                                   float scale = 1, float offset = 0) {
    std::vector<float> out(samples.size() * table.width(field), -99.0f);
    table.Read(field, samples, scale, offset, out.data());
    return out;
  }

  LibsvmSource source_;
};

TEST_F(LibsvmTableTest, ReadsSparseLines) {
  const auto table = Load("+1 1:0.5 4:2\n-1 2:1\r\n\n# a comment\n0\n");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->size(), 3);
  EXPECT_EQ((*table)->width(0), 4);
  EXPECT_EQ((*table)->width(1), 1);
  EXPECT_THAT(Values(**table, 0, {0, 2, 1}),
              ElementsAre(0.5, 0, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0));
  EXPECT_THAT(Values(**table, 1, {0, 1, 2}), ElementsAre(1, -1, 0));
  EXPECT_EQ((*table)->Where(0, 2), Path("t.svm:5"));
}

TEST_F(LibsvmTableTest, ScaleAndOffsetApplyToAbsentValuesToo) {
  const auto table = Load("1 2:3\n");
  EXPECT_THAT(Values(**table, 0, {0}, 2, 10), ElementsAre(10, 16, 10, 10));
}

TEST_F(LibsvmTableTest, BlanksTabsAndCommentsAfterValues) {
  const auto table = Load(" \t1\t2:3  3:4 # 4:5\n2 1:1#x\n");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(Values(**table, 0, {0, 1}), ElementsAre(0, 3, 4, 0, 1, 0, 0, 0));
}

TEST_F(LibsvmTableTest, ReadsGzipAndGlobs) {
  source_.set_path("p*");
  Write("p2", "2 1:2\n");
  Write("p1", Gzip("1 1:1\n"));
  const auto table = LoadLibsvm(source_, {"label"}, dir_);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(Values(**table, 0, {0, 1}), ElementsAre(1, 2));
  EXPECT_EQ((*table)->Where(0, 1), Path("p2:1"));
}

TEST_F(LibsvmTableTest, NamesBadLines) {
  const std::vector<std::pair<const char*, const char*>> bad = {
      {"1 0:1\n", "t.svm:1: \"0:1\": indices start at 1"},
      {"1 5:1\n", "\"5:1\": the index is above the dimension, 4"},
      {"1 99999999999999999999:1\n", "expected index:value"},
      {"1 2:1 2:3\n", "\"2:3\": indices must ascend, the one before is 2"},
      {"1 3:1 2:3\n", "\"2:3\": indices must ascend, the one before is 3"},
      {"1 1:1\n1 1\n", "t.svm:2: \"1\": expected index:value"},
      {"1 :1\n", "expected index:value"},
      {"1 -1:1\n", "expected index:value"},
      {"1 qid:3 1:1\n", "\"qid:3\": expected index:value"},
      {"1 1:\n", "value of index 1: \"\" is not a number"},
      {"1 1:x\n", "value of index 1: \"x\" is not a number"},
      {"1 1:nan\n", "value of index 1: \"nan\" is not a finite number"},
      {"1:1 2:1\n", "label: \"1:1\" is not a number"},
      {"inf 2:1\n", "label: \"inf\" is not a finite number"},
      {"", "t.svm: no samples"},
      {"# nothing\n", "t.svm: no samples"},
  };
  for (const auto& [content, message] : bad) {
    EXPECT_THAT(Error(content), HasSubstr(message));
  }
}

class PaddedLibsvmTest : public LibsvmTableTest {
 protected:
  // "indices" and "values", 3 wide, padded with -7.
  absl::StatusOr<std::unique_ptr<SampleTable>> LoadPadded(
      absl::string_view content) const {
    FieldRequest indices("indices");
    indices.integers = true;
    indices.padded_width = 3;
    indices.padding = -7;
    FieldRequest values("values");
    values.padded_width = 3;
    Write("t.svm", content);
    return LoadLibsvm(source_, {indices, values, "label"}, dir_);
  }
  static std::vector<int64_t> Ints(const SampleTable& table,
                                   const std::vector<int64_t>& samples) {
    std::vector<int64_t> out(samples.size() * table.width(0), -99);
    table.ReadInts(0, samples, out.data());
    return out;
  }
};

TEST_F(PaddedLibsvmTest, BagsArePaddedToTheirWidth) {
  const auto table = LoadPadded("1 1:0.5 4:2\n0\n1 1:1 2:2 3:3\n");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->width(0), 3);
  EXPECT_EQ((*table)->width(1), 3);
  EXPECT_THAT(Ints(**table, {0, 2, 1}),
              ElementsAre(1, 4, -7, 1, 2, 3, -7, -7, -7));
  EXPECT_THAT(Values(**table, 1, {0, 2, 1}),
              ElementsAre(0.5, 2, 0, 1, 2, 3, 0, 0, 0));
  // Padding is no value: it stays out of a sum whatever the offset.
  EXPECT_THAT(Values(**table, 1, {0}, 2, 10), ElementsAre(11, 14, 0));
  EXPECT_THAT(Values(**table, 2, {0, 1}), ElementsAre(1, 0));
}

TEST_F(PaddedLibsvmTest, CountsIndices) {
  const auto table = LoadPadded("1 1:0.5 4:2\n0\n0 4:1\n");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->CountIds(0, 4), 2);
  EXPECT_EQ((*table)->CountIds(0, -7), 0) << "padding is none of them";
  EXPECT_EQ((*table)->CountIds(1, 4), 0);
}

TEST_F(PaddedLibsvmTest, NamesTheLineThatIsTooLong) {
  EXPECT_EQ(LoadPadded("1 1:1\n1 1:1 2:1 3:1 4:1\n").status().message(),
            Path("t.svm:2: 4 values, but the graph input takes at most 3"));
}

TEST_F(PaddedLibsvmTest, ListsOfLabelsArePaddedWithTheirOwn) {
  FieldRequest labels("values");
  labels.padded_width = 3;
  labels.padding = -1;
  Write("t.svm", "0 1:2 2:1\n0\n");
  const auto table = LoadLibsvm(source_, {labels}, dir_);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(Values(**table, 0, {0, 1}), ElementsAre(2, 1, -1, -1, -1, -1));
}

TEST_F(PaddedLibsvmTest, NamesTheLineWhereALabelIsMissing) {
  FieldRequest labels("values");
  labels.padded_width = 2;
  labels.complete = true;
  Write("t.svm", "0 1:2 2:1\n0 1:1\n");
  EXPECT_EQ(LoadLibsvm(source_, {labels}, dir_).status().message(),
            Path("t.svm:2: 1 values, but a sample has 2 labels; "
                 "data.label.ignore allows fewer"));
}

TEST_F(PaddedLibsvmTest, WithoutADimensionAnyIndexIsTaken) {
  source_.set_dimension(0);
  const auto table = LoadPadded("1 7:1 9223372036854775807:1\n");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(Ints(**table, {0}), ElementsAre(7, 9223372036854775807, -7));
  EXPECT_THAT(Error("1 1:1\n"), HasSubstr("dimension: must be at least 1"));
}

TEST_F(LibsvmTableTest, IndicesAreIntegersAndNothingElseIs) {
  Write("t.svm", "1 1:1\n");
  EXPECT_THAT(
      std::string(LoadLibsvm(source_, {"indices"}, dir_).status().message()),
      HasSubstr("\"indices\" of a libsvm source is int64"));
  for (const char* name : {"features", "label", "values"}) {
    FieldRequest field(name);
    field.integers = true;
    EXPECT_THAT(
        std::string(LoadLibsvm(source_, {field}, dir_).status().message()),
        HasSubstr("cannot feed an int64 input"));
  }
}

TEST_F(LibsvmTableTest, NamesAnUnknownField) {
  Write("t.svm", "1 1:1\n");
  EXPECT_THAT(
      std::string(LoadLibsvm(source_, {"image"}, dir_).status().message()),
      HasSubstr("no field \"image\""));
}

}  // namespace
}  // namespace syncline::worker

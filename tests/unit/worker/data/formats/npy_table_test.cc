// Goal: arrays feed what a job maps them to, and every way in which one can be
// wrong is named with its file. Method: files written byte by byte.

#include "worker/data/formats/npy_table.h"

#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_files.h"
#include "tests/unit/worker/data/npy_files.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NpyTableTest : public DataFilesTest {
 protected:
  NpyTableTest() {
    AddArray("pixels", "x.npy");
    AddArray("label", "y.npy");
    Write("x.npy",
          Npy(NpyText("<f4", "(2, 1, 2)"), Bytes<float>({0.5f, 1, -2, 4})));
    Write("y.npy", Npy(NpyText("<i8", "(2,)"), Bytes<int64_t>({3, 7})));
  }
  void AddArray(const std::string& field, const std::string& path) {
    NpySource::Array* const array = source_.add_arrays();
    array->set_field(field);
    array->set_path(path);
  }
  absl::StatusOr<std::unique_ptr<SampleTable>> Load(
      std::vector<FieldRequest> fields = {"pixels", "label"}) const {
    return LoadNpy(source_, fields, dir_);
  }
  std::string Error(std::vector<FieldRequest> fields = {"pixels",
                                                        "label"}) const {
    const auto table = Load(std::move(fields));
    return table.ok() ? "OK" : std::string(table.status().message());
  }

  NpySource source_;
};

TEST_F(NpyTableTest, ReadsArrays) {
  const auto table = Load();
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->size(), 2);
  EXPECT_EQ((*table)->width(0), 2);
  EXPECT_EQ((*table)->width(1), 1);
  std::vector<float> values(4);
  (*table)->Read(0, {1, 0}, 2, 1, values.data());
  EXPECT_THAT(values, ElementsAre(-3, 9, 2, 3));
  float label = 0;
  (*table)->Read(1, {1}, 1, 0, &label);
  EXPECT_EQ(label, 7);
  EXPECT_EQ((*table)->Where(0, 1), Path("x.npy: record 1"));
}

TEST_F(NpyTableTest, ReadsGzipAndGlobs) {
  Write("y.npy", Gzip(Npy(NpyText("|u1", "(2,)"), "\x01\x09")));
  source_.mutable_arrays(0)->set_path("x*.npy");
  source_.mutable_arrays(1)->set_path("y*.npy");
  Write("x2.npy", Npy(NpyText("<f4", "(1, 1, 2)"), Bytes<float>({8, 16})));
  Write("y2.npy", Npy(NpyText("|u1", "(1,)"), "\x05"));
  const auto table = Load();
  ASSERT_TRUE(table.ok()) << table.status();
  std::vector<float> labels(3);
  (*table)->Read(1, {0, 1, 2}, 1, 0, labels.data());
  EXPECT_THAT(labels, ElementsAre(1, 9, 5));
}

TEST_F(NpyTableTest, IntegersFeedIntegers) {
  FieldRequest ids("label");
  ids.integers = true;
  const auto table = Load({ids, "label"});
  ASSERT_TRUE(table.ok()) << table.status();
  std::vector<int64_t> keys(2);
  (*table)->ReadInts(0, {1, 0}, keys.data());
  EXPECT_THAT(keys, ElementsAre(7, 3));
  FieldRequest pixels("pixels");
  pixels.integers = true;
  EXPECT_THAT(Error({pixels}), HasSubstr("its values are not integers"));
}

TEST_F(NpyTableTest, NamesWhatIsWrong) {
  EXPECT_THAT(Error({"depth"}),
              HasSubstr("no field \"depth\"; the npy source has \"label\", "
                        "\"pixels\""));
  Write("y.npy", Npy(NpyText("<i8", "(3,)"), Bytes<int64_t>({1, 2, 3})));
  EXPECT_THAT(Error(), HasSubstr("x.npy holds 2 records, but " + Path("y.npy") +
                                 " holds 3"));
  Write("y.npy", Npy(NpyText("<i8", "(2,)"), Bytes<int64_t>({1})));
  EXPECT_THAT(Error(), HasSubstr("y.npy: truncated: 8 bytes are missing"));
  Write("y.npy", Npy(NpyText("<i8", "(2,)"), Bytes<int64_t>({1, 2, 3})));
  EXPECT_THAT(Error(), HasSubstr("bytes after the last of 2 records"));
  Write("y.npy", Npy(NpyText("<u8", "(1,)"), Bytes<int64_t>({1})));
  EXPECT_THAT(Error(), HasSubstr("astype(numpy.int64)"));
  Write("y.npy", Npy(NpyText("<i8", "()"), Bytes<int64_t>({1})));
  EXPECT_THAT(Error(), HasSubstr("first dimension must be the samples"));
  Write("y.npy", Npy(NpyText("<i8", "(2, 0)"), ""));
  EXPECT_THAT(Error(), HasSubstr("y.npy: dimension 1 is 0"));
}

TEST_F(NpyTableTest, ATinyFileThatPromisesTerabytesIsRefused) {
  Write("x.npy", Npy(NpyText("<f4", "(4000000000, 4000000000)"), "abcd"));
  EXPECT_THAT(Error(), HasSubstr("x.npy: truncated: the header promises"));
}

TEST_F(NpyTableTest, RefusesWhatIsNotFinite) {
  Write("x.npy",
        Npy(NpyText("<f4", "(2, 2)"),
            Bytes<float>({0, 1, 2, std::numeric_limits<float>::infinity()})));
  EXPECT_THAT(Error(), HasSubstr("x.npy: record 1: value 1 is inf"));
  Write("x.npy", Npy(NpyText("<f8", "(2,)"), Bytes<double>({0, 1e300})));
  EXPECT_THAT(Error(), HasSubstr("record 1: value 0 is 1e+300, not a finite"));
}

}  // namespace
}  // namespace syncline::worker

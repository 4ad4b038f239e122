// Goal: IDX files are read as the format says, and every way in which one can
// be wrong is named. Method: files built byte by byte.

#include "worker/data/formats/idx_table.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_files.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Idx(const std::vector<uint32_t>& dims, absl::string_view bytes) {
  std::string out = {0, 0, 8, static_cast<char>(dims.size())};
  for (const uint32_t dim : dims) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      out.push_back(static_cast<char>(dim >> shift));
    }
  }
  return absl::StrCat(out, bytes);
}

class IdxTableTest : public DataFilesTest {
 protected:
  IdxTableTest() {
    source_.set_images("images");
    source_.set_labels("labels");
    Write("images",
          Idx({2, 1, 3}, absl::string_view("\x01\x02\x03\xff\x00\x07", 6)));
    Write("labels", Idx({2}, "\x04\x09"));
  }
  absl::StatusOr<std::unique_ptr<SampleTable>> Load() const {
    return LoadIdx(source_, {"image", "label"}, dir_);
  }
  std::string Error(absl::StatusCode code) const {
    const absl::Status status = Load().status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  IdxSource source_;
};

std::vector<float> Values(const SampleTable& table, int field,
                          const std::vector<int64_t>& samples, float scale = 1,
                          float offset = 0) {
  std::vector<float> out(samples.size() * table.width(field));
  table.Read(field, samples, scale, offset, out.data());
  return out;
}

TEST_F(IdxTableTest, ReadsImagesAndLabels) {
  const auto table = Load();
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->size(), 2);
  EXPECT_EQ((*table)->width(0), 3);
  EXPECT_EQ((*table)->width(1), 1);
  EXPECT_THAT(Values(**table, 0, {1, 0, 1}),
              ElementsAre(255, 0, 7, 1, 2, 3, 255, 0, 7));
  EXPECT_THAT(Values(**table, 0, {0}, 0.5f, -1), ElementsAre(-0.5, 0, 0.5));
  EXPECT_THAT(Values(**table, 1, {0, 1}), ElementsAre(4, 9));
  EXPECT_EQ((*table)->Where(0, 1), Path("images: record 1"));
  EXPECT_EQ((*table)->Where(1, 0), Path("labels: record 0"));
}

TEST_F(IdxTableTest, ReadsGzip) {
  Write("images", Gzip(Idx({2, 3}, "abcdef")));
  const auto table = Load();
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(Values(**table, 0, {1}), ElementsAre('d', 'e', 'f'));
}

TEST_F(IdxTableTest, AFieldCanBeAskedForTwice) {
  source_.clear_labels();
  const auto table = LoadIdx(source_, {"image", "image"}, dir_);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(Values(**table, 0, {0, 1}), Values(**table, 1, {0, 1}));
}

TEST_F(IdxTableTest, BytesMayBeIntegers) {
  ASSERT_TRUE(Load().ok());
  FieldRequest image("image");
  image.integers = true;
  const auto table = LoadIdx(source_, {image, "image"}, dir_);
  ASSERT_TRUE(table.ok()) << table.status();
  const std::vector<int64_t> samples = {1, 0};
  std::vector<int64_t> ints(2 * (*table)->width(0));
  std::vector<float> floats(ints.size());
  (*table)->ReadInts(0, samples, ints.data());
  (*table)->Read(1, samples, 1, 0, floats.data());
  EXPECT_EQ(std::vector<float>(ints.begin(), ints.end()), floats);
}

TEST_F(IdxTableTest, JoinsFilesOfAGlob) {
  source_.set_images("img-*");
  source_.set_labels("lab-*");
  Write("img-1", Idx({1, 2}, "ab"));
  Write("img-2", Idx({2, 2}, "cdef"));
  Write("lab-1", Idx({1}, "\x01"));
  Write("lab-2", Idx({2}, "\x02\x03"));
  const auto table = Load();
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->size(), 3);
  EXPECT_THAT(Values(**table, 0, {2, 0}), ElementsAre('e', 'f', 'a', 'b'));
  EXPECT_THAT(Values(**table, 1, {0, 1, 2}), ElementsAre(1, 2, 3));
  EXPECT_EQ((*table)->Where(0, 2), Path("img-2: record 1"));

  Write("lab-2", Idx({1}, "\x02"));
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
              AllOf(HasSubstr(Path("img-2 holds 2 records")),
                    HasSubstr(Path("lab-2 holds 1"))));
  Write("img-2", Idx({2, 3}, "cdefgh"));
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
              HasSubstr(Path("img-2: records are [3], those of ") +
                        Path("img-1 are [2]")));
  ASSERT_TRUE(RemoveTree(Path("img-2")).ok());
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument), HasSubstr("1 files"));
}

TEST_F(IdxTableTest, NamesImagesAndLabelsThatDoNotPair) {
  Write("labels", Idx({3}, "\x01\x02\x03"));
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
              AllOf(HasSubstr(Path("images holds 2 records")),
                    HasSubstr(Path("labels holds 3"))));
  Write("labels", Idx({2, 1}, "\x01\x02"));
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
              HasSubstr(Path("labels: labels must have one dimension, not 2")));
}

TEST_F(IdxTableTest, NamesAWrongMagic) {
  for (const absl::string_view head :
       {"PNG\n", "\x01\x02\x03\x04", "abcdefgh"}) {
    Write("images", head);
    EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
                HasSubstr(Path("images: not an IDX file of unsigned bytes")));
  }
  std::string floats = Idx({2, 3}, "abcdef");
  floats[2] = 0x0d;
  Write("images", floats);
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
              HasSubstr("starts with 00 00 0d 02"));
  for (const char rank : {0, 9}) {
    Write("images", std::string({0, 0, 8, rank}) + std::string(100, '\1'));
    EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
                HasSubstr("not an IDX file"));
  }
}

TEST_F(IdxTableTest, NamesATruncatedFileWhereverItEnds) {
  const std::string whole = Idx({2, 3}, "abcdef");
  for (size_t size = 0; size < whole.size(); ++size) {
    Write("images", whole.substr(0, size));
    EXPECT_THAT(Error(absl::StatusCode::kDataLoss),
                HasSubstr(Path("images: truncated")));
    Write("images", Gzip(whole.substr(0, size)));
    EXPECT_THAT(Error(absl::StatusCode::kDataLoss),
                HasSubstr(Path("images: truncated")));
  }
}

TEST_F(IdxTableTest, ATinyFileThatPromisesTerabytesTakesNoMemory) {
  Write("images", Idx({0xffffffff, 0xffffffff, 0xffffffff}, "abc"));
  EXPECT_THAT(Error(absl::StatusCode::kDataLoss), HasSubstr("truncated"));
  Write("images", Gzip(Idx({1 << 20, 1 << 20}, "abc")));
  EXPECT_THAT(Error(absl::StatusCode::kDataLoss), HasSubstr("truncated"));
}

TEST_F(IdxTableTest, NamesTrailingBytesAndEmptyDimensions) {
  Write("images", Idx({2, 3}, "abcdefg"));
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
              HasSubstr(Path("images: bytes after the last of 2 records")));
  Write("images", Idx({0, 3}, ""));
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
              HasSubstr(Path("images: dimension 0 is 0")));
}

TEST_F(IdxTableTest, NamesAnUnknownFieldAndAMissingFile) {
  EXPECT_THAT(
      std::string(LoadIdx(source_, {"pixels"}, dir_).status().message()),
      HasSubstr("no field \"pixels\""));
  source_.set_labels("absent");
  EXPECT_THAT(Error(absl::StatusCode::kNotFound), HasSubstr(Path("absent")));
}

}  // namespace
}  // namespace syncline::worker

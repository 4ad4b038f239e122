// Goal: a trained table is exported whole: into the model where it fits, else
// as a file that others read. Method: a reader over a map; files read back by
// hand.

#include "worker/export/table_export.h"

#include <cstring>
#include <map>

#include "absl/strings/match.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kDim = 2;
constexpr uint64_t kBytesMax = 1 << 20;
using Rows = std::map<int64_t, std::vector<float>>;

// Scans two rows a message; rows that are not there are (-key, 0).
TableReader ReaderOf(const Rows* rows) {
  return {.scan = [rows](TableReader::Sink sink) -> absl::Status {
            std::vector<int64_t> keys;
            std::vector<float> values;
            for (const auto& [key, row] : *rows) {
              keys.push_back(key);
              values.insert(values.end(), row.begin(), row.end());
              if (keys.size() < 2) continue;
              const absl::Status status = sink(keys, values);
              if (!status.ok()) return status;
              keys.clear();
              values.clear();
            }
            return sink(keys, values);
          },
          .keys_max = 1000,
          .read =
              [](absl::Span<const int64_t> keys, float* values) {
                EXPECT_LE(keys.size(), 1000u);
                for (size_t i = 0; i < keys.size(); ++i) {
                  values[2 * i] = static_cast<float>(-keys[i]);
                  values[2 * i + 1] = 0;
                }
                return absl::OkStatus();
              }};
}

TEST(TableExportTest, ADenseTableHasInitialValuesWhereNothingWasTouched) {
  const Rows rows = {{1, {5, 6}}, {3, {7, 8}}, {0, {1, 2}}};
  const auto dense = ReadDenseTable(5, kDim, kBytesMax, ReaderOf(&rows));
  ASSERT_TRUE(dense.ok() && dense->has_value());
  EXPECT_THAT(**dense, ElementsAre(1, 2, 5, 6, -2, 0, 7, 8, -4, 0));
  const Rows none;
  const auto large = ReadDenseTable(100'000, kDim, kBytesMax, ReaderOf(&none));
  ASSERT_TRUE(large.ok() && large->has_value());
  EXPECT_EQ((**large)[2 * 99'999], -99'999.0f);
}

// The model has read them as zeros; one that was trained as a row is one.
TEST(TableExportTest, RowsOfPaddingAreZeros) {
  const Rows rows = {{1, {5, 6}}};
  const auto dense =
      ReadDenseTable(4, kDim, kBytesMax, ReaderOf(&rows), {0, 1, 3});
  ASSERT_TRUE(dense.ok() && dense->has_value());
  EXPECT_THAT(**dense, ElementsAre(0, 0, 5, 6, -2, 0, 0, 0));
}

TEST(TableExportTest, WhatCannotBeATensorIsNone) {
  for (const int64_t outside : {int64_t{5}, int64_t{-1}, int64_t{1} << 40}) {
    const Rows rows = {{1, {5, 6}}, {outside, {7, 8}}};
    const auto dense = ReadDenseTable(5, kDim, kBytesMax, ReaderOf(&rows));
    ASSERT_TRUE(dense.ok());
    EXPECT_FALSE(dense->has_value()) << outside;
  }
  const Rows rows = {{1, {5, 6}}};
  EXPECT_FALSE(
      ReadDenseTable(0, kDim, kBytesMax, ReaderOf(&rows))->has_value());
  EXPECT_FALSE(
      ReadDenseTable(5, kDim, 5 * kDim * sizeof(float) - 1, ReaderOf(&rows))
          ->has_value());
}

TEST(TableExportTest, AScanEndsWhereItShowsThatThereIsNoTensor) {
  Rows rows = {{-1, {7, 8}}};
  for (int64_t key = 0; key < 5; ++key) rows[key] = {5, 6};
  TableReader reader = ReaderOf(&rows);
  int messages = 0;
  const auto scan = reader.scan;
  reader.scan = [&](TableReader::Sink sink) {
    return scan(
        [&](absl::Span<const int64_t> keys, absl::Span<const float> values) {
          ++messages;
          return sink(keys, values);
        });
  };
  const auto dense = ReadDenseTable(5, kDim, kBytesMax, reader);
  ASSERT_TRUE(dense.ok());
  EXPECT_FALSE(dense->has_value());
  EXPECT_EQ(messages, 1);
}

TEST(TableExportTest, RowsAreWrittenAsSafetensors) {
  const TempDir dir;
  const Rows rows = {{1, {5, 6}}, {-9, {7, 8}}, {int64_t{1} << 40, {1, 2}}};
  const std::string path = dir.File("rows");
  ASSERT_EQ(WriteTableRows(path, "em\"b", kDim, ReaderOf(&rows)),
            absl::OkStatus());
  const auto content = ReadFile(path, 1 << 20);
  ASSERT_TRUE(content.ok()) << content.status();
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, content->data(), 8);
  ASSERT_EQ(content->size(), 8 + header_bytes + 3 * (8 + 8));
  const std::string header = content->substr(8, header_bytes);
  EXPECT_TRUE(absl::StartsWith(
      header,
      "{\"__metadata__\":{\"table\":\"em_b\"},\"values\":{\"dtype\":\"F32\","
      "\"shape\":[3,2],\"data_offsets\":[0,24]},\"keys\":{\"dtype\":\"I64\","
      "\"shape\":[3],\"data_offsets\":[24,48]}} "))
      << header;
  std::vector<float> values(6);
  std::memcpy(values.data(), content->data() + 8 + header_bytes, 24);
  EXPECT_THAT(values, ElementsAre(7, 8, 5, 6, 1, 2));
  std::vector<int64_t> keys(3);
  std::memcpy(keys.data(), content->data() + 8 + header_bytes + 24, 24);
  EXPECT_THAT(keys, ElementsAre(-9, 1, int64_t{1} << 40));
  EXPECT_FALSE(ReadFile(path + ".keys", 1 << 20).ok()) << "is removed";
}

TEST(TableExportTest, AReaderTellsHowManyRowsItHasRead) {
  const Rows rows = {{0, {1, 2}}, {1, {3, 4}}, {3, {5, 6}}};
  std::vector<uint64_t> told;
  const auto dense = ReadDenseTable(
      6, kDim, kBytesMax,
      Counted(ReaderOf(&rows), [&](uint64_t count) { told.push_back(count); }));
  ASSERT_TRUE(dense.ok());
  ASSERT_TRUE(dense->has_value());
  EXPECT_THAT(**dense, ElementsAre(1, 2, 3, 4, -2, 0, 5, 6, -4, 0, -5, 0));
  // Two and one by the scan; three that it has not shown.
  EXPECT_THAT(told, ElementsAre(2, 3, 6));
}

TEST(TableExportTest, ErrorsOfFilesNameThem) {
  const TempDir dir;
  const Rows rows;
  EXPECT_THAT(
      std::string(WriteTableRows(dir.File("no/dir"), "t", kDim, ReaderOf(&rows))
                      .message()),
      HasSubstr("no/dir"));
}

TEST(TableExportTest, ArtifactNamesAreValidAndUnique) {
  EXPECT_EQ(TableArtifact("emb_1", 3), "tables/emb_1.safetensors");
  EXPECT_EQ(TableArtifact("a/b", 3), "tables/a_b.3.safetensors");
}

}  // namespace
}  // namespace syncline::worker

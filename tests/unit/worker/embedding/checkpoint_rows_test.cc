// Goal: an evaluation reads of a checkpoint the rows that are in it and, for
// keys that are not, their initial values; rows that nobody reads take no
// memory; what does not fit is refused by name.
// Method: two checkpoints put one after the other, batches that overlap, and
// memory that is said to be short.

#include "worker/embedding/checkpoint_rows.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kDim = 3;
const RowInitializer kInitial(RowInitializer::Scheme::kUniform, 0.5f, 7, "t");

std::unique_ptr<RowBatch> BatchOf(std::vector<int64_t> ids) {
  RowBatch::Options options;
  options.name = "t";
  options.dim = kDim;
  options.samples_max = 16;
  options.lookups = {{.feed = 0, .ids_per_sample = 1, .padding = 0}};
  auto rows = std::make_unique<RowBatch>(options, *TableMap::Create(256, 1));
  Batch batch;
  batch.size = static_cast<int64_t>(ids.size());
  batch.int_feeds = {std::move(ids)};
  rows->Collect(batch);
  return rows;
}

std::vector<float> Initial(int64_t key) {
  std::vector<float> row(kDim);
  kInitial.Fill(key, row.data(), kDim);
  return row;
}

std::vector<float> RowOf(RowBatch* rows, int64_t key) {
  for (size_t i = 0; i < rows->keys().size(); ++i) {
    if (rows->keys()[i] == key) {
      return {rows->value(i), rows->value(i) + kDim};
    }
  }
  return {};
}

TEST(CheckpointRowsTest, EachCheckpointIsReadAloneAndAbsentKeysAreInitial) {
  CheckpointRows rows({{.name = "t", .dim = kDim, .initializer = kInitial}});
  const auto first = BatchOf({5, -9, 5, 0});
  const auto second = BatchOf({5, 1'000'000'000'000});
  for (const auto* batch : {&first, &second, &first}) {
    RowBatch* const of[] = {batch->get()};
    ASSERT_OK(rows.AddKeys(of));
  }
  EXPECT_EQ(rows.keys(), 3u) << "0 stands for none";

  ASSERT_OK(rows.Begin());
  rows.Put(0, {-9, 77, 5}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  RowBatch* const of_first[] = {first.get()};
  RowBatch* const of_second[] = {second.get()};
  rows.Read(of_first);
  rows.Read(of_second);
  EXPECT_EQ(RowOf(first.get(), -9), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(RowOf(first.get(), 5), (std::vector<float>{7, 8, 9}));
  EXPECT_EQ(RowOf(second.get(), 5), (std::vector<float>{7, 8, 9}));
  EXPECT_EQ(RowOf(second.get(), 1'000'000'000'000), Initial(1'000'000'000'000));

  // In the next one the row of 5 has expired.
  ASSERT_OK(rows.Begin());
  rows.Put(0, {-9}, {10, 20, 30});
  rows.Read(of_first);
  EXPECT_EQ(RowOf(first.get(), -9), (std::vector<float>{10, 20, 30}));
  EXPECT_EQ(RowOf(first.get(), 5), Initial(5));

  std::vector<float> made(2 * kDim);
  rows.FillInitial(0, {5, 6}, made.data());
  EXPECT_EQ(std::vector<float>(made.begin() + kDim, made.end()), Initial(6));
}

TEST(CheckpointRowsTest, WhatDoesNotFitIsRefusedByName) {
  uint64_t available = 1 << 30;
  CheckpointRows rows({{.name = "t", .dim = kDim, .initializer = kInitial}},
                      [&] { return available; });
  const auto batch = BatchOf({1, 2, 3});
  RowBatch* const of[] = {batch.get()};
  ASSERT_OK(rows.AddKeys(of));
  available = 0;
  const absl::Status no_rows = rows.Begin();
  EXPECT_TRUE(absl::IsResourceExhausted(no_rows)) << no_rows;
  EXPECT_THAT(no_rows.message(),
              AllOf(HasSubstr("the rows of table \"t\" that data.test reads, 3 "
                              "so far"),
                    HasSubstr("evaluate fewer samples")));
  ASSERT_OK(rows.AddKeys(of));  // they are known
  EXPECT_TRUE(rows.Has(0, 2));
  EXPECT_FALSE(rows.Has(0, 4));
  const auto more = BatchOf({4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  RowBatch* const of_more[] = {more.get()};
  const absl::Status no_keys = rows.AddKeys(of_more);
  EXPECT_TRUE(absl::IsResourceExhausted(no_keys)) << no_keys;
  EXPECT_THAT(no_keys.message(), HasSubstr("the keys of table \"t\""));
}

}  // namespace
}  // namespace syncline::worker

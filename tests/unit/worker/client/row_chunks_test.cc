// Goal: every row is in one message of its shard, no slot of gradients is cut,
// and no message is larger than it may be. Method: random batches of two
// tables.

#include "worker/client/row_chunks.h"

#include <memory>
#include <optional>
#include <utility>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr size_t kMessage = 1 << 20;
constexpr ElementType kWhole = ElementType::kFloat32;
constexpr uint32_t kNoSlot = 1 << 30;

std::unique_ptr<RowBatch> MakeRows(int64_t dim, const TableMap& map,
                                   int64_t ids) {
  RowBatch::Options options;
  options.name = "t";
  options.dim = dim;
  options.samples_max = 1;
  options.lookups = {{.feed = 0, .ids_per_sample = ids}};
  auto rows = std::make_unique<RowBatch>(options, map);
  Batch batch;
  batch.size = 1;
  batch.int_feeds.resize(1);
  Random random(static_cast<uint64_t>(dim));
  for (int64_t i = 0; i < ids; ++i) {
    batch.int_feeds[0].push_back(static_cast<int64_t>(random.Below(5000)));
  }
  rows->Collect(batch);
  return rows;
}

std::unique_ptr<RowBatch> MakeRows(int64_t dim, uint32_t shards, int64_t ids) {
  return MakeRows(dim, *TableMap::Create(256, shards), ids);
}

// Slots on random shards.
TableMap ScatteredMap(uint32_t shards) {
  Random random(9);
  std::vector<uint32_t> slot_shards;
  for (int slot = 0; slot < 256; ++slot) {
    slot_shards.push_back(static_cast<uint32_t>(random.Below(shards)));
  }
  return *TableMap::Create(256, shards, slot_shards);
}

TEST(RowChunksTest, EveryRowTravelsOnceAndSlotsStayWhole) {
  constexpr uint32_t kShards = 3;
  const auto a = MakeRows(1, kShards, 2000);
  const auto b = MakeRows(16, kShards, 3000);
  const std::vector<RowBatch*> tables = {a.get(), b.get()};
  for (const size_t chunk_bytes : {100, 1000, 20'000, 1 << 20}) {
    for (const auto& [gradients, type] :
         {std::pair{true, ElementType::kFloat32},
          {true, ElementType::kFloat16},
          {false, ElementType::kFloat32},
          {false, ElementType::kBfloat16}}) {
      std::vector<size_t> next = {0, 0};
      for (uint32_t shard = 0; shard < kShards; ++shard) {
        const auto chunks =
            gradients
                ? *CutGradients(tables, shard, type, chunk_bytes, kMessage)
                : CutWanted(tables, shard, type, chunk_bytes);
        std::vector<size_t> in_shard = {0, 0};
        for (const RowChunk& chunk : chunks) {
          EXPECT_EQ(chunk.shard, shard);
          EXPECT_EQ(chunk.type, type);
          size_t bytes = 0;
          size_t parts = 0;
          int64_t last = -1;
          for (const TableRowSpan& range : chunk.ranges) {
            EXPECT_GT(static_cast<int64_t>(range.table), last);
            last = range.table;
            const RowBatch& rows = *tables[range.table];
            EXPECT_EQ(range.first, next[range.table]);
            next[range.table] += range.count;
            in_shard[range.table] += range.count;
            bytes += range.count * (8 + ElementBytes(type) * rows.dim());
            const auto slot = [&](size_t i) {
              return rows.map().SlotOf(rows.keys()[i]);
            };
            const size_t end = range.first + range.count;
            EXPECT_EQ(rows.map().ShardOf(rows.keys()[range.first]), shard);
            if (gradients && end < rows.keys().size()) {
              EXPECT_NE(slot(end), slot(end - 1)) << "a slot was cut";
            }
            parts += gradients ? slot(end - 1) != slot(range.first) : 0;
            parts += gradients ? 1 : range.count;
          }
          EXPECT_EQ(chunk.bytes, bytes);
          EXPECT_TRUE(bytes <= chunk_bytes || parts == 1) << bytes;
        }
      }
      EXPECT_EQ(next[0], a->keys().size());
      EXPECT_EQ(next[1], b->keys().size());
    }
  }
}

TEST(RowChunksTest, RowsOfScatteredSlotsTravelOnceAndInOrder) {
  constexpr uint32_t kShards = 3;
  const auto a = MakeRows(4, ScatteredMap(kShards), 2000);
  a->WantOnly([](size_t i) { return i % 5 != 0; });
  const std::vector<RowBatch*> tables = {a.get()};
  for (const bool gradients : {true, false}) {
    for (const size_t chunk_bytes : {100, 1000, 1 << 20}) {
      size_t rows = 0;
      for (uint32_t shard = 0; shard < kShards; ++shard) {
        std::optional<int64_t> last;
        uint32_t last_slot = kNoSlot;
        for (const RowChunk& chunk :
             gradients
                 ? *CutGradients(tables, shard, kWhole, chunk_bytes, kMessage)
                 : CutWanted(tables, shard, kWhole, chunk_bytes)) {
          size_t bytes = 0;
          uint32_t end = kNoSlot;
          for (const TableRowSpan& range : chunk.ranges) {
            EXPECT_NE(range.first, end) << "two ranges could be one";
            end = range.first + range.count;
            bytes += range.count * (8 + 4 * 4);
            for (uint32_t i = range.first; i < end; ++i) {
              const int64_t key =
                  gradients ? a->keys()[i] : a->wanted_keys()[i];
              EXPECT_EQ(a->map().ShardOf(key), shard);
              EXPECT_TRUE(!last.has_value() || a->map().Before(*last, key));
              last = key;
              ++rows;
            }
          }
          const uint32_t first_slot = a->map().SlotOf(
              gradients ? a->keys()[chunk.ranges[0].first]
                        : a->wanted_keys()[chunk.ranges[0].first]);
          EXPECT_TRUE(!gradients || first_slot != last_slot)
              << "a slot was cut";
          last_slot = a->map().SlotOf(*last);
          EXPECT_EQ(chunk.bytes, bytes);
        }
      }
      EXPECT_EQ(rows, gradients ? a->keys().size() : a->wanted().size());
    }
  }
}

TEST(RowChunksTest, OnlyWhatIsWantedIsPulled) {
  const auto a = MakeRows(4, 2, 500);
  a->WantOnly([](size_t i) { return i % 3 == 0; });
  const std::vector<RowBatch*> tables = {a.get()};
  size_t rows = 0;
  for (uint32_t shard = 0; shard < 2; ++shard) {
    for (const RowChunk& chunk : CutWanted(tables, shard, kWhole, 300)) {
      rows += chunk.ranges[0].count;
    }
  }
  EXPECT_EQ(rows, a->wanted().size());
  a->WantOnly([](size_t) { return false; });
  EXPECT_THAT(CutWanted(tables, 0, kWhole, 300), SizeIs(0));
}

TEST(RowChunksTest, WhatIsWantedEarlyIsCutApart) {
  const auto a = MakeRows(4, 2, 500);
  a->WantEarly([](int64_t key) { return key % 2 == 0; });
  const std::vector<RowBatch*> tables = {a.get()};
  for (const WantedPart part : {WantedPart::kEarly, WantedPart::kRest}) {
    size_t rows = 0;
    for (uint32_t shard = 0; shard < 2; ++shard) {
      for (const RowChunk& chunk :
           CutWanted(tables, shard, kWhole, 300, part)) {
        for (uint32_t i = 0; i < chunk.ranges[0].count; ++i) {
          const int64_t key = a->wanted_keys()[chunk.ranges[0].first + i];
          EXPECT_EQ(key % 2 == 0, part == WantedPart::kEarly);
          EXPECT_EQ(a->map().ShardOf(key), shard);
          ++rows;
        }
      }
    }
    EXPECT_EQ(rows, part == WantedPart::kEarly
                        ? a->early_count()
                        : a->keys().size() - a->early_count());
  }
}

TEST(RowChunksTest, ASlotThatFitsIntoNoMessageIsNamed) {
  const auto a = MakeRows(16, 1, 2000);
  const std::vector<RowBatch*> tables = {a.get()};
  const auto chunks = CutGradients(tables, 0, kWhole, 100, 200);
  EXPECT_EQ(chunks.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(chunks.status().message()),
              HasSubstr("a message has at most 200; use smaller batches"));
}

}  // namespace
}  // namespace syncline::worker

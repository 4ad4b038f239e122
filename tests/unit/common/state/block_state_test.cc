// Goal: blocks are read as they were written, and nothing that is out of order,
// too long or not whole is taken for one.

#include "common/state/block_state.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shard_state.pb.h"
#include "tests/testing/fakes/shard_states.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

// Larger than a piece.
constexpr size_t kElements = kBlockPieceFloats + 10;

std::vector<float> Array(uint32_t block, int array) {
  std::vector<float> floats(kElements);
  for (size_t i = 0; i < kElements; ++i) {
    floats[i] = static_cast<float>(block * 1000 + array * 100 + i % 97);
  }
  return floats;
}

DensePiece Piece(uint32_t block, uint64_t elements, int64_t updates,
                 uint32_t array, uint64_t first) {
  DensePiece piece;
  piece.set_block(block);
  piece.set_elements(elements);
  piece.set_updates(updates);
  piece.set_array(array);
  piece.set_first(first);
  return piece;
}

class BlockStateTest : public ::testing::Test {
 protected:
  // A reader wants a header first.
  BlockStateTest() : writer_(&sink_) {
    EXPECT_OK(writer_.Write(ShardStateKind::kHeader, ShardStateHeader(), {}));
  }
  void Write(const DensePiece& piece, size_t bytes) {
    ASSERT_OK(
        writer_.Write(ShardStateKind::kDense, piece, std::string(bytes, 0)));
  }
  // Of blocks with so many arrays. Until an error, or until all is read.
  absl::Status ReadAll(uint32_t arrays) {
    MemoryStateSource source(sink_.bytes);
    ShardStateReader reader(&source);
    EXPECT_OK(reader.Next());
    blocks_.Begin(arrays);
    while (true) {
      const auto record = reader.Next();
      if (!record.ok()) break;  // the end, without a trailer
      const auto piece = blocks_.Take(reader, *record);
      if (!piece.ok()) return piece.status();
      EXPECT_EQ(piece->begins, taken_[piece->block].empty());
      taken_[piece->block].append(piece->bytes.data(), piece->bytes.size());
      updates_[piece->block] = piece->updates;
    }
    return blocks_.CheckClosed(reader);
  }
  void ExpectDamage(uint32_t arrays, const std::string& text) {
    const absl::Status status = ReadAll(arrays);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  MemoryStateSink sink_;
  ShardStateWriter writer_;
  BlockStateReader blocks_;
  std::map<uint32_t, std::string> taken_;
  std::map<uint32_t, int64_t> updates_;
};

TEST_F(BlockStateTest, BlocksAreReadAsTheyWereWritten) {
  std::map<uint32_t, std::string> expected;
  for (const uint32_t block : {7u, 3u}) {
    std::vector<float> array_of;
    ASSERT_OK(WriteBlock(
        block, kElements, block * 10, 3,
        [&](int array) {
          array_of = Array(block, array);
          return absl::MakeConstSpan(array_of);
        },
        &writer_));
    for (int array = 0; array < 3; ++array) {
      const std::vector<float> floats = Array(block, array);
      expected[block].append(reinterpret_cast<const char*>(floats.data()),
                             floats.size() * sizeof(float));
    }
  }
  ASSERT_OK(ReadAll(3));
  EXPECT_EQ(blocks_.blocks(), 2u);
  EXPECT_TRUE(taken_ == expected);
  EXPECT_EQ(updates_, (std::map<uint32_t, int64_t>{{3, 30}, {7, 70}}));
}

TEST_F(BlockStateTest, WhatIsNotWholeIsDamage) {
  Write(Piece(1, 8, 0, 0, 0), 32);
  ExpectDamage(2, "block 1 is not whole");
}

TEST_F(BlockStateTest, AnotherBlockInTheMiddleOfOneIsDamage) {
  Write(Piece(1, 8, 0, 0, 0), 16);
  Write(Piece(2, 8, 0, 0, 0), 16);
  ExpectDamage(1, "expected block 1 from element 4 of array 0, it has block 2");
}

TEST_F(BlockStateTest, APieceThatIsLeftOutIsDamage) {
  Write(Piece(1, 8, 0, 0, 0), 16);
  Write(Piece(1, 8, 0, 0, 6), 8);
  ExpectDamage(1, "from element 6");
}

TEST_F(BlockStateTest, MoreThanTheBlockHasIsDamage) {
  Write(Piece(1, 8, 0, 0, 0), 36);
  ExpectDamage(1, "36 bytes for the 8 elements left of block 1");
}

TEST_F(BlockStateTest, HalfAFloatAndNoneAreDamage) {
  Write(Piece(1, 8, 0, 0, 0), 30);
  ExpectDamage(1, "30 bytes");
}

TEST_F(BlockStateTest, OtherUpdatesInTheMiddleOfABlockAreDamage) {
  Write(Piece(1, 8, 5, 0, 0), 32);
  Write(Piece(1, 8, 6, 1, 0), 32);
  ExpectDamage(2, "expected block 1");
}

TEST_F(BlockStateTest, NegativeUpdatesAreDamage) {
  Write(Piece(1, 8, -1, 0, 0), 32);
  ExpectDamage(1, "has -1 updates");
}

}  // namespace
}  // namespace syncline

// Goal: a reader gives back exactly what a writer has written, and no changed,
// cut, added or exchanged byte passes for it. The picture of a record in
// common/state/README.md is true.
// Method: a state of a few records; each byte of it is changed, each end of it
// is cut, each pair of its records is exchanged.

#include "common/state/shard_state_reader.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shard_state.pb.h"
#include "tests/testing/fakes/shard_states.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

struct WrittenState {
  std::string bytes;
  std::vector<size_t> ends;  // of its records
};

WrittenState Write(uint32_t seed = 0) {
  class Sink : public ShardStateSink {
   public:
    absl::Status Append(absl::string_view head,
                        absl::string_view bulk) override {
      absl::StrAppend(&state.bytes, head, bulk);
      state.ends.push_back(state.bytes.size());
      return absl::OkStatus();
    }
    WrittenState state;
  } sink;
  ShardStateWriter writer(&sink);
  ShardStateHeader header;
  header.set_format(1);
  header.set_ps_rank(seed);
  EXPECT_TRUE(writer.Write(ShardStateKind::kHeader, header, "").ok());
  for (uint32_t i = 0; i < 3; ++i) {
    DensePiece piece;
    piece.set_block(i);
    EXPECT_TRUE(writer
                    .Write(ShardStateKind::kDense, piece,
                           std::string(8 + 4 * i, static_cast<char>('a' + i)))
                    .ok());
  }
  EXPECT_TRUE(
      writer.Write(ShardStateKind::kTrailer, ShardStateTrailer(), "").ok());
  return sink.state;
}

// OK, or the error that ends the reading.
absl::Status ReadAll(const std::string& bytes, size_t* records = nullptr) {
  MemoryStateSource source(bytes);
  ShardStateReader reader(&source);
  while (true) {
    const auto record = reader.Next();
    if (!record.ok()) return record.status();
    if (records != nullptr) ++*records;
    if (record->kind == ShardStateKind::kTrailer) return absl::OkStatus();
  }
}

TEST(ShardStateReaderTest, GivesBackWhatWasWritten) {
  const WrittenState state = Write();
  const std::vector<StateRecord> records = RecordsOf(state.bytes);
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(records[2].bulk, std::string(12, 'b'));
  EXPECT_EQ(records[4].kind, ShardStateKind::kTrailer);
  EXPECT_EQ(StateOf(records), state.bytes);
}

TEST(ShardStateReaderTest, NoChangedByteIsBelieved) {
  const std::string state = Write().bytes;
  for (size_t at = 0; at < state.size(); ++at) {
    for (const int flip : {1, 0x80}) {
      std::string changed = state;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      const absl::Status status = ReadAll(changed);
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << at;
      ASSERT_THAT(std::string(status.message()), HasSubstr("memory: record "));
    }
  }
}

TEST(ShardStateReaderTest, NoCutStateIsBelieved) {
  const std::string state = Write().bytes;
  for (size_t end = 0; end < state.size(); ++end) {
    const absl::Status status = ReadAll(state.substr(0, end));
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << end;
    ASSERT_THAT(std::string(status.message()), HasSubstr("it was cut off"));
  }
  EXPECT_THAT(std::string(ReadAll(state + "x").message()),
              HasSubstr("bytes follow it"));
}

TEST(ShardStateReaderTest, RecordsHaveOneOrder) {
  const WrittenState state = Write();
  const WrittenState other = Write(/*seed=*/7);
  const auto record = [](const WrittenState& of, size_t i) {
    const size_t begin = i == 0 ? 0 : of.ends[i - 1];
    return of.bytes.substr(begin, of.ends[i] - begin);
  };
  const size_t count = state.ends.size();
  for (size_t a = 0; a < count; ++a) {
    std::string without;
    std::string twice;
    std::string mixed;
    for (size_t i = 0; i < count; ++i) {
      if (i != a) without += record(state, i);
      twice += record(state, i);
      if (i == a) twice += record(state, i);
      // A record of another state, of the same number and kind.
      mixed += record(i == a ? other : state, i);
    }
    EXPECT_FALSE(ReadAll(without).ok()) << a;
    EXPECT_FALSE(ReadAll(twice).ok()) << a;
    EXPECT_FALSE(ReadAll(mixed).ok()) << a;
    for (size_t b = a + 1; b < count; ++b) {
      std::string exchanged;
      for (size_t i = 0; i < count; ++i) {
        exchanged += record(state, i == a ? b : i == b ? a : i);
      }
      EXPECT_FALSE(ReadAll(exchanged).ok()) << a << " and " << b;
    }
  }
}

// No size makes a reader take more memory than a record's.
TEST(ShardStateReaderTest, SizesAreCheckedBeforeTheyAreUsed) {
  std::string state = Write().bytes;
  for (const size_t at : {12, 16}) {
    std::string huge = state;
    for (size_t i = 0; i < 4; ++i) huge[at + i] = '\x7f';
    EXPECT_THAT(std::string(ReadAll(huge).message()),
                HasSubstr("more than a record has"));
  }
}

TEST(ShardStateReaderTest, TheReadmesRecordIsOne) {
  // magic, kind 7, number 0, 2 bytes of meta, 3 of bulk, checksum.
  MemoryStateSink sink;
  ShardStateWriter writer(&sink);
  ShardStateTrailer trailer;
  trailer.set_blocks(1);
  ASSERT_TRUE(writer.Write(ShardStateKind::kTrailer, trailer, "abc").ok());
  const std::string expected_front("SYST\x07\0\0\0\0\0\0\0\x02\0\0\0\x03\0\0\0",
                                   20);
  EXPECT_EQ(sink.bytes.substr(0, 20), expected_front);
  EXPECT_EQ(sink.bytes.substr(24),
            "\x08\x01"
            "abc");
  EXPECT_EQ(sink.bytes.size(), kShardStateFrameBytes + 5);
}

TEST(ShardStateReaderTest, TooMuchStructureIsNotWritten) {
  MemoryStateSink sink;
  ShardStateWriter writer(&sink);
  ShardStateHeader header;
  header.set_job_id(std::string(kShardStateMetaMax, 'j'));
  EXPECT_EQ(writer.Write(ShardStateKind::kHeader, header, "").code(),
            absl::StatusCode::kResourceExhausted);
  MemoryStateSink full(10);
  ShardStateWriter other(&full);
  EXPECT_EQ(other.Write(ShardStateKind::kHeader, ShardStateHeader(), ""),
            absl::ResourceExhaustedError("the sink is full"));
}

}  // namespace
}  // namespace syncline

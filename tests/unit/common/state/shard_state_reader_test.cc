// Goal: a reader gives back exactly what a writer has written, and no changed,
// cut, added or exchanged byte passes for it. The picture of a record in
// common/state/README.md is true.
// Method: a state of a few records; each byte of it is changed, each end of it
// is cut, each pair of its records is exchanged; read as a whole, and with each
// choice of records passed over.

#include "common/state/shard_state_reader.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shard_state.pb.h"
#include "tests/testing/fakes/shard_states.h"
#include "tests/testing/status_matchers.h"

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

// --- Records that are passed over --------------------------------------------

// Knows the checksum of the whole, as a file's manifest does, and counts.
class KnownSource : public MemoryStateSource {
 public:
  KnownSource(const std::string& bytes, uint32_t crc32c)
      : MemoryStateSource(bytes), crc32c_(crc32c) {}
  absl::StatusOr<size_t> Read(size_t bytes, char* out) override {
    read += bytes;
    return MemoryStateSource::Read(bytes, out);
  }
  absl::StatusOr<size_t> Skip(size_t bytes) override {
    std::string passed(bytes, '\0');
    skipped += bytes;
    return MemoryStateSource::Read(bytes, passed.data());
  }
  absl::Status CheckWhole(uint32_t crc32c) const override {
    return crc32c == crc32c_ ? absl::OkStatus()
                             : absl::DataLossError("another whole");
  }

  size_t read = 0;
  size_t skipped = 0;

 private:
  const uint32_t crc32c_;
};

constexpr uint32_t kBlocks = 3;

// Reads those blocks of Write's whose bit is set, by what their meta says.
absl::StatusOr<std::vector<StateRecord>> ReadBlocks(ShardStateSource* source,
                                                    uint32_t blocks) {
  ShardStateReader reader(source);
  std::vector<StateRecord> records;
  while (true) {
    const auto record =
        reader.NextOf([&](ShardStateKind kind, absl::string_view meta) {
          EXPECT_NE(kind, ShardStateKind::kHeader);
          EXPECT_NE(kind, ShardStateKind::kTrailer);
          DensePiece piece;
          return !piece.ParseFromArray(meta.data(),
                                       static_cast<int>(meta.size())) ||
                 piece.block() >= kBlocks || (blocks >> piece.block() & 1) != 0;
        });
    if (!record.ok()) return record.status();
    if (record->is_passed_over) {
      EXPECT_EQ(record->bulk, "");
      EXPECT_GT(record->bulk_bytes, 0u);
      continue;
    }
    EXPECT_EQ(record->bulk_bytes, record->bulk.size());
    records.push_back(
        {record->kind, std::string(record->meta), std::string(record->bulk)});
    if (record->kind == ShardStateKind::kTrailer) return records;
  }
}

TEST(ShardStateReaderTest, RecordsThatNobodyNeedsAreNotRead) {
  const WrittenState state = Write();
  const std::vector<StateRecord> all = RecordsOf(state.bytes);
  for (uint32_t blocks = 0; blocks < (1u << kBlocks); ++blocks) {
    KnownSource source(state.bytes, Crc32c(state.bytes));
    const auto records = ReadBlocks(&source, blocks);
    ASSERT_OK(records.status());
    std::vector<StateRecord> expected;
    size_t passed = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const bool is_block = all[i].kind == ShardStateKind::kDense;
      if (is_block && (blocks >> (i - 1) & 1) == 0) {
        passed += all[i].bulk.size();
      } else {
        expected.push_back(all[i]);
      }
    }
    ASSERT_EQ(records->size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ((*records)[i].bulk, expected[i].bulk);
    }
    EXPECT_EQ(source.skipped, passed);
    // And one more, behind the trailer.
    EXPECT_EQ(source.read, state.bytes.size() - passed + 1);
  }
}

// Only records as they were written are read, or an error is. The content alone
// of those that are passed over may be damaged without a word; one whose meta
// is damaged, so that it is passed over by mistake, is missed by its reader.
TEST(ShardStateReaderTest, NoChangedByteIsBelievedThoughOthersArePassedOver) {
  const WrittenState state = Write();
  const uint32_t known = Crc32c(state.bytes);
  size_t undetected = 0;
  size_t missed = 0;
  for (uint32_t blocks = 0; blocks < (1u << kBlocks); ++blocks) {
    KnownSource whole(state.bytes, known);
    const auto expected = ReadBlocks(&whole, blocks);
    ASSERT_OK(expected.status());
    size_t record = 0;
    for (size_t at = 0; at < state.bytes.size(); ++at) {
      while (at >= state.ends[record]) ++record;
      const size_t begin = record == 0 ? 0 : state.ends[record - 1];
      const bool is_needed =
          record < 1 || record > kBlocks || (blocks >> (record - 1) & 1) != 0;
      for (const int flip : {1, 2, 4, 0x80}) {
        SCOPED_TRACE(absl::StrCat("blocks ", blocks, ", byte ", at - begin,
                                  " of record ", record, ", flip ", flip));
        std::string changed = state.bytes;
        changed[at] = static_cast<char>(changed[at] ^ flip);
        KnownSource source(changed, known);
        const auto records = ReadBlocks(&source, blocks);
        if (!records.ok()) {
          EXPECT_EQ(records.status().code(), absl::StatusCode::kDataLoss);
          continue;
        }
        ++undetected;
        ASSERT_GE(at - begin, kShardStateFrameBytes);
        ASSERT_EQ(records->size() + (is_needed ? 1 : 0), expected->size());
        if (is_needed) ++missed;
        for (size_t i = 0, of = 0; i < records->size(); ++i, ++of) {
          if (is_needed && (*records)[i].meta != (*expected)[of].meta) ++of;
          ASSERT_EQ((*records)[i].meta, (*expected)[of].meta);
          ASSERT_EQ((*records)[i].bulk, (*expected)[of].bulk);
        }
      }
    }
  }
  EXPECT_GT(undetected, missed);
  EXPECT_GT(missed, 0u);
}

// However little of it is read.
TEST(ShardStateReaderTest, AWholeStateOfAnotherCutIsFound) {
  const WrittenState state = Write();
  const WrittenState other = Write(/*seed=*/7);
  ASSERT_EQ(other.bytes.size(), state.bytes.size() + 2);
  for (uint32_t blocks = 0; blocks < (1u << kBlocks); ++blocks) {
    KnownSource source(other.bytes, Crc32c(state.bytes));
    EXPECT_EQ(ReadBlocks(&source, blocks).status(),
              absl::DataLossError("another whole"));
  }
}

TEST(ShardStateReaderTest, NoCutStateIsBelievedThoughOthersArePassedOver) {
  const std::string state = Write().bytes;
  for (size_t end = 0; end < state.size(); ++end) {
    KnownSource source(state.substr(0, end), Crc32c(state));
    EXPECT_THAT(std::string(ReadBlocks(&source, 2).status().message()),
                HasSubstr("it was cut off"));
  }
}

// A source that cannot pass over bytes reads them.
TEST(ShardStateReaderTest, ASourceNeedNotKnowHowToPassOver) {
  const std::string state = Write().bytes;
  MemoryStateSource source(state);
  const auto records = ReadBlocks(&source, 4);
  ASSERT_OK(records.status());
  ASSERT_EQ(records->size(), 3u);
  EXPECT_EQ((*records)[1].bulk, std::string(16, 'c'));
}

// -----------------------------------------------------------------------------

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

#ifndef SYNCLINE_COMMON_STATE_SHARD_STATE_READER_H_
#define SYNCLINE_COMMON_STATE_SHARD_STATE_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/state/shard_state_stream.h"
#include "google/protobuf/message_lite.h"

namespace syncline {

// Reads the records of a shard's state. It believes no size, order or byte
// before it has checked it, and needs the memory of one record.
//
// Records that nobody needs can be passed over (NextOf). Of their bytes only
// frame and meta are read, and meta and bulk are not checked: one whose meta is
// damaged can be passed over by mistake, so its reader looks in the end if it
// has all that it needs. All else is checked:
// - A record that is read fits behind the checksum that stands in the record
//   before it, read or not.
// - Checksums of neighbours give that of the bytes between them
//   (Crc32cOfRest), so at the end the source compares that of the whole. A
//   state of another cut is found, however little of it was read.
// - The sizes in frames lead from one record to the next, and numbers count
// all.
//
// Thread-compatible.
class ShardStateReader {
 public:
  struct Record {
    ShardStateKind kind = ShardStateKind::kTrailer;
    // Borrowed until the next call.
    absl::string_view meta;
    absl::string_view bulk;  // empty if it was passed over
    size_t bulk_bytes = 0;
    // Then only the sizes were checked: another meta can have been written.
    bool is_passed_over = false;
  };
  // True if the bulk of a record is needed. The meta is not checked yet: of one
  // that is damaged the record is read and refused, or missed.
  using Needs =
      absl::FunctionRef<bool(ShardStateKind kind, absl::string_view meta)>;

  // `source` outlives it.
  explicit ShardStateReader(ShardStateSource* source) : source_(source) {}

  // The next record. The first is the header, and after the trailer the source
  // has ended.
  // Errors, with the source's name and the record's number: the source's;
  // DataLoss: bytes that no writer has written there, or the end before the
  // trailer. Nothing can be read after an error.
  absl::StatusOr<Record> Next();
  // The same, or a record that was passed over because `needs` says so.
  // Headers, trailers and records without bulk are always read.
  absl::StatusOr<Record> NextOf(Needs needs);

  // Parses the meta of the record that Next gave last.
  // Errors: DataLoss, as above.
  absl::Status Parse(const Record& record,
                     google::protobuf::MessageLite* meta) const;
  // A DataLoss of the record that Next gave last.
  absl::Status Damage(absl::string_view problem) const;

 private:
  // Appends so many bytes of the source to the record.
  absl::Status Fill(size_t bytes);
  absl::Status PassOver(size_t bytes);
  absl::Status CutOff(size_t bytes) const;
  absl::string_view record() const { return {record_.data(), size_}; }
  // Takes the checksums of the record, whose bulk was read or passed over.
  absl::Status TakeChecksums(size_t rest_bytes, bool is_passed_over);
  // Reads the sizes that the frame in record_ announces.
  absl::Status CheckFrame(uint32_t kind, uint32_t meta_bytes,
                          uint32_t bulk_bytes) const;
  // OK if nothing follows, and the source takes the whole for what it has.
  absl::Status CheckEnd();

  ShardStateSource* const source_;
  uint32_t number_ = 0;    // of the next record
  uint32_t checksum_ = 0;  // of all before it, as records have it
  uint32_t whole_ = 0;     // of all before it, checksums too
  std::string record_;     // its first size_ bytes are the record's
  size_t size_ = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_STATE_SHARD_STATE_READER_H_

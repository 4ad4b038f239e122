#include "common/state/shard_state_reader.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

constexpr size_t kChecksumAt = kShardStateFrameBytes - sizeof(uint32_t);

uint32_t Load32(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

}  // namespace

absl::Status ShardStateReader::Damage(absl::string_view problem) const {
  return absl::DataLossError(absl::StrCat(source_->name(), ": record ",
                                          number_ == 0 ? 0 : number_ - 1,
                                          " of a shard's state: ", problem));
}

absl::Status ShardStateReader::CutOff(size_t bytes) const {
  return Damage(absl::StrCat("the state ends after ", bytes,
                             " bytes of it; it was cut off"));
}

absl::Status ShardStateReader::Fill(size_t bytes) {
  // It never shrinks: bytes that are made are zeroed first.
  if (record_.size() < size_ + bytes) record_.resize(size_ + bytes);
  SYNCLINE_ASSIGN_OR_RETURN(const size_t read,
                            source_->Read(bytes, record_.data() + size_));
  size_ += read;
  return read == bytes ? absl::OkStatus() : CutOff(size_);
}

absl::Status ShardStateReader::PassOver(size_t bytes) {
  SYNCLINE_ASSIGN_OR_RETURN(const size_t passed, source_->Skip(bytes));
  return passed == bytes ? absl::OkStatus() : CutOff(size_ + passed);
}

absl::Status ShardStateReader::CheckFrame(uint32_t kind, uint32_t meta_bytes,
                                          uint32_t bulk_bytes) const {
  if (Load32(record_, 0) != kShardStateMagic) {
    return Damage("it does not begin as a record does");
  }
  if (Load32(record_, 8) != number_ - 1) {
    return Damage(
        absl::StrCat("it was written as record ", Load32(record_, 8)));
  }
  if (kind < static_cast<uint32_t>(ShardStateKind::kHeader) ||
      kind > static_cast<uint32_t>(ShardStateKind::kTrailer)) {
    return Damage(absl::StrCat("kind ", kind, " is unknown"));
  }
  const bool first = number_ == 1;
  if (first != (kind == static_cast<uint32_t>(ShardStateKind::kHeader))) {
    return Damage(first ? "it is not a header"
                        : "it is a header, which comes first");
  }
  if (meta_bytes > kShardStateMetaMax || bulk_bytes > kShardStateBulkMax) {
    return Damage(absl::StrCat("it announces ", meta_bytes, " + ", bulk_bytes,
                               " bytes, more than a record has"));
  }
  return absl::OkStatus();
}

absl::Status ShardStateReader::CheckEnd() {
  char next = 0;
  SYNCLINE_ASSIGN_OR_RETURN(const size_t read, source_->Read(1, &next));
  if (read > 0) return Damage("bytes follow it, though it is the last");
  return source_->CheckWhole(whole_);
}

absl::Status ShardStateReader::TakeChecksums(size_t rest_bytes,
                                             bool is_passed_over) {
  const absl::string_view frame = record().substr(0, kShardStateFrameBytes);
  const uint32_t front = ExtendCrc32c(checksum_, frame.substr(0, kChecksumAt));
  const uint32_t written = Load32(record_, kChecksumAt);
  // Each byte is gone over once, for both checksums.
  const uint32_t rest = is_passed_over
                            ? Crc32cOfRest(written, front, rest_bytes)
                            : Crc32c(record().substr(kShardStateFrameBytes));
  checksum_ = ConcatCrc32c(front, rest, rest_bytes);
  if (checksum_ != written) return Damage("the checksum is another");
  whole_ = ConcatCrc32c(ExtendCrc32c(whole_, frame), rest, rest_bytes);
  return absl::OkStatus();
}

absl::StatusOr<ShardStateReader::Record> ShardStateReader::Next() {
  return NextOf([](ShardStateKind, absl::string_view) { return true; });
}

absl::StatusOr<ShardStateReader::Record> ShardStateReader::NextOf(Needs needs) {
  ++number_;
  size_ = 0;
  SYNCLINE_RETURN_IF_ERROR(Fill(kShardStateFrameBytes));
  const uint32_t kind = Load32(record_, 4);
  const uint32_t meta_bytes = Load32(record_, 12);
  const uint32_t bulk_bytes = Load32(record_, 16);
  SYNCLINE_RETURN_IF_ERROR(CheckFrame(kind, meta_bytes, bulk_bytes));
  Record record;
  record.kind = static_cast<ShardStateKind>(kind);
  record.bulk_bytes = bulk_bytes;
  SYNCLINE_RETURN_IF_ERROR(Fill(meta_bytes));
  record.is_passed_over =
      record.kind != ShardStateKind::kHeader &&
      record.kind != ShardStateKind::kTrailer && bulk_bytes > 0 &&
      !needs(record.kind, this->record().substr(kShardStateFrameBytes));
  SYNCLINE_RETURN_IF_ERROR(record.is_passed_over ? PassOver(bulk_bytes)
                                                 : Fill(bulk_bytes));
  SYNCLINE_RETURN_IF_ERROR(
      TakeChecksums(size_t{meta_bytes} + bulk_bytes, record.is_passed_over));
  record.meta = this->record().substr(kShardStateFrameBytes, meta_bytes);
  record.bulk = this->record().substr(kShardStateFrameBytes + meta_bytes);
  if (record.kind == ShardStateKind::kTrailer) {
    SYNCLINE_RETURN_IF_ERROR(CheckEnd());
  }
  return record;
}

absl::Status ShardStateReader::Parse(
    const Record& record, google::protobuf::MessageLite* meta) const {
  if (meta->ParseFromArray(record.meta.data(),
                           static_cast<int>(record.meta.size()))) {
    return absl::OkStatus();
  }
  return Damage("its structure does not parse");
}

}  // namespace syncline

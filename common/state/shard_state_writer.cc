#include "common/state/shard_state_writer.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"

namespace syncline {
namespace {

void Append32(uint32_t value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

absl::Status ShardStateWriter::Write(ShardStateKind kind,
                                     const google::protobuf::MessageLite& meta,
                                     absl::string_view bulk) {
  SYNCLINE_CHECK(bulk.size() <= kShardStateBulkMax);
  const size_t meta_bytes = meta.ByteSizeLong();
  if (meta_bytes > kShardStateMetaMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a record of a shard's state has ", meta_bytes,
                     " bytes of structure, at most ", kShardStateMetaMax));
  }
  head_.clear();
  Append32(kShardStateMagic, &head_);
  Append32(static_cast<uint32_t>(kind), &head_);
  Append32(number_++, &head_);
  Append32(static_cast<uint32_t>(meta_bytes), &head_);
  Append32(static_cast<uint32_t>(bulk.size()), &head_);
  const size_t checksum_at = head_.size();
  checksum_ = ExtendCrc32c(checksum_, head_);
  Append32(0, &head_);
  meta.AppendToString(&head_);
  checksum_ = ExtendCrc32c(
      checksum_, absl::string_view(head_).substr(kShardStateFrameBytes));
  checksum_ = ExtendCrc32c(checksum_, bulk);
  std::memcpy(head_.data() + checksum_at, &checksum_, sizeof(checksum_));
  return sink_->Append(head_, bulk);
}

}  // namespace syncline

#ifndef SYNCLINE_COMMON_STATE_SHARD_STATE_STREAM_H_
#define SYNCLINE_COMMON_STATE_SHARD_STATE_STREAM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace syncline {

// The kinds of records, by what their meta is (proto/shard_state.proto).
enum class ShardStateKind : uint32_t {
  kHeader = 1,
  kDense = 2,
  kPart = 3,
  kFilter = 4,
  kRows = 5,
  kCounts = 6,
  kTrailer = 7,
};

// A record on the wire, which common/state/README.md draws:
//
//   magic 4 | kind 4 | number 4 | meta bytes 4 | bulk bytes 4 | checksum 4
//     | meta | bulk
//
// Numbers count from 0. The checksum is the CRC-32C of everything before this
// record, its checksums left out, and of this record without its own. So a
// record fits behind exactly the records that it was written behind.
inline constexpr uint32_t kShardStateMagic = 0x54535953;  // "SYST"
inline constexpr size_t kShardStateFrameBytes = 24;
inline constexpr size_t kShardStateMetaMax = 256 << 10;
inline constexpr size_t kShardStateBulkMax = 1 << 20;
inline constexpr size_t kShardStateRecordMax =
    kShardStateFrameBytes + kShardStateMetaMax + kShardStateBulkMax;
// Of a state that has all rows, and of one that needs older files for them. A
// reader that knows the first alone refuses the second.
inline constexpr uint32_t kShardStateFormat = 2;
inline constexpr uint32_t kShardStateChainFormat = 3;
// ShardStateHeader.older, at most.
inline constexpr int kOlderStatesMax = 999;

// Takes the records of a shard's state, in order: to a disk, or to a peer. It
// may block, and bounds the time itself.
class ShardStateSink {
 public:
  virtual ~ShardStateSink() = default;
  // One record: `head`, then `bulk`, together at most kShardStateRecordMax
  // bytes. Both are borrowed until it returns. An error ends the export.
  virtual absl::Status Append(absl::string_view head,
                              absl::string_view bulk) = 0;
};

// Gives back the bytes that a sink has taken, which are checked by whoever
// reads them (ShardStateReader). It may block.
class ShardStateSource {
 public:
  virtual ~ShardStateSource() = default;
  // Reads up to `bytes`, fewer only at the end.
  virtual absl::StatusOr<size_t> Read(size_t bytes, char* out) = 0;
  // Passes over up to `bytes`, fewer only at the end. This one reads them.
  virtual absl::StatusOr<size_t> Skip(size_t bytes) {
    char some[4096];
    size_t passed = 0;
    while (passed < bytes) {
      const absl::StatusOr<size_t> read =
          Read(std::min(bytes - passed, sizeof(some)), some);
      if (!read.ok() || *read == 0) return read.ok() ? passed : read;
      passed += *read;
    }
    return passed;
  }
  // Called when all bytes were read or passed over: OK unless their checksum is
  // known to be another. `crc32c`: of those that were read, and of the others
  // as the records say.
  virtual absl::Status CheckWhole(uint32_t /*crc32c*/) const {
    return absl::OkStatus();
  }
  // The state of the same shard at an earlier cut, from which this one leaves
  // rows to be taken (ShardStateHeader.older). Errors: those of a file that is
  // opened; InvalidArgument: the source has no older ones.
  virtual absl::StatusOr<std::unique_ptr<ShardStateSource>> OpenOlder(
      uint64_t /*cut_id*/, uint64_t /*bytes*/, uint32_t /*crc32c*/) const {
    return absl::InvalidArgumentError(absl::StrCat(
        name(), ": the state needs older files, and is none itself"));
  }
  // For messages: a file's path, a peer.
  virtual std::string name() const = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_STATE_SHARD_STATE_STREAM_H_

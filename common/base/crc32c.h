#ifndef SYNCLINE_COMMON_BASE_CRC32C_H_
#define SYNCLINE_COMMON_BASE_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace syncline {

// CRC-32C (Castagnoli), as RFC 3720 section 12.1 defines it. Ours, because the
// packaged Abseil has none and RocksDB's is private; SSE4.2's instruction where
// the build has it, on three parts of long data at a time, a table elsewhere.

// The checksum of A followed by `data`, where `crc` is that of A. That of
// nothing is 0.
uint32_t ExtendCrc32c(uint32_t crc, absl::string_view data);

inline uint32_t Crc32c(absl::string_view data) { return ExtendCrc32c(0, data); }

// The checksum of A followed by B, which has `bytes` bytes, from those of A and
// B alone. As fast for any number of bytes.
uint32_t ConcatCrc32c(uint32_t a, uint32_t b, uint64_t bytes);

// The checksum of B, which has `bytes` bytes, where `whole` is that of A
// followed by B, and `a` that of A.
inline uint32_t Crc32cOfRest(uint32_t whole, uint32_t a, uint64_t bytes) {
  return whole ^ ConcatCrc32c(a, 0, bytes);
}

// ExtendCrc32c by the table, whatever the build; for tests.
uint32_t ExtendCrc32cPortable(uint32_t crc, absl::string_view data);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_CRC32C_H_

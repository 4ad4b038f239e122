#include "common/base/crc32c.h"

#include <array>
#include <cstddef>
#include <cstring>

#ifdef __SSE4_2__
#include <nmmintrin.h>
#endif

namespace syncline {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82f63b78;

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReversedPolynomial : 0);
    }
    table[i] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

}  // namespace

uint32_t ExtendCrc32cPortable(uint32_t crc, absl::string_view data) {
  crc = ~crc;
  for (const char c : data) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  }
  return ~crc;
}

#ifdef __SSE4_2__

uint32_t ExtendCrc32c(uint32_t crc, absl::string_view data) {
  uint64_t state = static_cast<uint32_t>(~crc);
  const char* p = data.data();
  const char* const end = p + data.size();
  for (; end - p >= 8; p += 8) {
    uint64_t word;
    std::memcpy(&word, p, sizeof(word));
    state = _mm_crc32_u64(state, word);
  }
  uint32_t tail = static_cast<uint32_t>(state);
  for (; p != end; ++p) tail = _mm_crc32_u8(tail, static_cast<uint8_t>(*p));
  return ~tail;
}

#else

uint32_t ExtendCrc32c(uint32_t crc, absl::string_view data) {
  return ExtendCrc32cPortable(crc, data);
}

#endif

}  // namespace syncline

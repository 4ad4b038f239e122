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

// Checksums are polynomials modulo that of CRC-32C, the coefficient of x^31 in
// the lowest bit. n bytes that follow multiply one by x^(8 n).
constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = uint32_t{1} << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kReversedPolynomial : 0);
  }
  return product;
}

// By k: x^(8 * 2^k).
constexpr std::array<uint32_t, 64> MakePowers() {
  std::array<uint32_t, 64> powers{};
  powers[0] = uint32_t{1} << (31 - 8);
  for (size_t k = 1; k < powers.size(); ++k) {
    powers[k] = Multiply(powers[k - 1], powers[k - 1]);
  }
  return powers;
}

constexpr std::array<uint32_t, 64> kPowers = MakePowers();

// x^(8 bytes).
constexpr uint32_t PowerOf(uint64_t bytes) {
  uint32_t power = uint32_t{1} << 31;
  for (size_t k = 0; bytes != 0; ++k, bytes >>= 1) {
    if ((bytes & 1) != 0) power = Multiply(power, kPowers[k]);
  }
  return power;
}

}  // namespace

uint32_t ConcatCrc32c(uint32_t a, uint32_t b, uint64_t bytes) {
  return Multiply(PowerOf(bytes), a) ^ b;
}

uint32_t ExtendCrc32cPortable(uint32_t crc, absl::string_view data) {
  crc = ~crc;
  for (const char c : data) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  }
  return ~crc;
}

#ifdef __SSE4_2__

namespace {

// The instruction ends three cycles after it begins, and one begins in each. So
// three parts of this size are computed at a time, each as if it was alone.
constexpr size_t kPartBytes = 4096;

// By byte of a state and its value: the state after kPartBytes zeros.
constexpr std::array<std::array<uint32_t, 256>, 4> MakeShifts() {
  std::array<std::array<uint32_t, 256>, 4> shifts{};
  for (size_t byte = 0; byte < 4; ++byte) {
    for (uint32_t bit = 1; bit < 256; bit <<= 1) {
      shifts[byte][bit] = Multiply(PowerOf(kPartBytes), bit << (8 * byte));
      for (uint32_t below = 1; below < bit; ++below) {
        shifts[byte][bit + below] = shifts[byte][bit] ^ shifts[byte][below];
      }
    }
  }
  return shifts;
}

constexpr std::array<std::array<uint32_t, 256>, 4> kShifts = MakeShifts();

uint32_t PassPart(uint64_t state) {
  return kShifts[0][state & 0xff] ^ kShifts[1][(state >> 8) & 0xff] ^
         kShifts[2][(state >> 16) & 0xff] ^ kShifts[3][(state >> 24) & 0xff];
}

uint64_t Load64(const char* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, absl::string_view data) {
  uint64_t state = static_cast<uint32_t>(~crc);
  const char* p = data.data();
  const char* const end = p + data.size();
  while (static_cast<size_t>(end - p) >= 3 * kPartBytes) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (const char* const stop = p + kPartBytes; p != stop; p += 8) {
      state = _mm_crc32_u64(state, Load64(p));
      second = _mm_crc32_u64(second, Load64(p + kPartBytes));
      third = _mm_crc32_u64(third, Load64(p + 2 * kPartBytes));
    }
    state = PassPart(PassPart(state) ^ second) ^ third;
    p += 2 * kPartBytes;
  }
  for (; end - p >= 8; p += 8) state = _mm_crc32_u64(state, Load64(p));
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

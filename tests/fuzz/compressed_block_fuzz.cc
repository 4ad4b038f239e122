// Goal: no bytes from a peer break the reading of a compressed block.
// Method: the first four bytes choose the number of elements, the rest is the
// block; what is accepted is read as a whole and piece by piece, to its last
// element, and must be the same both times.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "common/wire/compression.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint32_t count = 0;
  if (size < sizeof(count)) return 0;
  std::memcpy(&count, data, sizeof(count));
  count %= syncline::kCompressedElementsMax + 2;
  const auto block = syncline::CompressedBlock::Parse(
      {reinterpret_cast<const char*>(data) + sizeof(count),
       size - sizeof(count)},
      count);
  if (!block.ok()) return 0;
  SYNCLINE_CHECK(count > 0 && count <= syncline::kCompressedElementsMax);
  std::vector<float> whole(count);
  block->CopyTo(0, count, whole.data());
  const size_t step = 1 + data[0] * 16;
  std::vector<float> piece(step);
  for (size_t at = 0; at < count; at += step) {
    const size_t n = std::min<size_t>(step, count - at);
    block->CopyTo(at, n, piece.data());
    SYNCLINE_CHECK(std::memcmp(piece.data(), &whole[at], n * sizeof(float)) ==
                   0);
  }
  return 0;
}

#ifndef SYNCLINE_WORKER_PEERS_WIRE_FLOATS_H_
#define SYNCLINE_WORKER_PEERS_WIRE_FLOATS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>

#include "absl/types/span.h"
#include "common/base/element_type.h"
#include "common/update/dense_updater.h"
#include "common/update/float_source.h"

namespace syncline::worker {

// Copies `count` values as they are once they have travelled as `type`: rounded
// to it. kFloat32: as they are.
inline void CopyAsSent(ElementType type, const float* values, float* out,
                       size_t count) {
  if (type == ElementType::kFloat32) {
    std::copy_n(values, count, out);
    return;
  }
  uint16_t piece[DenseUpdater::kPieceElements];
  while (count > 0) {
    const size_t n = std::min(count, DenseUpdater::kPieceElements);
    Narrow(type, values, piece, n);
    Widen(type, piece, out, n);
    values += n;
    out += n;
    count -= n;
  }
}

// `count` elements of 16 bits, in the second half of the memory of so many
// floats, become these floats. Piece [i, i + n) is read before it is written,
// and ends at byte 4 (i + n), where the next one is read from byte
// 2 (count + i + n) on, which is not less.
inline void WidenInPlace(ElementType type, float* values, size_t count) {
  uint16_t piece[DenseUpdater::kPieceElements];
  const auto* const elements =
      reinterpret_cast<const uint8_t*>(values) + count * sizeof(uint16_t);
  for (size_t first = 0; first < count; first += std::size(piece)) {
    const size_t n = std::min(count - first, std::size(piece));
    std::memcpy(piece, elements + first * sizeof(uint16_t),
                n * sizeof(uint16_t));
    Widen(type, piece, values + first, n);
  }
}

// Writes `count` values as elements of `type` into a payload at `to`, from its
// element `first` on.
inline void CopyToWire(ElementType type, const float* values, size_t count,
                       void* to, size_t first) {
  auto* const out = static_cast<uint8_t*>(to) + first * ElementBytes(type);
  if (type == ElementType::kFloat32) {
    std::memcpy(out, values, count * sizeof(float));
  } else {
    Narrow(type, values, out, count);
  }
}

// A payload in memory of this rank, of elements of `type`.
class WirePayload final : public FloatSource {
 public:
  WirePayload(ElementType type, const void* values)
      : type_(type), values_(static_cast<const uint8_t*>(values)) {}
  void CopyTo(size_t first, size_t count, float* out) const override {
    Widen(type_, values_ + first * ElementBytes(type_), out, count);
  }

 private:
  const ElementType type_;
  const uint8_t* const values_;
};

// A tensor's gradient where the executor has it, as an owner would have it from
// a rank that sends it as `type`.
class TensorAsSent final : public FloatSource {
 public:
  TensorAsSent(ElementType type, absl::Span<const float> values)
      : type_(type), values_(values) {}
  void CopyTo(size_t first, size_t count, float* out) const override {
    CopyAsSent(type_, values_.data() + first, out, count);
  }

 private:
  const ElementType type_;
  const absl::Span<const float> values_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_PEERS_WIRE_FLOATS_H_

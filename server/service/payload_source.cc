#include "server/service/payload_source.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "common/base/element_type.h"
#include "common/update/dense_updater.h"

namespace syncline::ps {
namespace {

static_assert(std::endian::native == std::endian::little,
              "payloads are little-endian and used as they are");

// Values in float32.
class Float32Source : public PayloadSource {
 public:
  explicit Float32Source(PayloadView view) : view_(std::move(view)) {}
  void CopyTo(size_t first, size_t count, float* out) const override {
    view_.CopyTo(first * sizeof(float), count * sizeof(float), out);
  }
  void CopyBytes(size_t first, size_t count, void* out) const override {
    view_.CopyTo(first, count, out);
  }

 protected:
  const PayloadView view_;
};

// Values in 16 bits.
class NarrowSource final : public Float32Source {
 public:
  NarrowSource(PayloadView view, ElementType type)
      : Float32Source(std::move(view)), type_(type) {}
  void CopyTo(size_t first, size_t count, float* out) const override {
    uint16_t piece[DenseUpdater::kPieceElements];
    while (count > 0) {
      const size_t n = std::min(count, DenseUpdater::kPieceElements);
      view_.CopyTo(first * sizeof(uint16_t), n * sizeof(uint16_t), piece);
      Widen(type_, piece, out, n);
      first += n;
      out += n;
      count -= n;
    }
  }

 private:
  const ElementType type_;
};

}  // namespace

std::shared_ptr<const PayloadSource> MakePayloadSource(PayloadView view,
                                                       WireType type) {
  switch (type) {
    case WIRE_BFLOAT16:
      return std::make_shared<NarrowSource>(std::move(view),
                                            ElementType::kBfloat16);
    case WIRE_FLOAT16:
      return std::make_shared<NarrowSource>(std::move(view),
                                            ElementType::kFloat16);
    default:
      return std::make_shared<Float32Source>(std::move(view));
  }
}

}  // namespace syncline::ps

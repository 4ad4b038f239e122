#include <algorithm>

#include "worker/ops/without_gradient.h"

namespace syncline::worker {

// Known before training wherever shapes are; then nothing runs this.
absl::StatusOr<std::unique_ptr<Op>> MakeShape(const OpSpec& spec) {
  const Dims& dims = spec.input(0).dims;
  const int64_t rank = static_cast<int64_t>(dims.size());
  const auto clamped = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t begin = clamped(spec.node->Int("start", 0));
  const int64_t end = clamped(spec.node->Int("end", rank));
  return MakeOpWithoutGradient(
      [part = Dims(dims.begin() + begin, dims.begin() + std::max(begin, end))](
          const Op::Tensors& t) {
        std::copy(part.begin(), part.end(),
                  static_cast<int64_t*>(t.outputs[0]));
        return absl::OkStatus();
      });
}

}  // namespace syncline::worker

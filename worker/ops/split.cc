#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/loop.h"
#include "kernels/threads.h"
#include "worker/ops/axes.h"

namespace syncline::worker {
namespace {

// Where one output lies in a row of the input, in elements.
struct Part {
  int64_t begin = 0;
  int64_t width = 0;
};

class SplitOp : public Op {
 public:
  SplitOp(const AroundAxis& whole, size_t element_bytes,
          std::vector<Part> parts)
      : Op(Traits()),
        outer_(whole.outer),
        row_(whole.n * whole.inner),
        element_bytes_(element_bytes),
        parts_(std::move(parts)) {}

  absl::Status Forward(const Tensors& t) override {
    const char* const x = static_cast<const char*>(t.inputs[0]);
    for (size_t k = 0; k < parts_.size(); ++k) {
      if (t.outputs[k] == nullptr) continue;
      const size_t bytes = parts_[k].width * element_bytes_;
      char* const y = static_cast<char*>(t.outputs[k]);
      ParallelForRows(outer_, parts_[k].width, [&](int64_t begin, int64_t end) {
        for (int64_t o = begin; o < end; ++o) {
          std::copy_n(x + (o * row_ + parts_[k].begin) * element_bytes_, bytes,
                      y + o * bytes);
        }
      });
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors&, const Gradients& g) override {
    for (size_t k = 0; k < parts_.size(); ++k) {
      const float* const dy = g.outputs[k];
      if (dy == nullptr && g.accumulate(0)) continue;
      const int64_t width = parts_[k].width;
      ParallelForRows(outer_, width, [&](int64_t begin, int64_t end) {
        for (int64_t o = begin; o < end; ++o) {
          float* const dx = g.in(0) + o * row_ + parts_[k].begin;
          if (dy == nullptr) {
            std::fill_n(dx, width, 0.0f);
          } else {
            Emit(width, g.accumulate(0), dx,
                 [=](int64_t i) { return dy[o * width + i]; });
          }
        }
      });
    }
    return absl::OkStatus();
  }

 private:
  const int64_t outer_;
  const int64_t row_;
  const size_t element_bytes_;
  const std::vector<Part> parts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeSplit(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t axis,
      ResolveAxis(spec.node->Int("axis", 0), spec.input(0).dims.size()));
  const AroundAxis whole = SplitAt(spec.input(0).dims, axis);
  std::vector<Part> parts;
  int64_t end = 0;
  for (size_t k = 0; k < spec.outputs.size(); ++k) {
    // An output that is left out has a shape all the same, but nobody says it.
    if (!spec.output(k).present) {
      return absl::InvalidArgumentError(
          absl::StrCat("output ", k, " is left out; name it"));
    }
    const int64_t n = spec.output(k).dims[axis];
    parts.push_back({end * whole.inner, n * whole.inner});
    end += n;
  }
  if (end != whole.n) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the outputs' dimensions add up to ", end, ", not ", whole.n));
  }
  return std::make_unique<SplitOp>(whole, DTypeBytes(spec.input(0).dtype),
                                   std::move(parts));
}

}  // namespace syncline::worker

#include "worker/ops/indexed.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/loop.h"

namespace syncline {
namespace {

class IndexedOp : public Op {
 public:
  // The workspace has where each run begins.
  IndexedOp(const OpSpec& spec, IndexedShape shape)
      : Op({.workspace_bytes =
                static_cast<int64_t>(shape.runs * sizeof(int64_t))}),
        shape_(std::move(shape)),
        bytes_(shape_.run_length * DTypeBytes(spec.input(0).dtype)),
        element_bytes_(DTypeBytes(spec.input(0).dtype)),
        data_count_(spec.input(0).count()),
        narrow_(spec.input(1).dtype == DType::kInt32),
        widened_(narrow_ ? spec.input(1).count() : 0) {}

  absl::Status Forward(const Tensors& t) override {
    const int64_t* const indices = Indices(t);
    auto* const begins = static_cast<int64_t*>(t.workspace);
    const char* const x = static_cast<const char*>(t.inputs[0]);
    char* y = static_cast<char*>(t.outputs[0]);
    for (int64_t i = 0; i < shape_.runs; ++i, y += bytes_) {
      int64_t bad = 0;
      begins[i] = shape_.begin(indices, i, &bad);
      if (begins[i] < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("index ", indices[bad], ", number ", bad,
                         ", is outside its dimension"));
      }
      std::memcpy(y, x + begins[i] * element_bytes_, bytes_);
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (!g.accumulate(0)) std::fill_n(g.in(0), data_count_, 0.0f);
    const auto* const begins = static_cast<const int64_t*>(t.workspace);
    const float* dy = g.out();
    for (int64_t i = 0; i < shape_.runs; ++i, dy += shape_.run_length) {
      Emit(shape_.run_length, /*accumulate=*/true, g.in(0) + begins[i],
           [=](int64_t k) { return dy[k]; });
    }
    return absl::OkStatus();
  }

 private:
  const int64_t* Indices(const Tensors& t) {
    if (!narrow_) return static_cast<const int64_t*>(t.inputs[1]);
    const auto* const from = static_cast<const int32_t*>(t.inputs[1]);
    std::copy_n(from, widened_.size(), widened_.begin());
    return widened_.data();
  }

  const IndexedShape shape_;
  const size_t bytes_;
  const size_t element_bytes_;
  const int64_t data_count_;
  const bool narrow_;
  std::vector<int64_t> widened_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeIndexed(const OpSpec& spec,
                                                IndexedShape shape) {
  const DType dtype = spec.input(1).dtype;
  if (dtype != DType::kInt64 && dtype != DType::kInt32) {
    return absl::InvalidArgumentError(absl::StrCat(
        "indices are ", DTypeName(dtype), "; they must be int32 or int64"));
  }
  return std::make_unique<IndexedOp>(spec, std::move(shape));
}

}  // namespace syncline

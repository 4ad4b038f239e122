#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/ops/tensor/strided_copy.h"

namespace syncline::worker {
namespace {

struct TriluShape {
  int64_t matrices = 1;
  int64_t rows = 1;
  int64_t columns = 1;
  bool upper = true;
  int64_t k = 0;  // diagonals above the main one

  // Columns [begin, end) of a row are kept.
  int64_t Begin(int64_t row) const {
    return upper ? std::clamp<int64_t>(row + k, 0, columns) : 0;
  }
  int64_t End(int64_t row) const {
    return upper ? columns : std::clamp<int64_t>(row + k + 1, 0, columns);
  }
};

class TriluOp : public Op {
 public:
  TriluOp(const TriluShape& shape, size_t element_bytes)
      : Op({.in_place_input = 0, .gradient_in_place = true}),
        shape_(shape),
        element_bytes_(element_bytes) {}

  absl::Status Forward(const Tensors& t) override {
    switch (element_bytes_) {
      case 1:
        Keep<uint8_t>(t);
        break;
      case 4:
        Keep<uint32_t>(t);
        break;
      default:
        Keep<uint64_t>(t);
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors&, const Gradients& g) override {
    const float* const dy = g.out();
    float* const dx = g.in(0);
    const bool accumulate = g.accumulate(0);
    ForEachElement([=](int64_t i, bool kept) {
      const float d = kept ? dy[i] : 0.0f;
      dx[i] = accumulate ? dx[i] + d : d;
    });
    return absl::OkStatus();
  }

 private:
  template <typename T>
  void Keep(const Tensors& t) const {
    const T* const x = static_cast<const T*>(t.inputs[0]);
    T* const y = static_cast<T*>(t.outputs[0]);
    ForEachElement([=](int64_t i, bool kept) { y[i] = kept ? x[i] : T(0); });
  }

  template <typename Visit>
  void ForEachElement(Visit visit) const {
    int64_t at = 0;
    for (int64_t m = 0; m < shape_.matrices; ++m) {
      for (int64_t r = 0; r < shape_.rows; ++r, at += shape_.columns) {
        const int64_t begin = shape_.Begin(r);
        const int64_t end = shape_.End(r);
        for (int64_t c = 0; c < shape_.columns; ++c) {
          visit(at + c, c >= begin && c < end);
        }
      }
    }
  }

  const TriluShape shape_;
  const size_t element_bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeTrilu(const OpSpec& spec) {
  const Dims& dims = spec.input(0).dims;
  if (dims.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input 0 is ", DimsToString(dims), "; it must be a matrix or more"));
  }
  TriluShape shape;
  shape.columns = dims.back();
  shape.rows = dims[dims.size() - 2];
  shape.matrices =
      ElementCount(absl::MakeConstSpan(dims).first(dims.size() - 2));
  shape.upper = spec.node->Int("upper", 1) != 0;
  if (spec.input(1).present) {
    SYNCLINE_ASSIGN_OR_RETURN(const std::vector<int64_t> k,
                              ConstantInts(spec.input(1), "k"));
    if (k.size() != 1)
      return absl::InvalidArgumentError("k must be one number");
    // Beyond the matrix all are the same.
    const int64_t most = shape.rows + shape.columns;
    shape.k = std::clamp(k[0], -most, most);
  }
  return std::make_unique<TriluOp>(shape, DTypeBytes(spec.input(0).dtype));
}

}  // namespace syncline::worker

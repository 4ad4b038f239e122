#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/binary_loop.h"
#include "kernels/elementwise/broadcast.h"
#include "kernels/elementwise/strided.h"
#include "kernels/threads.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

// The three inputs under the result.
using Walk = Strided<3>;

// Element i of the operand with this stride.
template <typename T>
T At(const T* values, int64_t i, int64_t stride) {
  return values[i * stride];
}

class WhereOp : public Op {
 public:
  WhereOp(const OpSpec& spec, Walk walk)
      : Op({.backward_inputs = 0b001}),
        walk_(std::move(walk)),
        element_bytes_(DTypeBytes(spec.input(1).dtype)),
        chosen_(OverCondition(spec, 1)),
        other_(OverCondition(spec, 2)) {}

  absl::Status Forward(const Tensors& t) override {
    switch (element_bytes_) {
      case 1:
        Select<uint8_t>(t);
        break;
      case 4:
        Select<uint32_t>(t);
        break;
      default:
        Select<uint64_t>(t);
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (g.in(2) != nullptr) Add<2, false>(other_, t, g);
    if (g.in(1) != nullptr) Add<1, true>(chosen_, t, g);
    return absl::OkStatus();
  }

 private:
  template <typename T>
  void Select(const Tensors& t) const {
    const auto* const condition = static_cast<const uint8_t*>(t.inputs[0]);
    const T* const a = static_cast<const T*>(t.inputs[1]);
    const T* const b = static_cast<const T*>(t.inputs[2]);
    T* const y = static_cast<T*>(t.outputs[0]);
    const int64_t n = walk_.inner();
    const auto [sc, sa, sb] = walk_.inner_strides();
    const int64_t by_c = sc, by_a = sa, by_b = sb;
    const auto select = [=](int64_t o, const Walk::Offsets& at) {
      const uint8_t* const c = condition + at[0];
      const T* const p = a + at[1];
      const T* const q = b + at[2];
      for (int64_t i = 0; i < n; ++i) {
        y[o + i] = At(c, i, by_c) != 0 ? At(p, i, by_a) : At(q, i, by_b);
      }
    };
    const int64_t parts = walk_.outermost();
    ParallelForRows(parts, parts == 0 ? 0 : walk_.count() / parts,
                    [&](int64_t begin, int64_t end) {
                      walk_.ForEachRowIn(begin, end, select);
                    });
  }

  // An operand and the condition under the result.
  static Broadcast OverCondition(const OpSpec& spec, size_t input) {
    return MakeBroadcastUnder(spec.input(input).dims, spec.input(0).dims,
                              spec.output(0).dims);
  }

  // The gradient of an operand: dy where it was chosen, else zero.
  template <size_t kInput, bool kChosen>
  static void Add(const Broadcast& s, const Tensors& t, const Gradients& g) {
    const auto* const condition = static_cast<const uint8_t*>(t.inputs[0]);
    const float* const dy = g.out();
    BinaryGradient(s, Side::kA, g.accumulate(kInput), g.in(kInput),
                   [=](int64_t o, int64_t, int64_t c) {
                     return (condition[c] != 0) == kChosen ? dy[o] : 0.0f;
                   });
  }

  const Walk walk_;
  const size_t element_bytes_;
  const Broadcast chosen_, other_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeWhere(const OpSpec& spec) {
  if (spec.input(0).dtype != DType::kBool ||
      spec.input(1).dtype != spec.input(2).dtype) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the inputs are ", DTypeName(spec.input(0).dtype), ", ",
        DTypeName(spec.input(1).dtype), " and ", DTypeName(spec.input(2).dtype),
        "; they must be bool and two of one type"));
  }
  Dims out = spec.input(0).dims;
  for (size_t i = 1; i < 3; ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(out, BroadcastDims(out, spec.input(i).dims));
  }
  return std::make_unique<WhereOp>(
      spec, Walk(out, {BroadcastStrides(spec.input(0).dims, out),
                       BroadcastStrides(spec.input(1).dims, out),
                       BroadcastStrides(spec.input(2).dims, out)}));
}

}  // namespace syncline::worker

// Comparisons and logic: results are bool, and no gradient flows.

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/broadcast.h"
#include "kernels/elementwise/strided.h"
#include "worker/ops/without_gradient.h"

namespace syncline::worker {
namespace {

enum class Comparison { kEqual, kLess, kLessOrEqual, kAnd, kOr, kXor };

using Walk = Strided<2>;

using Kernel = void(const Walk& walk, const void* a, const void* b, uint8_t* y);

template <typename T, Comparison kComparison>
void Run(const Walk& walk, const void* a, const void* b, uint8_t* y) {
  const T* const p = static_cast<const T*>(a);
  const T* const q = static_cast<const T*>(b);
  const int64_t n = walk.inner();
  const int64_t by_p = walk.inner_strides()[0];
  const int64_t by_q = walk.inner_strides()[1];
  walk.ForEachRow([=](int64_t o, const Walk::Offsets& at) {
    for (int64_t i = 0; i < n; ++i) {
      const T left = p[at[0] + i * by_p];
      const T right = q[at[1] + i * by_q];
      if constexpr (kComparison == Comparison::kEqual) {
        y[o + i] = left == right;
      } else if constexpr (kComparison == Comparison::kLess) {
        y[o + i] = left < right;
      } else if constexpr (kComparison == Comparison::kLessOrEqual) {
        y[o + i] = left <= right;
      } else if constexpr (kComparison == Comparison::kAnd) {
        y[o + i] = left != 0 && right != 0;
      } else if constexpr (kComparison == Comparison::kXor) {
        y[o + i] = (left != 0) != (right != 0);
      } else {
        y[o + i] = left != 0 || right != 0;
      }
    }
  });
}

template <typename T>
Kernel* KernelOf(Comparison comparison) {
  switch (comparison) {
    case Comparison::kEqual:
      return Run<T, Comparison::kEqual>;
    case Comparison::kLess:
      return Run<T, Comparison::kLess>;
    case Comparison::kLessOrEqual:
      return Run<T, Comparison::kLessOrEqual>;
    case Comparison::kAnd:
      return Run<T, Comparison::kAnd>;
    case Comparison::kOr:
      return Run<T, Comparison::kOr>;
    case Comparison::kXor:
      return Run<T, Comparison::kXor>;
  }
  return nullptr;
}

Kernel* KernelFor(DType dtype, Comparison comparison) {
  switch (dtype) {
    case DType::kFloat32:
      return KernelOf<float>(comparison);
    case DType::kFloat64:
      return KernelOf<double>(comparison);
    case DType::kInt32:
      return KernelOf<int32_t>(comparison);
    case DType::kInt64:
      return KernelOf<int64_t>(comparison);
    case DType::kBool:
    case DType::kUint8:
      return KernelOf<uint8_t>(comparison);
  }
  return nullptr;
}

// Two inputs of one type, broadcast, to bool; with `swapped` the second is
// compared with the first. No gradient. And, Or and Xor take bool, the others
// any type, Equal bool too. NaN equals and orders nothing.
absl::StatusOr<std::unique_ptr<Op>> MakeComparison(const OpSpec& spec,
                                                   Comparison comparison,
                                                   bool swapped = false) {
  const size_t left = swapped ? 1 : 0;
  const TensorType& a = spec.input(left);
  const TensorType& b = spec.input(1 - left);
  if (a.dtype != b.dtype) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the inputs are ", DTypeName(spec.input(0).dtype), " and ",
        DTypeName(spec.input(1).dtype), "; they must be of one type"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const Dims out, BroadcastDims(a.dims, b.dims));
  return MakeOpWithoutGradient(
      [walk = Walk(
           out, {BroadcastStrides(a.dims, out), BroadcastStrides(b.dims, out)}),
       kernel = KernelFor(a.dtype, comparison), left](const Op::Tensors& t) {
        kernel(walk, t.inputs[left], t.inputs[1 - left],
               static_cast<uint8_t*>(t.outputs[0]));
        return absl::OkStatus();
      });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeEqual(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kEqual);
}

absl::StatusOr<std::unique_ptr<Op>> MakeLess(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kLess);
}

absl::StatusOr<std::unique_ptr<Op>> MakeLessOrEqual(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kLessOrEqual);
}

absl::StatusOr<std::unique_ptr<Op>> MakeGreater(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kLess, /*swapped=*/true);
}

absl::StatusOr<std::unique_ptr<Op>> MakeGreaterOrEqual(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kLessOrEqual, /*swapped=*/true);
}

absl::StatusOr<std::unique_ptr<Op>> MakeAnd(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kAnd);
}

absl::StatusOr<std::unique_ptr<Op>> MakeOr(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kOr);
}

absl::StatusOr<std::unique_ptr<Op>> MakeXor(const OpSpec& spec) {
  return MakeComparison(spec, Comparison::kXor);
}

absl::StatusOr<std::unique_ptr<Op>> MakeNot(const OpSpec& spec) {
  return MakeOpWithoutGradient(
      [count = spec.input(0).count()](const Op::Tensors& t) {
        const auto* const x = static_cast<const uint8_t*>(t.inputs[0]);
        auto* const y = static_cast<uint8_t*>(t.outputs[0]);
        for (int64_t i = 0; i < count; ++i) y[i] = x[i] == 0;
        return absl::OkStatus();
      });
}

}  // namespace syncline::worker

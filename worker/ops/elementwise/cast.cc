#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/elementwise/loop.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

// Converts as C++ does. Where C++ leaves the result undefined, it is the
// nearest value of the type; NaN becomes 0.
template <typename To, typename From>
To Convert(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_floating_point_v<From> &&
                       std::is_integral_v<To>) {
    // The largest To may round up as a From; at and above that it is reached.
    constexpr From kAbove = static_cast<From>(std::numeric_limits<To>::max());
    constexpr From kLeast = static_cast<From>(std::numeric_limits<To>::min());
    if (std::isnan(value)) return 0;
    if (value >= kAbove) return std::numeric_limits<To>::max();
    if (value <= kLeast) return std::numeric_limits<To>::min();
    return static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

using Kernel = void(int64_t count, const void* from, void* to);

template <typename From, typename To>
void Run(int64_t count, const void* from, void* to) {
  const From* const x = static_cast<const From*>(from);
  To* const y = static_cast<To*>(to);
  for (int64_t i = 0; i < count; ++i) y[i] = Convert<To>(x[i]);
}

template <typename From>
Kernel* KernelTo(DType to) {
  switch (to) {
    case DType::kFloat32:
      return Run<From, float>;
    case DType::kFloat64:
      return Run<From, double>;
    case DType::kInt32:
      return Run<From, int32_t>;
    case DType::kInt64:
      return Run<From, int64_t>;
    case DType::kBool:
      return Run<From, bool>;
    case DType::kUint8:
      return Run<From, uint8_t>;
  }
  return nullptr;
}

Kernel* KernelFor(DType from, DType to) {
  switch (from) {
    case DType::kFloat32:
      return KernelTo<float>(to);
    case DType::kFloat64:
      return KernelTo<double>(to);
    case DType::kInt32:
      return KernelTo<int32_t>(to);
    case DType::kInt64:
      return KernelTo<int64_t>(to);
    case DType::kBool:
      return KernelTo<bool>(to);
    case DType::kUint8:
      return KernelTo<uint8_t>(to);
  }
  return nullptr;
}

class CastOp : public Op {
 public:
  CastOp(int64_t count, Kernel* kernel)
      : Op({.gradient_in_place = true}), count_(count), kernel_(kernel) {}

  absl::Status Forward(const Tensors& t) override {
    kernel_(count_, t.inputs[0], t.outputs[0]);
    return absl::OkStatus();
  }

  // Only a cast from float32 to float32 has a gradient.
  absl::Status Backward(const Tensors&, const Gradients& g) override {
    const float* const dy = g.out();
    Emit(count_, g.accumulate(0), g.in(0), [=](int64_t i) { return dy[i]; });
    return absl::OkStatus();
  }

 private:
  const int64_t count_;
  Kernel* const kernel_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeCast(const OpSpec& spec) {
  return std::make_unique<CastOp>(
      spec.input(0).count(),
      KernelFor(spec.input(0).dtype, spec.output(0).dtype));
}

}  // namespace syncline::worker

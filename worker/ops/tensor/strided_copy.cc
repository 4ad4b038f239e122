#include "worker/ops/tensor/strided_copy.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/strided_copy_kernels.h"
#include "kernels/elementwise/broadcast.h"

namespace syncline::worker {
namespace {

class StridedCopyOp : public Op {
 public:
  StridedCopyOp(const OpSpec& spec, const StridedCopyKernels& kernels,
                const Strided<1>& walk, bool each_once,
                const std::optional<Broadcast>& repeats)
      : Op(Traits()),
        kernels_(kernels),
        walk_(walk),
        each_once_(each_once),
        repeats_(repeats),
        element_bytes_(DTypeBytes(spec.input(0).dtype)),
        input_count_(spec.input(0).count()) {}

  absl::Status Forward(const Tensors& t) override {
    kernels_.copy(*t.stream, walk_, element_bytes_, t.inputs[0], t.outputs[0]);
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const bool accumulate = g.accumulate(0);
    if (each_once_ && !accumulate) {
      kernels_.scatter(*t.stream, walk_, g.out(), g.in(0));
    } else if (repeats_.has_value()) {
      kernels_.add_repeated(*t.stream, *repeats_, g.out(), accumulate, g.in(0));
    } else {
      const Floats dx = g.in(0);
      if (!accumulate) t.stream->Clear(dx, dx.Bytes(input_count_));
      kernels_.add(*t.stream, walk_, g.out(), dx);
    }
    return absl::OkStatus();
  }

 private:
  const StridedCopyKernels kernels_;
  const Strided<1> walk_;
  const bool each_once_;
  const std::optional<Broadcast> repeats_;
  const size_t element_bytes_;
  const int64_t input_count_;
};

absl::StatusOr<std::unique_ptr<Op>> MakeCopy(
    const OpSpec& spec, const Strided<1>& walk, bool each_once,
    const std::optional<Broadcast>& repeats) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireOneType(0b1));
  const StridedCopyKernels* const kernels = spec.kernels().strided_copy;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels->copy));
  if (spec.WantsAnyGradient()) {
    SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels->scatter, kernels->add,
                                                 kernels->add_repeated));
  }
  return std::make_unique<StridedCopyOp>(spec, *kernels, walk, each_once,
                                         repeats);
}

template <typename T>
std::vector<int64_t> Widened(const TensorType& input) {
  const T* const values = static_cast<const T*>(input.constant);
  return std::vector<int64_t>(values, values + input.count());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeStridedCopy(const OpSpec& spec,
                                                    const Strided<1>& walk,
                                                    bool each_once) {
  return MakeCopy(spec, walk, each_once, std::nullopt);
}

absl::StatusOr<std::unique_ptr<Op>> MakeRepeatedCopy(const OpSpec& spec) {
  const Dims& in = spec.input(0).dims;
  const Dims& out = spec.output(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(const Broadcast repeats, MakeBroadcast(out, in));
  return MakeCopy(spec, Strided<1>(out, {BroadcastStrides(in, out)}),
                  /*each_once=*/false, repeats);
}

absl::StatusOr<std::vector<int64_t>> ConstantInts(const TensorType& input,
                                                  absl::string_view what) {
  if (input.constant != nullptr && input.dtype == DType::kInt64) {
    return Widened<int64_t>(input);
  }
  if (input.constant != nullptr && input.dtype == DType::kInt32) {
    return Widened<int32_t>(input);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " must be constant, of type int64 or int32"));
}

}  // namespace syncline::worker

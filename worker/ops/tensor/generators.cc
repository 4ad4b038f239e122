// Tensors that are made of shapes, bounds and positions, and of no elements.

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/generator_kernels.h"
#include "kernels/device/kernel_table.h"
#include "worker/ops/axes.h"
#include "worker/ops/without_gradient.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeConstantOfShape(const OpSpec& spec) {
  const auto value = spec.node->attributes.find("value");
  std::string bytes(sizeof(float), '\0');  // 0 of float32
  if (value != spec.node->attributes.end()) {
    bytes = std::get<ConstantTensor>(value->second).bytes;
  }
  if (bytes.size() != DTypeBytes(spec.output(0).dtype)) {
    return absl::InvalidArgumentError("value must be one element");
  }
  AnyElement element = {.bytes = bytes.size()};
  std::copy(bytes.begin(), bytes.end(), element.value.begin());
  const GeneratorKernels* const kernels = spec.kernels().generator;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels->fill));
  return MakeOpWithoutGradient([fill = kernels->fill,
                                count = spec.output(0).count(),
                                element](const Op::Tensors& t) {
    fill(*t.stream, element, count, t.outputs[0]);
    return absl::OkStatus();
  });
}

// Indices out of range are all off.
absl::StatusOr<std::unique_ptr<Op>> MakeOneHot(const OpSpec& spec) {
  if (spec.input(2).count() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("values are ", DimsToString(spec.input(2).dims),
                     "; they must be two, off and on"));
  }
  const Dims& out = spec.output(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t at, ResolveAxis(spec.node->Int("axis", -1), out.size()));
  const AroundAxis around = SplitAt(out, at);
  const OneHotShape shape = {.outer = around.outer,
                             .depth = around.n,
                             .inner = around.inner,
                             .index_type = spec.input(0).dtype,
                             .element_bytes = DTypeBytes(spec.input(2).dtype)};
  const GeneratorKernels* const kernels = spec.kernels().generator;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels->one_hot));
  return MakeOpWithoutGradient(
      [one_hot = kernels->one_hot, shape](const Op::Tensors& t) {
        one_hot(*t.stream, shape, t.inputs[0], t.inputs[2], t.outputs[0]);
        return absl::OkStatus();
      });
}

// How many there are, the shapes have said: `limit` is known before training.
absl::StatusOr<std::unique_ptr<Op>> MakeRange(const OpSpec& spec) {
  for (size_t i = 0; i < 3; ++i) {
    if (spec.input(i).count() == 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("input ", i, " is ", DimsToString(spec.input(i).dims),
                     "; it must be one number"));
  }
  const DType dtype = spec.output(0).dtype;
  if (dtype != DType::kFloat32 && dtype != DType::kInt64 &&
      dtype != DType::kInt32) {
    return absl::InvalidArgumentError(
        absl::StrCat("numbers of ", DTypeName(dtype), " are not counted"));
  }
  const GeneratorKernels* const kernels = spec.kernels().generator;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels->range));
  return MakeOpWithoutGradient(
      [range = kernels->range, dtype,
       count = spec.output(0).count()](const Op::Tensors& t) {
        range(*t.stream, dtype, count, t.inputs[0], t.inputs[2], t.outputs[0]);
        return absl::OkStatus();
      });
}

namespace {

// Integers that are known when the plan is made.
absl::StatusOr<std::unique_ptr<Op>> MakeIntegers(
    const OpSpec& spec, absl::Span<const int64_t> values) {
  SYNCLINE_ASSIGN_OR_RETURN(DeviceMemory kept, Upload(*spec.device, values));
  return MakeOpWithoutGradient([kept = std::move(kept)](const Op::Tensors& t) {
    t.stream->Copy(t.outputs[0], kept.data(), kept.bytes());
    return absl::OkStatus();
  });
}

}  // namespace

// Known before training wherever shapes are; then nothing runs this.
absl::StatusOr<std::unique_ptr<Op>> MakeShape(const OpSpec& spec) {
  const Dims& dims = spec.input(0).dims;
  const int64_t rank = static_cast<int64_t>(dims.size());
  const auto clamped = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t begin = clamped(spec.node->Int("start", 0));
  const int64_t end = clamped(spec.node->Int("end", rank));
  return MakeIntegers(spec, absl::MakeConstSpan(dims).subspan(
                                begin, std::max<int64_t>(end - begin, 0)));
}

absl::StatusOr<std::unique_ptr<Op>> MakeSize(const OpSpec& spec) {
  const int64_t count = spec.input(0).count();
  return MakeIntegers(spec, absl::MakeConstSpan(&count, 1));
}

}  // namespace syncline::worker

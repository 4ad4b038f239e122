// Tensors that are made of shapes, bounds and positions, and of no elements.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/ops/axes.h"
#include "worker/ops/without_gradient.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeConstantOfShape(const OpSpec& spec) {
  const auto value = spec.node->attributes.find("value");
  std::string element(sizeof(float), '\0');  // 0 of float32
  if (value != spec.node->attributes.end()) {
    element = std::get<ConstantTensor>(value->second).bytes;
  }
  if (element.size() != DTypeBytes(spec.output(0).dtype)) {
    return absl::InvalidArgumentError("value must be one element");
  }
  return MakeOpWithoutGradient(
      [count = spec.output(0).count(), element](const Op::Tensors& t) {
        char* y = static_cast<char*>(t.outputs[0]);
        for (int64_t i = 0; i < count; ++i, y += element.size()) {
          std::memcpy(y, element.data(), element.size());
        }
        return absl::OkStatus();
      });
}

namespace {

struct OneHotShape {
  AroundAxis axis;  // of the output; n is the depth
  size_t element_bytes = 4;
};

// Indices out of range are all off.
template <typename Index>
std::unique_ptr<Op> MakeOneHotOf(const OneHotShape& s) {
  return MakeOpWithoutGradient([=](const Op::Tensors& t) {
    const Index* indices = static_cast<const Index*>(t.inputs[0]);
    const char* const off = static_cast<const char*>(t.inputs[2]);
    const char* const on = off + s.element_bytes;
    char* const y = static_cast<char*>(t.outputs[0]);
    const double depth = static_cast<double>(s.axis.n);
    for (int64_t o = 0; o < s.axis.outer; ++o) {
      for (int64_t i = 0; i < s.axis.inner; ++i, ++indices) {
        double index = static_cast<double>(*indices);
        if (index < 0) index += depth;
        for (int64_t k = 0; k < s.axis.n; ++k) {
          const int64_t at = (o * s.axis.n + k) * s.axis.inner + i;
          const bool hit = index == static_cast<double>(k);
          std::memcpy(y + at * s.element_bytes, hit ? on : off,
                      s.element_bytes);
        }
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeOneHot(const OpSpec& spec) {
  if (spec.input(2).count() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("values are ", DimsToString(spec.input(2).dims),
                     "; they must be two, off and on"));
  }
  const Dims& out = spec.output(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t at, ResolveAxis(spec.node->Int("axis", -1), out.size()));
  OneHotShape shape;
  shape.axis = SplitAt(out, at);
  shape.element_bytes = DTypeBytes(spec.input(2).dtype);
  switch (spec.input(0).dtype) {
    case DType::kInt64:
      return MakeOneHotOf<int64_t>(shape);
    case DType::kInt32:
      return MakeOneHotOf<int32_t>(shape);
    case DType::kFloat32:
      return MakeOneHotOf<float>(shape);
    case DType::kFloat64:
      return MakeOneHotOf<double>(shape);
    default:
      return MakeOneHotOf<uint8_t>(shape);
  }
}

namespace {

template <typename T>
std::unique_ptr<Op> MakeRangeOf(int64_t count) {
  return MakeOpWithoutGradient([count](const Op::Tensors& t) {
    const T start = *static_cast<const T*>(t.inputs[0]);
    const T delta = *static_cast<const T*>(t.inputs[2]);
    T* const y = static_cast<T*>(t.outputs[0]);
    for (int64_t i = 0; i < count; ++i) {
      y[i] = static_cast<T>(start + static_cast<T>(i) * delta);
    }
    return absl::OkStatus();
  });
}

}  // namespace

// How many there are, the shapes have said: `limit` is known before training.
absl::StatusOr<std::unique_ptr<Op>> MakeRange(const OpSpec& spec) {
  for (size_t i = 0; i < 3; ++i) {
    if (spec.input(i).count() == 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("input ", i, " is ", DimsToString(spec.input(i).dims),
                     "; it must be one number"));
  }
  const int64_t count = spec.output(0).count();
  switch (spec.output(0).dtype) {
    case DType::kFloat32:
      return MakeRangeOf<float>(count);
    case DType::kInt64:
      return MakeRangeOf<int64_t>(count);
    case DType::kInt32:
      return MakeRangeOf<int32_t>(count);
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "numbers of ", DTypeName(spec.output(0).dtype), " are not counted"));
  }
}

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

absl::StatusOr<std::unique_ptr<Op>> MakeSize(const OpSpec& spec) {
  return MakeOpWithoutGradient(
      [count = spec.input(0).count()](const Op::Tensors& t) {
        *static_cast<int64_t*>(t.outputs[0]) = count;
        return absl::OkStatus();
      });
}

}  // namespace syncline::worker

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/loop.h"
#include "worker/ops/axes.h"
#include "worker/ops/tensor/strided_copy.h"

namespace syncline::worker {
namespace {

// One axis of the result. Negative pads have taken from the input before the
// positive ones repeat what is left of it.
struct PaddedAxis {
  // Where in the input's axis each index of the result's is from; -1: nowhere,
  // it is the constant.
  std::vector<int64_t> from;
  // The part of the result that is the input, unbroken.
  int64_t begin = 0;
  int64_t end = 0;
};

// `i` counts from the first of `n` elements that are left, and may be outside.
absl::StatusOr<int64_t> Repeated(absl::string_view mode, int64_t i, int64_t n) {
  if (i >= 0 && i < n) return i;
  if (mode == "constant") return int64_t{-1};
  if (n == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("mode \"", mode, "\" has no element to repeat"));
  }
  if (mode == "edge") return std::clamp<int64_t>(i, 0, n - 1);
  if (mode == "wrap") return ((i % n) + n) % n;
  const int64_t round = std::max<int64_t>(2 * (n - 1), 1);
  const int64_t at = ((i % round) + round) % round;
  return std::min(at, round - at);
}

// `n` elements of the input become `count`.
absl::StatusOr<PaddedAxis> PadAxis(absl::string_view mode, int64_t n,
                                   int64_t before, int64_t after,
                                   int64_t count) {
  const int64_t first = std::max<int64_t>(-before, 0);
  const int64_t left = n - first - std::max<int64_t>(-after, 0);
  if (left < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("pads ", before, " and ", after, " take more than the ", n,
                     " elements of a dimension"));
  }
  PaddedAxis axis;
  axis.begin = std::max<int64_t>(before, 0);
  axis.end = axis.begin + left;
  const int64_t padded = axis.end + std::max<int64_t>(after, 0);
  if (padded != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("pads ", before, " and ", after, " make ", padded, " of ",
                     n, " elements, but its output has ", count));
  }
  for (int64_t i = 0; i < count; ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(const int64_t at,
                              Repeated(mode, i - axis.begin, left));
    axis.from.push_back(at < 0 ? -1 : first + at);
  }
  return axis;
}

class PadOp : public Op {
 public:
  PadOp(const OpSpec& spec, std::vector<PaddedAxis> axes)
      : Op(Traits()),
        axes_(std::move(axes)),
        element_bytes_(DTypeBytes(spec.input(0).dtype)),
        input_count_(spec.input(0).count()),
        strides_(DenseStrides(spec.input(0).dims)) {
    if (!axes_.empty()) return;  // else a scalar, seen as one element in a row
    axes_.push_back({{0}, 0, 1});
    strides_.push_back(1);
  }

  absl::Status Forward(const Tensors& t) override {
    switch (element_bytes_) {
      case 1:
        Copy<uint8_t>(t);
        break;
      case 4:
        Copy<uint32_t>(t);
        break;
      default:
        Copy<uint64_t>(t);
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors&, const Gradients& g) override {
    if (!g.accumulate(0)) std::fill_n(g.in(0), input_count_, 0.0f);
    const float* dy = g.out();
    ForEachRow(0, 0, [&](int64_t at) {
      if (at >= 0) AddRow(dy, g.in(0) + at);
      dy += row().from.size();
    });
    return absl::OkStatus();
  }

 private:
  const PaddedAxis& row() const { return axes_.back(); }

  // Calls visit(offset) for each row of the result, in order: where in the
  // input its row begins; -1: nowhere, all of it is the constant.
  template <typename Visit>
  void ForEachRow(size_t axis, int64_t at, const Visit& visit) const {
    if (axis + 1 == axes_.size()) return visit(at);
    for (const int64_t from : axes_[axis].from) {
      const bool outside = at < 0 || from < 0;
      ForEachRow(axis + 1, outside ? -1 : at + from * strides_[axis], visit);
    }
  }

  template <typename T>
  void Copy(const Tensors& t) const {
    const T* const x = static_cast<const T*>(t.inputs[0]);
    const T* const given =
        t.inputs.size() > 2 ? static_cast<const T*>(t.inputs[2]) : nullptr;
    const T constant = given != nullptr ? *given : T{0};
    const int64_t n = static_cast<int64_t>(row().from.size());
    T* y = static_cast<T*>(t.outputs[0]);
    ForEachRow(0, 0, [&](int64_t at) {
      const auto element = [&](int64_t i) {
        return at < 0 || row().from[i] < 0 ? constant : x[at + row().from[i]];
      };
      for (int64_t i = 0; i < row().begin; ++i) y[i] = element(i);
      if (at >= 0 && row().end > row().begin) {
        std::copy_n(x + at + row().from[row().begin], row().end - row().begin,
                    y + row().begin);
      } else {
        std::fill(y + row().begin, y + row().end, constant);
      }
      for (int64_t i = row().end; i < n; ++i) y[i] = element(i);
      y += n;
    });
  }

  void AddRow(const float* dy, float* dx) const {
    const auto add = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (row().from[i] >= 0) dx[row().from[i]] += dy[i];
      }
    };
    add(0, row().begin);
    if (row().end > row().begin) {
      const float* const inside = dy + row().begin;
      Emit(row().end - row().begin, /*accumulate=*/true,
           dx + row().from[row().begin], [=](int64_t i) { return inside[i]; });
    }
    add(row().end, static_cast<int64_t>(row().from.size()));
  }

  std::vector<PaddedAxis> axes_;  // at least one
  const size_t element_bytes_;
  const int64_t input_count_;
  Dims strides_;  // of the input
};

// Small enough that a sum of a few pads does not overflow.
constexpr int64_t kPadMax = int64_t{1} << 46;

// Pads before and after each dimension.
struct Pads {
  Dims before, after;
};

absl::StatusOr<Pads> PadsOf(const OpSpec& spec) {
  const size_t rank = spec.input(0).dims.size();
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<int64_t> pads,
                            ConstantInts(spec.input(1), "pads"));
  std::vector<int64_t> axes;
  if (spec.input(3).present) {
    SYNCLINE_ASSIGN_OR_RETURN(axes, ConstantInts(spec.input(3), "axes"));
  } else {
    for (size_t d = 0; d < rank; ++d) axes.push_back(static_cast<int64_t>(d));
  }
  if (pads.size() != 2 * axes.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pads has ", pads.size(), " numbers; it must have ", 2 * axes.size()));
  }
  Pads result = {Dims(rank, 0), Dims(rank, 0)};
  std::vector<bool> named(rank, false);
  for (size_t i = 0; i < axes.size(); ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis(axes[i], rank));
    if (named[axis]) {
      return absl::InvalidArgumentError(
          absl::StrCat("axes name dimension ", axis, " twice"));
    }
    named[axis] = true;
    for (const int64_t pad : {pads[i], pads[axes.size() + i]}) {
      if (pad >= -kPadMax && pad <= kPadMax) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("a pad of ", pad, " is too large"));
    }
    result.before[axis] = pads[i];
    result.after[axis] = pads[axes.size() + i];
  }
  return result;
}

absl::Status CheckConstantValue(const OpSpec& spec) {
  const TensorType& value = spec.input(2);
  const DType dtype = spec.input(0).dtype;
  if (!value.present || (value.count() == 1 && value.dtype == dtype)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "constant_value is ", DTypeName(value.dtype), DimsToString(value.dims),
      "; it must be one ", DTypeName(dtype), ", as the data are"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakePad(const OpSpec& spec) {
  const std::string mode = spec.node->String("mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "reflect" &&
      mode != "wrap") {
    return absl::InvalidArgumentError(absl::StrCat(
        "mode is \"", mode, "\"; it must be constant, edge, reflect or wrap"));
  }
  SYNCLINE_RETURN_IF_ERROR(CheckConstantValue(spec));
  SYNCLINE_ASSIGN_OR_RETURN(const Pads pads, PadsOf(spec));
  const Dims& in = spec.input(0).dims;
  const Dims& out = spec.output(0).dims;
  if (out.size() != in.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 is ", DimsToString(in), ", but the output is ",
                     DimsToString(out)));
  }
  std::vector<PaddedAxis> axes;
  // Its other dimensions may be larger than any memory.
  if (spec.output(0).count() == 0) {
    axes.emplace_back();
    return std::make_unique<PadOp>(spec, std::move(axes));
  }
  for (size_t d = 0; d < in.size(); ++d) {
    SYNCLINE_ASSIGN_OR_RETURN(
        PaddedAxis axis,
        PadAxis(mode, in[d], pads.before[d], pads.after[d], out[d]));
    axes.push_back(std::move(axis));
  }
  return std::make_unique<PadOp>(spec, std::move(axes));
}

}  // namespace syncline::worker

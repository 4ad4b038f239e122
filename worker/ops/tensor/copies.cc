// Elements that are moved, repeated or left out, and otherwise unchanged.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/graph/operator_list.h"
#include "kernels/device/block_copy_kernels.h"
#include "kernels/device/kernel_table.h"
#include "kernels/elementwise/broadcast.h"
#include "worker/ops/axes.h"
#include "worker/ops/tensor/strided_copy.h"

namespace syncline::worker {
namespace {

// Where one part lies in a row of the whole, in elements.
struct RowPart {
  int64_t begin = 0;
  int64_t width = 0;
};

// Cuts rows of `row` elements into parts, or joins them.
class RowParts {
 public:
  RowParts(const BlockCopyKernels& kernels, const AroundAxis& whole,
           size_t element_bytes, std::vector<RowPart> parts)
      : kernels_(kernels),
        rows_(whole.outer),
        row_(whole.n * whole.inner),
        element_bytes_(element_bytes),
        parts_(std::move(parts)) {}

  size_t size() const { return parts_.size(); }

  void Cut(Stream& stream, const void* whole, size_t k, void* part) const {
    const char* const from = static_cast<const char*>(whole);
    kernels_.copy(stream, FromWhole(k), element_bytes_,
                  from + parts_[k].begin * element_bytes_, part);
  }
  void Join(Stream& stream, const void* part, size_t k, void* whole) const {
    char* const to = static_cast<char*>(whole);
    kernels_.copy(stream, IntoWhole(k), element_bytes_, part,
                  to + parts_[k].begin * element_bytes_);
  }

  // Gradients; of no part: zero.
  void CutGradient(Stream& stream, ConstFloats whole, size_t k, bool accumulate,
                   Floats part) const {
    kernels_.gradient(stream, FromWhole(k), whole + parts_[k].begin, accumulate,
                      part);
  }
  void JoinGradient(Stream& stream, ConstFloats part, size_t k, bool accumulate,
                    Floats whole) const {
    const Floats to = whole + parts_[k].begin;
    if (part != nullptr) {
      kernels_.gradient(stream, IntoWhole(k), part, accumulate, to);
    } else if (!accumulate) {
      kernels_.clear(stream, IntoWhole(k), to);
    }
  }

 private:
  BlockRows FromWhole(size_t k) const {
    const int64_t width = parts_[k].width;
    return {.rows = rows_, .width = width, .from_row = row_, .to_row = width};
  }
  BlockRows IntoWhole(size_t k) const {
    const int64_t width = parts_[k].width;
    return {.rows = rows_, .width = width, .from_row = width, .to_row = row_};
  }

  const BlockCopyKernels kernels_;
  const int64_t rows_;
  const int64_t row_;
  const size_t element_bytes_;
  const std::vector<RowPart> parts_;
};

absl::StatusOr<RowParts> MakeRowParts(const OpSpec& spec,
                                      const AroundAxis& whole,
                                      std::vector<RowPart> parts) {
  const BlockCopyKernels* const kernels = spec.kernels().block_copy;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels(kernels->copy, kernels->gradient, kernels->clear));
  return RowParts(*kernels, whole, DTypeBytes(spec.input(0).dtype),
                  std::move(parts));
}

class ConcatOp : public Op {
 public:
  explicit ConcatOp(RowParts inputs)
      : Op(Traits()), inputs_(std::move(inputs)) {}

  absl::Status Forward(const Tensors& t) override {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      inputs_.Join(*t.stream, t.inputs[i], i, t.outputs[0]);
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    for (size_t i = inputs_.size(); i-- > 0;) {
      if (g.in(i) == nullptr) continue;
      inputs_.CutGradient(*t.stream, g.out(), i, g.accumulate(i), g.in(i));
    }
    return absl::OkStatus();
  }

 private:
  const RowParts inputs_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeConcat(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t axis,
      ResolveAxis(spec.node->Int("axis", 0), spec.output(0).dims.size()));
  const AroundAxis whole = SplitAt(spec.output(0).dims, axis);
  SYNCLINE_RETURN_IF_ERROR(spec.RequireOneType(kEvery));
  std::vector<RowPart> parts;
  int64_t joined = 0;
  for (const TensorType& input : spec.inputs) {
    if (input.dtype != spec.output(0).dtype ||
        input.dims.size() != spec.output(0).dims.size() ||
        SplitAt(input.dims, axis).outer != whole.outer ||
        SplitAt(input.dims, axis).inner != whole.inner) {
      return absl::InvalidArgumentError(
          absl::StrCat(DTypeName(input.dtype), DimsToString(input.dims),
                       " cannot be a part of ", DTypeName(spec.output(0).dtype),
                       DimsToString(spec.output(0).dims)));
    }
    parts.push_back({joined * whole.inner, input.dims[axis] * whole.inner});
    joined += input.dims[axis];
  }
  if (joined != whole.n) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the inputs' dimensions add up to ", joined, ", not ", whole.n));
  }
  SYNCLINE_ASSIGN_OR_RETURN(RowParts inputs,
                            MakeRowParts(spec, whole, std::move(parts)));
  return std::make_unique<ConcatOp>(std::move(inputs));
}

namespace {

class SplitOp : public Op {
 public:
  explicit SplitOp(RowParts outputs)
      : Op(Traits()), outputs_(std::move(outputs)) {}

  absl::Status Forward(const Tensors& t) override {
    for (size_t k = 0; k < outputs_.size(); ++k) {
      if (t.outputs[k] == nullptr) continue;
      outputs_.Cut(*t.stream, t.inputs[0], k, t.outputs[k]);
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    for (size_t k = 0; k < outputs_.size(); ++k) {
      outputs_.JoinGradient(*t.stream, g.out(k), k, g.accumulate(0), g.in(0));
    }
    return absl::OkStatus();
  }

 private:
  const RowParts outputs_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeSplit(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t axis,
      ResolveAxis(spec.node->Int("axis", 0), spec.input(0).dims.size()));
  const AroundAxis whole = SplitAt(spec.input(0).dims, axis);
  SYNCLINE_RETURN_IF_ERROR(spec.RequireOneType(kEvery));
  std::vector<RowPart> parts;
  int64_t end = 0;
  for (size_t k = 0; k < spec.outputs.size(); ++k) {
    // An output that is left out has a shape, but the node does not state it.
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
  SYNCLINE_ASSIGN_OR_RETURN(RowParts outputs,
                            MakeRowParts(spec, whole, std::move(parts)));
  return std::make_unique<SplitOp>(std::move(outputs));
}

namespace {

// Start of a slice along a dimension of n, and how far it goes, as numpy has
// them: clamped, from the end where negative.
struct SliceRange {
  int64_t begin = 0;
  int64_t count = 0;
};

SliceRange ClampSliceRange(int64_t start, int64_t end, int64_t step,
                           int64_t n) {
  if (start < 0) start += n;
  if (end < 0) end += n;
  if (step > 0) {
    start = std::clamp<int64_t>(start, 0, n);
    end = std::clamp<int64_t>(end, 0, n);
    return {start, std::max<int64_t>(0, (end - start + step - 1) / step)};
  }
  start = std::clamp<int64_t>(start, -1, n - 1);
  end = std::clamp<int64_t>(end, -1, n - 1);
  // start - end is below 2^46; -step may be anything.
  return {start, start <= end ? 0 : (start - end - 1) / -step + 1};
}

struct SliceSettings {
  std::vector<int64_t> starts, ends, axes, steps;  // one of each per axis
};

absl::StatusOr<SliceSettings> SliceSettingsOf(const OpSpec& spec) {
  SliceSettings s;
  SYNCLINE_ASSIGN_OR_RETURN(s.starts, ConstantInts(spec.input(1), "starts"));
  SYNCLINE_ASSIGN_OR_RETURN(s.ends, ConstantInts(spec.input(2), "ends"));
  if (spec.input(3).present) {
    SYNCLINE_ASSIGN_OR_RETURN(s.axes, ConstantInts(spec.input(3), "axes"));
  } else {
    for (size_t d = 0; d < s.starts.size(); ++d) {
      s.axes.push_back(static_cast<int64_t>(d));
    }
  }
  s.steps.assign(s.starts.size(), 1);
  if (spec.input(4).present) {
    SYNCLINE_ASSIGN_OR_RETURN(s.steps, ConstantInts(spec.input(4), "steps"));
  }
  const size_t n = s.starts.size();
  if (s.ends.size() != n || s.axes.size() != n || s.steps.size() != n) {
    return absl::InvalidArgumentError(
        "starts, ends, axes and steps must be of one length");
  }
  for (const int64_t step : s.steps) {
    if (step == 0 || step == INT64_MIN) {
      return absl::InvalidArgumentError(
          absl::StrCat("a step of ", step, " goes nowhere"));
    }
  }
  return s;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeSlice(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(const SliceSettings s, SliceSettingsOf(spec));
  Dims dims = spec.input(0).dims;
  Dims strides = DenseStrides(dims);
  int64_t begin = 0;
  for (size_t i = 0; i < s.axes.size(); ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(const int64_t axis,
                              ResolveAxis(s.axes[i], dims.size()));
    const SliceRange range =
        ClampSliceRange(s.starts[i], s.ends[i], s.steps[i], dims[axis]);
    dims[axis] = range.count;
    begin += range.count == 0 ? 0 : range.begin * strides[axis];
    // The step of a slice of one element may be too large to multiply.
    if (range.count > 1) strides[axis] *= s.steps[i];
  }
  if (dims != spec.output(0).dims) {
    return absl::InvalidArgumentError(
        absl::StrCat("the slice is ", DimsToString(dims), ", but its output ",
                     DimsToString(spec.output(0).dims)));
  }
  return MakeStridedCopy(spec, Strided<1>(dims, {strides}, {begin}));
}

namespace {

// By dimension of the result, the input's dimension. Empty: reversed.
absl::StatusOr<Dims> PermutationOf(const OpSpec& spec) {
  const size_t rank = spec.input(0).dims.size();
  Dims permutation = spec.node->Ints("perm");
  if (permutation.empty()) {
    for (size_t d = rank; d-- > 0;) {
      permutation.push_back(static_cast<int64_t>(d));
    }
  }
  std::vector<bool> seen(rank, false);
  bool good = permutation.size() == rank;
  for (const int64_t d : permutation) {
    good = good && d >= 0 && d < static_cast<int64_t>(rank) && !seen[d];
    if (good) seen[d] = true;
  }
  if (good) return permutation;
  return absl::InvalidArgumentError(
      absl::StrCat("perm is no permutation of ", rank, " dimensions"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeTranspose(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(const Dims permutation, PermutationOf(spec));
  const Dims& from = spec.input(0).dims;
  const Dims dense = DenseStrides(from);
  Dims dims, strides;
  for (const int64_t d : permutation) {
    dims.push_back(from[d]);
    strides.push_back(dense[d]);
  }
  return MakeStridedCopy(spec, Strided<1>(dims, {strides}),
                         /*each_once=*/true);
}

absl::StatusOr<std::unique_ptr<Op>> MakeTile(const OpSpec& spec) {
  const Dims& in = spec.input(0).dims;
  const Dims& out = spec.output(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<int64_t> repeats,
                            ConstantInts(spec.input(1), "repeats"));
  bool fits = repeats.size() == in.size() && out.size() == in.size();
  for (size_t d = 0; fits && d < in.size(); ++d) {
    fits = repeats[d] >= 0 && in[d] * repeats[d] == out[d];
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("repeats must be ", in.size(), " numbers that make ",
                     DimsToString(in), " into ", DimsToString(out)));
  }
  bool is_broadcast = true;
  for (size_t d = 0; d < in.size(); ++d) {
    is_broadcast = is_broadcast && (in[d] == 1 || repeats[d] == 1);
  }
  if (is_broadcast) return MakeRepeatedCopy(spec);
  // Each dimension is two: which tile, and where in it.
  const Dims dense = DenseStrides(in);
  Dims dims, strides;
  for (size_t d = 0; d < in.size(); ++d) {
    dims.insert(dims.end(), {repeats[d], in[d]});
    strides.insert(strides.end(), {0, dense[d]});
  }
  return MakeStridedCopy(spec, Strided<1>(dims, {strides}));
}

absl::StatusOr<std::unique_ptr<Op>> MakeExpand(const OpSpec& spec) {
  const Dims& out = spec.output(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(const Dims fits,
                            BroadcastDims(spec.input(0).dims, out));
  if (fits != out) {
    return absl::InvalidArgumentError(
        absl::StrCat(DimsToString(spec.input(0).dims),
                     " cannot be repeated to ", DimsToString(out)));
  }
  return MakeRepeatedCopy(spec);
}

}  // namespace syncline::worker

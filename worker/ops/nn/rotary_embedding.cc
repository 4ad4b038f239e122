#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/rotary_kernels.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

enum Input { kX, kCos, kSin, kPositions };

class RotaryEmbeddingOp : public Op {
 public:
  RotaryEmbeddingOp(const RotaryShape& shape, const RotaryKernels& kernels)
      : Op({.backward_inputs = 0b1110,
            .in_place_input = 0,
            .gradient_in_place = true}),
        shape_(shape),
        kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    kernels_.turn(*t.stream, shape_, t.in(kX), t.in(kCos), t.in(kSin),
                  PositionsIn(t), /*back=*/false, /*accumulate=*/false,
                  t.out(0), t.errors);
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    kernels_.turn(*t.stream, shape_, g.out(), t.in(kCos), t.in(kSin),
                  PositionsIn(t), /*back=*/true, g.accumulate(0), g.in(0),
                  t.errors);
    return absl::OkStatus();
  }

  absl::Status Explain(const DataError& error) const override {
    return absl::InvalidArgumentError(
        absl::StrCat("position ", error.value, ", number ", error.position,
                     ", is outside tables of ", shape_.positions, " rows"));
  }

 private:
  const int64_t* PositionsIn(const Tensors& t) const {
    return shape_.by_position
               ? static_cast<const int64_t*>(t.inputs[kPositions])
               : nullptr;
  }

  const RotaryShape shape_;
  const RotaryKernels kernels_;
};

absl::Status CheckTables(const OpSpec& spec, const RotaryShape& s) {
  const Dims want = s.by_position ? Dims{s.positions, s.pairs}
                                  : Dims{s.batch, s.length, s.pairs};
  for (const Input table : {kCos, kSin}) {
    const TensorType& input = spec.input(table);
    if (input.dtype == DType::kFloat32 && input.dims == want) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table, " is ", DTypeName(input.dtype),
        DimsToString(input.dims), "; it must be float32", DimsToString(want)));
  }
  const TensorType& ids = spec.input(kPositions);
  if (!s.by_position ||
      (ids.dtype == DType::kInt64 && ids.dims == Dims{s.batch, s.length})) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "positions are ", DTypeName(ids.dtype), DimsToString(ids.dims),
      "; they must be int64", DimsToString({s.batch, s.length})));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeRotaryEmbedding(const OpSpec& spec) {
  const Dims& dims = spec.input(kX).dims;
  RotaryShape s;
  s.joined = dims.size() == 3;
  const int64_t heads = spec.node->Int("num_heads", 0);
  const bool fits =
      s.joined ? heads > 0 && dims[2] % heads == 0 : dims.size() == 4;
  if (!fits || !spec.Computes(spec.input(kX).dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(
        DTypeName(spec.input(kX).dtype), DimsToString(dims),
        " is not float32 [batch, heads, length, width], nor [batch, length, "
        "heads * width] with ",
        heads, " heads"));
  }
  s.batch = dims[0];
  s.heads = s.joined ? heads : dims[1];
  s.length = s.joined ? dims[1] : dims[2];
  s.width = s.joined ? dims[2] / heads : dims[3];
  s.interleaved = spec.node->Int("interleaved", 0) != 0;
  const int64_t turned = spec.node->Int("rotary_embedding_dim", 0);
  s.pairs = (turned == 0 ? s.width : turned) / 2;
  if (turned < 0 || turned % 2 != 0 || turned > s.width ||
      (turned == 0 && s.width % 2 != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rotary_embedding_dim is ", turned,
                     "; it must be even and at most the width ", s.width));
  }
  s.by_position = spec.input(kPositions).present;
  if (s.by_position && !spec.input(kCos).dims.empty()) {
    s.positions = spec.input(kCos).dims[0];
  }
  SYNCLINE_RETURN_IF_ERROR(CheckTables(spec, s));
  const RotaryKernels* const kernels = spec.kernels().rotary;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels->turn));
  return std::make_unique<RotaryEmbeddingOp>(s, *kernels);
}

}  // namespace syncline::worker

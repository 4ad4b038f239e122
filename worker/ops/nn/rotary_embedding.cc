// Su et al. 2021: pairs of a head's elements are turned by an angle that grows
// with the position; cosines and sines come as tables.

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

enum Input { kX, kCos, kSin, kPositions };

struct RotaryShape {
  int64_t batch = 0, heads = 0, length = 0, width = 0;
  bool joined = false;       // [batch, length, heads * width]
  bool interleaved = false;  // pairs are neighbours, else half a turn apart
  int64_t pairs = 0;         // the rest of a head is copied
  bool by_position = false;  // tables have a row per position, else per sample
  int64_t positions = 0;     // rows of the tables
};

class RotaryEmbeddingOp : public Op {
 public:
  explicit RotaryEmbeddingOp(const RotaryShape& shape)
      : Op({.backward_inputs = 0b1110,
            .in_place_input = 0,
            .gradient_in_place = true}),
        shape_(shape) {}

  absl::Status Forward(const Tensors& t) override {
    SYNCLINE_RETURN_IF_ERROR(CheckPositions(t));
    Turn(t, t.in(kX), /*back=*/false, /*accumulate=*/false, t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    Turn(t, g.out(), /*back=*/true, g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  absl::Status CheckPositions(const Tensors& t) const {
    if (!shape_.by_position) return absl::OkStatus();
    const auto* const ids = static_cast<const int64_t*>(t.inputs[kPositions]);
    for (int64_t i = 0; i < shape_.batch * shape_.length; ++i) {
      if (ids[i] >= 0 && ids[i] < shape_.positions) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("position ", ids[i], ", number ", i,
                       ", is outside tables of ", shape_.positions, " rows"));
    }
    return absl::OkStatus();
  }

  void Turn(const Tensors& t, const float* x, bool back, bool accumulate,
            float* y) const {
    const RotaryShape& s = shape_;
    const auto* const ids = static_cast<const int64_t*>(
        s.by_position ? t.inputs[kPositions] : nullptr);
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t i = 0; i < s.length; ++i) {
        const int64_t at = b * s.length + i;
        const int64_t row = (ids == nullptr ? at : ids[at]) * s.pairs;
        for (int64_t h = 0; h < s.heads; ++h) {
          const int64_t head =
              s.joined ? (at * s.heads + h) * s.width
                       : ((b * s.heads + h) * s.length + i) * s.width;
          TurnHead(x + head, t.in(kCos) + row, t.in(kSin) + row, back,
                   accumulate, y + head);
        }
      }
    }
  }

  void TurnHead(const float* x, const float* cosines, const float* sines,
                bool back, bool accumulate, float* y) const {
    const int64_t pairs = shape_.pairs;
    for (int64_t p = 0; p < pairs; ++p) {
      const int64_t i = shape_.interleaved ? 2 * p : p;
      const int64_t j = shape_.interleaved ? 2 * p + 1 : p + pairs;
      const float sine = back ? -sines[p] : sines[p];
      const float first = cosines[p] * x[i] - sine * x[j];
      const float second = sine * x[i] + cosines[p] * x[j];
      y[i] = accumulate ? y[i] + first : first;
      y[j] = accumulate ? y[j] + second : second;
    }
    for (int64_t i = 2 * pairs; i < shape_.width; ++i) {
      y[i] = accumulate ? y[i] + x[i] : x[i];
    }
  }

  const RotaryShape shape_;
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
  if (!fits || spec.input(kX).dtype != DType::kFloat32) {
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
  return std::make_unique<RotaryEmbeddingOp>(s);
}

}  // namespace syncline::worker

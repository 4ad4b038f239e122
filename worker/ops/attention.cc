#include "kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/fusion.h"
#include "kernels/broadcast.h"
#include "kernels/strided.h"
#include "worker/ops/op.h"

namespace syncline {
namespace {

enum Input { kQ, kK, kV, kMask };

// Q, K, V and Y are [batch, heads, rows, width], or [batch, rows, heads *
// width] with the number of heads as an attribute. Where nodes were fused they
// may be [batch, rows, heads, width].
struct Heads {
  int64_t batch = 0, heads = 0, rows = 0, width = 0;
  Attention::Layout layout;
};

// `at`: 0 to 3 for Q, K, V and Y.
bool AreRowsFirst(const Node& node, size_t at) {
  const std::vector<int64_t> rows_first = node.Ints(kRowsFirst);
  return at < rows_first.size() && rows_first[at] != 0;
}

Attention::Layout LayoutOf(const Heads& h, bool rows_first) {
  const int64_t batch = h.heads * h.rows * h.width;
  if (rows_first) return {batch, h.width, h.heads * h.width};
  return {batch, h.rows * h.width, h.width};
}

absl::StatusOr<Heads> HeadsOf(const OpSpec& spec, size_t at, int64_t heads) {
  const Dims& dims = spec.input(at).dims;
  Heads h;
  if (dims.size() == 4) {
    const bool rows_first = AreRowsFirst(*spec.node, at);
    h = {dims[0],
         dims[rows_first ? 2 : 1],
         dims[rows_first ? 1 : 2],
         dims[3],
         {}};
    h.layout = LayoutOf(h, rows_first);
    return h;
  }
  if (dims.size() != 3 || heads <= 0 || dims[2] % heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(DimsToString(dims),
                     " is not [batch, heads, rows, width], nor [batch, "
                     "rows, heads * width] with ",
                     heads, " heads"));
  }
  h = {dims[0], heads, dims[1], dims[2] / heads, {}};
  h.layout = LayoutOf(h, /*rows_first=*/true);
  return h;
}

Op::Traits TraitsOf(const OpSpec& spec, const Attention& attention) {
  Op::Traits traits;
  const bool keeps_weights = attention.weights_count() > 0;
  traits.backward_inputs = keeps_weights ? 0b0111 : 0b1111;
  traits.workspace_bytes = attention.weights_count() * sizeof(float);
  traits.forward_scratch_bytes =
      attention.forward_scratch_count() * sizeof(float);
  traits.backward_scratch_bytes =
      attention.backward_scratch_count() * sizeof(float);
  return traits;
}

// Weights that are larger than twice what they are computed of and what is
// computed of them, as those of long sequences are, would be most of a step's
// memory: they are computed again, which costs one product of a head's six.
bool KeepsWeights(const Attention::Shape& s) {
  const int64_t rows = s.queries * (s.width + s.value_width) * s.heads +
                       s.keys * (s.width + s.value_width) * s.key_heads;
  return s.heads * s.queries * s.keys <= 2 * rows;
}

class AttentionOp : public Op {
 public:
  AttentionOp(const OpSpec& spec, Attention attention,
              const Attention::Mask& mask)
      : Op(TraitsOf(spec, attention)),
        attention_(std::move(attention)),
        mask_(mask),
        mask_is_bool_(spec.input(kMask).dtype == DType::kBool),
        mask_count_(spec.input(kMask).count()) {}

  absl::Status Forward(const Tensors& t) override {
    return attention_.Forward(t.in(kQ), t.in(kK), t.in(kV), MaskIn(t), t.out(0),
                              static_cast<float*>(t.workspace),
                              static_cast<float*>(t.scratch));
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    Attention::Gradients out = {.dq = g.in(kQ),
                                .dk = g.in(kK),
                                .dv = g.in(kV),
                                .dmask = g.in(kMask),
                                .add_dq = g.accumulate(kQ),
                                .add_dk = g.accumulate(kK),
                                .add_dv = g.accumulate(kV)};
    if (out.dmask != nullptr && !g.accumulate(kMask)) {
      std::fill_n(out.dmask, mask_count_, 0.0f);
    }
    return attention_.Backward(t.in(kQ), t.in(kK), t.in(kV), MaskIn(t),
                               static_cast<const float*>(t.workspace), g.out(),
                               static_cast<float*>(t.scratch), out);
  }

 private:
  Attention::Mask MaskIn(const Tensors& t) const {
    Attention::Mask mask = mask_;
    if (mask_is_bool_) {
      mask.seen = reinterpret_cast<const uint8_t*>(t.in(kMask));
    } else {
      mask.added = t.in(kMask);
    }
    return mask;
  }

  Attention attention_;
  const Attention::Mask mask_;  // its strides
  const bool mask_is_bool_;
  const int64_t mask_count_;
};

// What is in the operator's definition, but not computed here.
absl::Status CheckComputed(const OpSpec& spec) {
  absl::string_view what = "";
  if (spec.input(4).present || spec.input(5).present) what = "past keys";
  if (spec.input(6).present) what = "padded keys";
  for (size_t i = 1; i < 4; ++i) {
    if (spec.output(i).present) what = "outputs besides the first";
  }
  if (spec.node->Float("softcap", 0) != 0) what = "softcap";
  if (what.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " of attention: not computed"));
}

absl::StatusOr<Attention::Shape> ShapeOf(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const Heads q, HeadsOf(spec, kQ, spec.node->Int("q_num_heads", 0)));
  const int64_t kv_heads = spec.node->Int("kv_num_heads", 0);
  SYNCLINE_ASSIGN_OR_RETURN(const Heads k, HeadsOf(spec, kK, kv_heads));
  SYNCLINE_ASSIGN_OR_RETURN(const Heads v, HeadsOf(spec, kV, kv_heads));
  const bool fits = q.batch == k.batch && k.batch == v.batch &&
                    k.heads == v.heads && k.rows == v.rows &&
                    q.width == k.width && k.heads > 0 && q.width > 0 &&
                    q.heads % k.heads == 0;
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("queries ", DimsToString(spec.input(kQ).dims), ", keys ",
                     DimsToString(spec.input(kK).dims), " and values ",
                     DimsToString(spec.input(kV).dims), " do not fit"));
  }
  Attention::Shape s;
  s.batch = q.batch;
  s.heads = q.heads;
  s.key_heads = k.heads;
  s.queries = q.rows;
  s.keys = k.rows;
  s.width = q.width;
  s.value_width = v.width;
  s.scale = spec.node->Float("scale", 0);
  if (!spec.node->Has("scale")) {
    s.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(q.width)));
  }
  s.causal = spec.node->Int("is_causal", 0) != 0;
  s.q = q.layout;
  s.k = k.layout;
  s.v = v.layout;
  const Heads y = {q.batch, q.heads, q.rows, v.width, {}};
  s.y = LayoutOf(
      y, spec.input(kQ).dims.size() == 3 || AreRowsFirst(*spec.node, 3));
  s.keeps_weights = spec.WantsAnyGradient() && KeepsWeights(s);
  return s;
}

absl::StatusOr<Attention::Mask> MaskOf(const OpSpec& spec,
                                       const Attention::Shape& s) {
  Attention::Mask mask;
  const TensorType& input = spec.input(kMask);
  if (!input.present) return mask;
  if (input.dtype != DType::kBool && input.dtype != DType::kFloat32) {
    return absl::InvalidArgumentError(
        absl::StrCat("the mask is ", DTypeName(input.dtype),
                     "; it must be bool or float32"));
  }
  mask.hides = spec.node->Int(kMaskHides, 0) != 0;
  mask.hidden = spec.node->Float(kHiddenScore, mask.hidden);
  const Dims scores = {s.batch, s.heads, s.queries, s.keys};
  SYNCLINE_ASSIGN_OR_RETURN(const Dims fits, BroadcastDims(input.dims, scores));
  if (fits != scores) {
    return absl::InvalidArgumentError(
        absl::StrCat("the mask is ", DimsToString(input.dims),
                     ", which is not repeated to ", DimsToString(scores)));
  }
  const Dims strides = BroadcastStrides(input.dims, scores);
  mask.batch = strides[0];
  mask.head = strides[1];
  mask.row = strides[2];
  mask.column = strides[3];
  return mask;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeAttention(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(CheckComputed(spec));
  for (size_t i = 0; i < 3; ++i) {
    if (spec.input(i).dtype == DType::kFloat32) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("input ", i, " is ", DTypeName(spec.input(i).dtype),
                     "; only float32 is computed"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const Attention::Shape shape, ShapeOf(spec));
  SYNCLINE_ASSIGN_OR_RETURN(const Attention::Mask mask, MaskOf(spec, shape));
  SYNCLINE_ASSIGN_OR_RETURN(Attention attention,
                            Attention::Create(shape, spec.WantsAnyGradient()));
  return std::make_unique<AttentionOp>(spec, std::move(attention), mask);
}

}  // namespace syncline

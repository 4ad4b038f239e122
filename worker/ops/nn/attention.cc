#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/graph/fusion.h"
#include "kernels/device/attention_kernels.h"
#include "kernels/device/block_copy_kernels.h"
#include "kernels/device/kernel_table.h"
#include "kernels/elementwise/broadcast.h"
#include "kernels/elementwise/row_sums.h"
#include "kernels/elementwise/strided.h"
#include "worker/ops/nn/attention_heads.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

enum Input { kQ, kK, kV, kMask, kPastKey, kPastValue, kKeyCounts };
enum Output { kY, kPresentKey, kPresentValue, kScores };

// True if Q, K, V or Y (`at`: 0 to 3) of a fused node has rows before heads.
bool AreRowsFirst(const Node& node, size_t at) {
  const std::vector<int64_t> rows_first = node.Ints(kRowsFirst);
  return at < rows_first.size() && rows_first[at] != 0;
}

absl::StatusOr<AttentionHeads> HeadsOf(const OpSpec& spec, size_t at,
                                       int64_t heads) {
  return AttentionHeadsOf(spec.input(at).dims, heads,
                          AreRowsFirst(*spec.node, at));
}

// The kernels' parameters for a node.
struct Plan {
  AttentionShape shape;
  Attention::Mask mask;  // its strides
  Attention::Stage stage = Attention::Stage::kProducts;
  std::optional<JoinedHeads> keys, values;  // both or neither
};

// Elements of the mask's gradient that are added up in fp64: all where many
// rows of scores share each, else none.
int64_t LongMaskCount(const OpSpec& spec, const Plan& plan) {
  if (!spec.WantsGradient(kMask)) return 0;
  const AttentionShape& s = plan.shape;
  const int64_t count = spec.input(kMask).count();
  const int64_t scores = s.batch * s.heads * s.queries * s.keys;
  return scores / kRowBlock > count ? count : 0;
}

Op::Traits TraitsOf(const OpSpec& spec, const Plan& plan,
                    const AttentionLayer& layer) {
  Op::Traits traits;
  const bool joins = plan.keys.has_value();
  traits.backward_inputs = joins ? 1 << kQ : 1 << kQ | 1 << kK | 1 << kV;
  if (layer.reads_output()) traits.backward_outputs = 1 << kY;
  if (!plan.shape.keeps_weights || layer.reads_output() ||
      plan.mask.hidden_is_finite()) {
    traits.backward_inputs |= 1 << kMask | 1 << kKeyCounts;
  }
  const int64_t joined = joins ? plan.keys->count() + plan.values->count() : 0;
  traits.workspace_bytes = (layer.weights_count() + joined) * sizeof(float);
  traits.forward_scratch_bytes = layer.forward_scratch_count() * sizeof(float);
  traits.backward_scratch_bytes = (layer.backward_scratch_count() + joined +
                                   (joins ? spec.input(kQ).count() : 0)) *
                                      sizeof(float) +
                                  LongMaskCount(spec, plan) * sizeof(double);
  return traits;
}

// The workspace has the weights, and keys and values where they are joined.
class AttentionOp : public Op {
 public:
  AttentionOp(const OpSpec& spec, const Plan& plan,
              std::unique_ptr<AttentionLayer> layer)
      : Op(TraitsOf(spec, plan, *layer)),
        plan_(plan),
        kernels_(*spec.kernels().attention),
        copy_gradient_(plan.keys.has_value()
                           ? spec.kernels().block_copy->gradient
                           : nullptr),
        layer_(std::move(layer)),
        mask_is_bool_(spec.input(kMask).dtype == DType::kBool),
        long_mask_count_(LongMaskCount(spec, plan_)),
        q_count_(spec.input(kQ).count()),
        mask_count_(spec.input(kMask).count()) {}

  absl::Status Forward(const Tensors& t) override {
    if (plan_.keys.has_value()) Join(t);
    return layer_->Forward(
        *t.stream, t.in(kQ), KeysOf(t), ValuesOf(t), MaskIn(t), t.out(kY),
        WeightsOf(t), static_cast<float*>(t.scratch),
        {.stage = plan_.stage, .scores = t.out(kScores)}, t.errors);
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (g.in(kMask) != nullptr && !g.accumulate(kMask)) {
      t.stream->Clear(g.in(kMask), mask_count_ * sizeof(float));
    }
    AttentionGradients out = {.dq = g.in(kQ),
                              .dk = g.in(kK),
                              .dv = g.in(kV),
                              .dmask = g.in(kMask),
                              .long_dmask = nullptr,
                              .add_dq = g.accumulate(kQ),
                              .add_dk = g.accumulate(kK),
                              .add_dv = g.accumulate(kV)};
    if (out.dmask == nullptr || long_mask_count_ == 0) {
      return OperandGradients(t, g, out);
    }
    auto* const sums = static_cast<double*>(t.scratch);
    t.stream->Clear(sums, long_mask_count_ * sizeof(double));
    out.dmask = nullptr;
    out.long_dmask = sums;
    SYNCLINE_RETURN_IF_ERROR(OperandGradients(t, g, out));
    kernels_.add_sums(*t.stream, long_mask_count_, sums, g.in(kMask));
    return absl::OkStatus();
  }

  absl::Status Explain(const DataError& error) const override {
    return absl::InvalidArgumentError(
        absl::StrCat("nonpad_kv_seqlen of sample ", error.position, " is ",
                     error.value, "; there are ", plan_.shape.keys, " keys"));
  }

 private:
  absl::Status OperandGradients(const Tensors& t, const Gradients& g,
                                const AttentionGradients& out) {
    return plan_.keys.has_value() ? JoinedGradient(t, g, out)
                                  : AttentionGradient(t, g, out);
  }
  // In the backward pass, after the mask's sums.
  float* ScratchOf(const Tensors& t) const {
    return reinterpret_cast<float*>(static_cast<double*>(t.scratch) +
                                    long_mask_count_);
  }

  static const int64_t* KeyCounts(const Tensors& t) {
    return t.inputs.size() > kKeyCounts
               ? static_cast<const int64_t*>(t.inputs[kKeyCounts])
               : nullptr;
  }

  Attention::Mask MaskIn(const Tensors& t) const {
    Attention::Mask mask = plan_.mask;
    if (mask_is_bool_) {
      mask.seen = static_cast<const uint8_t*>(t.inputs[kMask]);
    } else {
      mask.added = t.in(kMask);
    }
    mask.keys = KeyCounts(t);
    return mask;
  }

  float* WeightsOf(const Tensors& t) const {
    return static_cast<float*>(t.workspace);
  }
  float* JoinedKeys(const Tensors& t) const {
    return WeightsOf(t) + layer_->weights_count();
  }
  float* JoinedValues(const Tensors& t) const {
    return JoinedKeys(t) + plan_.keys->count();
  }
  ConstFloats KeysOf(const Tensors& t) const {
    if (plan_.keys.has_value()) return JoinedKeys(t);
    return t.in(kK);
  }
  ConstFloats ValuesOf(const Tensors& t) const {
    if (plan_.keys.has_value()) return JoinedValues(t);
    return t.in(kV);
  }

  void Join(const Tensors& t) const {
    kernels_.join(*t.stream, *plan_.keys, t.in(kPastKey), t.in(kK),
                  JoinedKeys(t));
    kernels_.join(*t.stream, *plan_.values, t.in(kPastValue), t.in(kV),
                  JoinedValues(t));
    if (t.out(kPresentKey) != nullptr) {
      t.stream->Copy(t.out(kPresentKey), JoinedKeys(t),
                     plan_.keys->count() * sizeof(float));
    }
    if (t.out(kPresentValue) != nullptr) {
      t.stream->Copy(t.out(kPresentValue), JoinedValues(t),
                     plan_.values->count() * sizeof(float));
    }
  }

  // Starts the gradient of joined keys or values with that of their own output.
  static void StartJoined(const Tensors& t, const Gradients& g, Output output,
                          int64_t count, float* d) {
    const float* const up = g.out(output);
    if (up == nullptr) {
      t.stream->Clear(d, count * sizeof(float));
    } else {
      t.stream->Copy(d, up, count * sizeof(float));
    }
  }

  // The gradients of queries, keys and values wait in scratch memory, to be
  // written from the last input to the first.
  absl::Status JoinedGradient(const Tensors& t, const Gradients& g,
                              AttentionGradients out) {
    out.dk = ScratchOf(t) + layer_->backward_scratch_count();
    out.dv = out.dk + plan_.keys->count();
    out.dq = out.dv + plan_.values->count();
    out.add_dk = out.add_dv = true;
    out.add_dq = false;
    StartJoined(t, g, kPresentKey, plan_.keys->count(), out.dk);
    StartJoined(t, g, kPresentValue, plan_.values->count(), out.dv);
    SYNCLINE_RETURN_IF_ERROR(AttentionGradient(t, g, out));
    const auto write = [&](auto kernel, const JoinedHeads& s, const float* d,
                           Input input) {
      if (g.in(input) == nullptr) return;
      kernel(*t.stream, s, d, g.accumulate(input), g.in(input));
    };
    write(kernels_.past_gradient, *plan_.values, out.dv, kPastValue);
    write(kernels_.past_gradient, *plan_.keys, out.dk, kPastKey);
    write(kernels_.incoming_gradient, *plan_.values, out.dv, kV);
    write(kernels_.incoming_gradient, *plan_.keys, out.dk, kK);
    if (g.in(kQ) == nullptr) return absl::OkStatus();
    copy_gradient_(*t.stream, {.width = q_count_}, out.dq, g.accumulate(kQ),
                   g.in(kQ));
    return absl::OkStatus();
  }

  absl::Status AttentionGradient(const Tensors& t, const Gradients& g,
                                 const AttentionGradients& out) {
    if (g.out() == nullptr) {
      if (out.dq != nullptr && !out.add_dq) {
        t.stream->Clear(out.dq, out.dq.Bytes(q_count_));
      }
      return absl::OkStatus();
    }
    return layer_->Backward(*t.stream, t.in(kQ), KeysOf(t), ValuesOf(t),
                            MaskIn(t), WeightsOf(t), t.out(kY), g.out(),
                            ScratchOf(t), out);
  }

  const Plan plan_;
  const AttentionKernels kernels_;
  decltype(BlockCopyKernels::gradient) const copy_gradient_;
  const std::unique_ptr<AttentionLayer> layer_;
  const bool mask_is_bool_;
  const int64_t long_mask_count_;
  const int64_t q_count_;
  const int64_t mask_count_;
};

// Past keys or values: [batch, heads, past, width], as the incoming ones.
absl::StatusOr<int64_t> PastRows(const OpSpec& spec, Input past,
                                 const AttentionHeads& incoming) {
  const TensorType& type = spec.input(past);
  if (!type.present) return 0;
  const Dims& dims = type.dims;
  if (type.dtype == DType::kFloat32 && dims.size() == 4 &&
      dims[0] == incoming.batch && dims[1] == incoming.heads &&
      dims[3] == incoming.width) {
    return dims[2];
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "input ", static_cast<int>(past), " is ", DTypeName(type.dtype),
      DimsToString(dims), "; it must be float32[", incoming.batch, ",",
      incoming.heads, ",past,", incoming.width, "]"));
}

absl::Status CheckKeyCounts(const OpSpec& spec, int64_t batch) {
  const TensorType& counts = spec.input(kKeyCounts);
  if (!counts.present) return absl::OkStatus();
  if (spec.input(kPastKey).present || spec.output(kPresentKey).present) {
    return absl::InvalidArgumentError(
        "nonpad_kv_seqlen is given with past or present keys; ONNX has either");
  }
  if (counts.dtype == DType::kInt64 && counts.dims == Dims{batch}) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "nonpad_kv_seqlen is ", DTypeName(counts.dtype),
      DimsToString(counts.dims), "; it must be int64[", batch, "]"));
}

absl::StatusOr<Attention::Mask> MaskOf(const OpSpec& spec,
                                       const AttentionShape& s) {
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
  Dims scores = {s.batch, s.heads, s.queries, s.keys};
  // The mask may end before the keys do, and hides the rest of them. From opset
  // 24 on one of a single column does so, too; before, it is repeated.
  const bool one_column_ends =
      spec.node->since_version >= 24 && !spec.node->is_fused;
  if (!input.dims.empty() && (input.dims.back() > 1 || one_column_ends)) {
    scores[3] = mask.columns = std::min(s.keys, input.dims.back());
  }
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

absl::Status CheckFit(const OpSpec& spec, const AttentionHeads& q,
                      const AttentionHeads& k, const AttentionHeads& v) {
  const bool fits = q.batch == k.batch && k.batch == v.batch &&
                    k.heads == v.heads && k.rows == v.rows &&
                    q.width == k.width && k.heads > 0 && q.width > 0 &&
                    q.heads % k.heads == 0;
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("queries ", DimsToString(spec.input(kQ).dims), ", keys ",
                   DimsToString(spec.input(kK).dims), " and values ",
                   DimsToString(spec.input(kV).dims), " do not fit"));
}

JoinedHeads JoinedWith(const AttentionHeads& incoming, int64_t past) {
  return {.batch = incoming.batch,
          .heads = incoming.heads,
          .past = past,
          .rows = incoming.rows,
          .width = incoming.width,
          .incoming = incoming.layout};
}

// Joins keys and values where there are past ones or the outcome is asked for.
absl::Status PlanJoined(const OpSpec& spec, const AttentionHeads& k,
                        const AttentionHeads& v, Plan* plan) {
  SYNCLINE_ASSIGN_OR_RETURN(plan->shape.past, PastRows(spec, kPastKey, k));
  SYNCLINE_ASSIGN_OR_RETURN(const int64_t values,
                            PastRows(spec, kPastValue, v));
  if (spec.input(kPastKey).present != spec.input(kPastValue).present ||
      plan->shape.past != values) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are past keys of ", plan->shape.past,
                     " rows, but past values of ", values));
  }
  if (!spec.input(kPastKey).present && !spec.output(kPresentKey).present &&
      !spec.output(kPresentValue).present) {
    return absl::OkStatus();
  }
  plan->keys = JoinedWith(k, values);
  plan->values = JoinedWith(v, values);
  plan->shape.keys = plan->keys->joined_rows();
  plan->shape.k = plan->keys->layout();
  plan->shape.v = plan->values->layout();
  return absl::OkStatus();
}

absl::StatusOr<Attention::Stage> StageOf(const Node& node) {
  const int64_t mode = node.Int("qk_matmul_output_mode", 0);
  if (mode >= 0 && mode <= 3) return static_cast<Attention::Stage>(mode);
  return absl::InvalidArgumentError(absl::StrCat(
      "qk_matmul_output_mode is ", mode, "; it must be 0, 1, 2 or 3"));
}

// Weights that are larger than twice what they are computed of and what is
// computed of them, as those of long sequences are, would be most of a step's
// memory: they are computed again, which costs one product of a head's six.
bool KeepsWeights(const AttentionShape& s) {
  const int64_t rows = s.queries * (s.width + s.value_width) * s.heads +
                       s.keys * (s.width + s.value_width) * s.key_heads;
  return s.heads * s.queries * s.keys <= 2 * rows;
}

absl::StatusOr<Plan> PlanOf(const OpSpec& spec) {
  const Node& node = *spec.node;
  const int64_t kv_heads = node.Int("kv_num_heads", 0);
  SYNCLINE_ASSIGN_OR_RETURN(const AttentionHeads q,
                            HeadsOf(spec, kQ, node.Int("q_num_heads", 0)));
  SYNCLINE_ASSIGN_OR_RETURN(const AttentionHeads k,
                            HeadsOf(spec, kK, kv_heads));
  SYNCLINE_ASSIGN_OR_RETURN(const AttentionHeads v,
                            HeadsOf(spec, kV, kv_heads));
  SYNCLINE_RETURN_IF_ERROR(CheckFit(spec, q, k, v));
  SYNCLINE_RETURN_IF_ERROR(CheckKeyCounts(spec, q.batch));
  Plan plan;
  AttentionShape& s = plan.shape;
  s.batch = q.batch;
  s.heads = q.heads;
  s.key_heads = k.heads;
  s.queries = q.rows;
  s.keys = k.rows;
  s.width = q.width;
  s.value_width = v.width;
  s.scale = node.Float("scale", 0);
  if (!node.Has("scale")) {
    s.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(q.width)));
  }
  // No earlier check bounds the number of scores.
  constexpr double kScoresMax = int64_t{1} << 46;
  const double scores = 1.0 * s.batch * s.heads * s.queries * s.keys;
  if (scores > kScoresMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(s.queries, " queries of ", s.batch, " x ", s.heads,
                     " heads and ", s.keys, " keys have too many scores"));
  }
  s.softcap = node.Float("softcap", 0);
  s.causal = node.Int("is_causal", 0) != 0;
  s.q = q.layout;
  s.k = k.layout;
  s.v = v.layout;
  const AttentionHeads y = {q.batch, q.heads, q.rows, v.width, {}};
  s.y = y.LayoutWith(spec.input(kQ).dims.size() == 3 || AreRowsFirst(node, 3));
  SYNCLINE_RETURN_IF_ERROR(PlanJoined(spec, k, v, &plan));
  s.keeps_weights = spec.WantsAnyGradient() && KeepsWeights(s);
  SYNCLINE_ASSIGN_OR_RETURN(plan.mask, MaskOf(spec, s));
  SYNCLINE_ASSIGN_OR_RETURN(plan.stage, StageOf(node));
  return plan;
}

absl::Status RequireKernelsOf(const OpSpec& spec, const Plan& plan) {
  const AttentionKernels* const family = spec.kernels().attention;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family->make));
  if (spec.WantsGradient(kMask)) {
    SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family->add_sums));
  }
  if (!plan.keys.has_value()) return absl::OkStatus();
  const BlockCopyKernels* const copies = spec.kernels().block_copy;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(copies));
  return spec.RequireKernels(family->join, family->past_gradient,
                             family->incoming_gradient, copies->gradient);
}

// Errors: InvalidArgument: a type that is not computed; Unimplemented: several
// types of floats, or keys and values that are joined with a past.
absl::StatusOr<AttentionUses> UsesOf(const OpSpec& spec, const Plan& plan) {
  AttentionUses uses;
  uses.backward = spec.WantsAnyGradient();
  uses.mask_gradient = spec.WantsGradient(kMask);
  uses.scores = spec.output(kScores).present;
  uses.type = spec.input(kQ).dtype;
  for (size_t i = 0; i < 3; ++i) {
    if (spec.Computes(spec.input(i).dtype)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("input ", i, " is ", DTypeName(spec.input(i).dtype),
                     "; only float32 is computed"));
  }
  if (!spec.HasNarrowTypes()) return uses;
  const TensorType& y = spec.output(kY);
  const bool is_one = Is16Bit(uses.type) && spec.input(kK).dtype == uses.type &&
                      spec.input(kV).dtype == uses.type &&
                      y.dtype == uses.type &&
                      (!uses.backward || y.gradient_dtype == uses.type);
  if (is_one && !plan.keys.has_value()) return uses;
  return absl::UnimplementedError("several types, or joined keys");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeAttention(const OpSpec& spec) {
  for (const Input input : {kMask, kPastKey, kPastValue}) {
    if (!Is16Bit(spec.input(input).dtype)) continue;
    return absl::UnimplementedError("a mask or a past of 16 bits");
  }
  SYNCLINE_ASSIGN_OR_RETURN(const Plan plan, PlanOf(spec));
  SYNCLINE_ASSIGN_OR_RETURN(const AttentionUses uses, UsesOf(spec, plan));
  SYNCLINE_RETURN_IF_ERROR(RequireKernelsOf(spec, plan));
  SYNCLINE_ASSIGN_OR_RETURN(
      std::unique_ptr<AttentionLayer> layer,
      spec.kernels().attention->make(*spec.device, plan.shape, uses));
  return std::make_unique<AttentionOp>(spec, plan, std::move(layer));
}

}  // namespace syncline::worker

#include "worker/ops/widened_op.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/graph/operator_list.h"
#include "kernels/device/cast_kernels.h"
#include "kernels/device/kernel_table.h"
#include "worker/ops/fused_op.h"
#include "worker/ops/op_table.h"

namespace syncline::worker {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kNarrowBytes = 2;

int64_t Aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The float32 copy of a 16-bit array: its place in the scratch of a call.
struct WideCopy {
  int64_t offset = -1;  // -1: none, the array is used where it is
  int64_t count = 0;
  CastKernels::Forward widen = nullptr;
  CastKernels::Forward narrow = nullptr;

  bool exists() const { return offset >= 0; }
  void* At(void* scratch) const { return static_cast<char*>(scratch) + offset; }
};

// Gives copies their places in a scratch, behind what the Op itself needs.
class ScratchLayout {
 public:
  ScratchLayout(const CastKernels& casts, int64_t bytes)
      : casts_(casts), end_(Aligned(bytes)) {}

  // No copy of a type that is not 16 bits wide.
  WideCopy Add(DType type, int64_t count) {
    if (!Is16Bit(type)) return {};
    const int64_t offset = end_;
    end_ += Aligned(count * static_cast<int64_t>(sizeof(float)));
    return {offset, count, casts_.casts[type][DType::kFloat32],
            casts_.casts[DType::kFloat32][type]};
  }
  int64_t end() const { return end_; }

 private:
  const CastKernels& casts_;
  int64_t end_;
};

// The copies of a node's calls.
struct WideCopies {
  std::vector<WideCopy> inputs, outputs;            // of Forward
  std::vector<WideCopy> read_inputs, read_outputs;  // of Backward
  std::vector<WideCopy> input_gradients, output_gradients;
  int64_t forward_scratch_bytes = 0;
  int64_t backward_scratch_bytes = 0;
};

void LayOutForward(const OpSpec& spec, const CastKernels& casts,
                   const Op::Traits& traits, WideCopies* copies) {
  ScratchLayout layout(casts, traits.forward_scratch_bytes);
  for (const TensorType& x : spec.inputs) {
    copies->inputs.push_back(layout.Add(x.dtype, x.count()));
  }
  for (const TensorType& y : spec.outputs) {
    const int in_place = copies->outputs.empty() ? traits.in_place_input : -1;
    if (in_place >= 0 && Is16Bit(y.dtype) &&
        copies->inputs[in_place].exists()) {
      copies->outputs.push_back(copies->inputs[in_place]);
    } else {
      copies->outputs.push_back(layout.Add(y.dtype, y.count()));
    }
  }
  copies->forward_scratch_bytes = layout.end();
}

void LayOutBackward(const OpSpec& spec, const CastKernels& casts,
                    const Op::Traits& traits, WideCopies* copies) {
  ScratchLayout layout(casts, traits.backward_scratch_bytes);
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const TensorType& x = spec.inputs[i];
    const bool is_read = HasPosition(traits.backward_inputs, i);
    copies->read_inputs.push_back(is_read ? layout.Add(x.dtype, x.count())
                                          : WideCopy());
    copies->input_gradients.push_back(
        spec.WantsGradient(i) ? layout.Add(x.gradient_dtype, x.count())
                              : WideCopy());
  }
  for (size_t i = 0; i < spec.outputs.size(); ++i) {
    const TensorType& y = spec.outputs[i];
    const bool is_read = HasPosition(traits.backward_outputs, i);
    copies->read_outputs.push_back(is_read ? layout.Add(y.dtype, y.count())
                                           : WideCopy());
    copies->output_gradients.push_back(
        layout.Add(y.gradient_dtype, spec.WantsAnyGradient() ? y.count() : 0));
  }
  copies->backward_scratch_bytes = layout.end();
}

class WidenedOp : public Op {
 public:
  WidenedOp(const Traits& traits, std::unique_ptr<Op> op, WideCopies copies)
      : Op(traits),
        op_(std::move(op)),
        copies_(std::move(copies)),
        inputs_(copies_.inputs.size()),
        outputs_(copies_.outputs.size()),
        input_gradients_(copies_.inputs.size()),
        output_gradients_(copies_.outputs.size()) {}

  absl::Status Forward(const Tensors& t) override {
    if (traits().is_view) {  // the same bits
      t.stream->Copy(t.outputs[0], t.inputs[0],
                     copies_.inputs[0].count * kNarrowBytes);
      return absl::OkStatus();
    }
    WidenInputs(t, copies_.inputs);
    for (size_t i = 0; i < outputs_.size(); ++i) {
      outputs_[i] = Instead(copies_.outputs[i], t.outputs[i], t.scratch);
    }
    SYNCLINE_RETURN_IF_ERROR(op_->Forward(Wide(t)));
    for (size_t i = 0; i < outputs_.size(); ++i) {
      Narrow(*t.stream, copies_.outputs[i], outputs_[i], t.outputs[i]);
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    WidenInputs(t, copies_.read_inputs);
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const WideCopy& y = copies_.read_outputs[i];
      outputs_[i] = Instead(y, t.outputs[i], t.scratch);
      Widen(*t.stream, y, t.outputs[i], outputs_[i]);
      const WideCopy& dy = copies_.output_gradients[i];
      const float* const narrow = i < g.outputs.size() ? g.outputs[i] : nullptr;
      float* const wide = static_cast<float*>(
          Instead(dy, const_cast<float*>(narrow), t.scratch));
      Widen(*t.stream, dy, narrow, wide);
      output_gradients_[i] = wide;
    }
    // From the last to the first, as Backward writes them.
    for (size_t i = input_gradients_.size(); i-- > 0;) {
      const WideCopy& dx = copies_.input_gradients[i];
      const size_t later = LaterAt(g, i);
      if (later > i) {
        input_gradients_[i] = input_gradients_[later];
        continue;
      }
      input_gradients_[i] =
          static_cast<float*>(Instead(dx, g.in(i), t.scratch));
      if (g.accumulate(i)) Widen(*t.stream, dx, g.in(i), input_gradients_[i]);
    }
    SYNCLINE_RETURN_IF_ERROR(
        op_->Backward(Wide(t), {.outputs = output_gradients_,
                                .inputs = input_gradients_,
                                .accumulates = g.accumulates}));
    for (size_t i = input_gradients_.size(); i-- > 0;) {
      if (LaterAt(g, i) > i) continue;
      Narrow(*t.stream, copies_.input_gradients[i], input_gradients_[i],
             g.in(i));
    }
    return absl::OkStatus();
  }

  absl::Status Explain(const DataError& error) const override {
    return op_->Explain(error);
  }

 private:
  // The address that the Op gets for an array.
  static void* Instead(const WideCopy& copy, void* array, void* scratch) {
    return array != nullptr && copy.exists() ? copy.At(scratch) : array;
  }
  static void Widen(Stream& stream, const WideCopy& copy, const void* array,
                    void* wide) {
    if (array == nullptr || !copy.exists()) return;
    copy.widen(stream, copy.count, array, wide);
  }
  static void Narrow(Stream& stream, const WideCopy& copy, const void* wide,
                     void* array) {
    if (array == nullptr || !copy.exists()) return;
    copy.narrow(stream, copy.count, wide, array);
  }
  // Where one value is several inputs, their gradients are one array. It has
  // one copy, so that it is rounded once: that of the last input. `i` itself if
  // there is no later one.
  static size_t LaterAt(const Gradients& g, size_t i) {
    size_t later = i;
    for (size_t k = i + 1; k < g.inputs.size(); ++k) {
      if (g.in(i) != nullptr && g.in(k) == g.in(i)) later = k;
    }
    return later;
  }

  void WidenInputs(const Tensors& t, const std::vector<WideCopy>& copies) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      void* const array = const_cast<void*>(t.inputs[i]);
      void* const wide = Instead(copies[i], array, t.scratch);
      Widen(*t.stream, copies[i], array, wide);
      inputs_[i] = wide;
    }
  }
  Tensors Wide(const Tensors& t) const {
    Tensors wide = t;
    wide.inputs = inputs_;
    wide.outputs = outputs_;
    return wide;
  }

  const std::unique_ptr<Op> op_;
  const WideCopies copies_;
  // Arguments of the call that runs, so that it allocates nothing.
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<float*> input_gradients_;
  std::vector<const float*> output_gradients_;
};

// An Op whose kernels take the types of a plan: it is told them.
class NarrowOp : public Op {
 public:
  NarrowOp(const Traits& traits, const OpSpec& spec, std::unique_ptr<Op> op)
      : Op(traits), op_(std::move(op)) {
    for (const TensorType& x : spec.inputs) {
      input_types_.push_back(FloatTypeOf(x.dtype));
      input_gradient_types_.push_back(x.gradient_dtype);
    }
    for (const TensorType& y : spec.outputs) {
      output_types_.push_back(FloatTypeOf(y.dtype));
      output_gradient_types_.push_back(y.gradient_dtype);
    }
  }

  absl::Status Forward(const Tensors& t) override {
    return op_->Forward(Typed(t));
  }
  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    Gradients typed = g;
    typed.output_types = output_gradient_types_;
    typed.input_types = input_gradient_types_;
    return op_->Backward(Typed(t), typed);
  }
  absl::Status Explain(const DataError& error) const override {
    return op_->Explain(error);
  }

 private:
  // Arrays of integers are no Floats.
  static DType FloatTypeOf(DType type) {
    return Is16Bit(type) ? type : DType::kFloat32;
  }
  Tensors Typed(const Tensors& t) const {
    Tensors typed = t;
    typed.input_types = input_types_;
    typed.output_types = output_types_;
    return typed;
  }

  const std::unique_ptr<Op> op_;
  std::vector<DType> input_types_, output_types_;
  std::vector<DType> input_gradient_types_, output_gradient_types_;
};

// One value is two inputs, and its gradient, which each of them adds to, has 16
// bits: it would be rounded twice.
bool RoundsAGradientTwice(const OpSpec& spec) {
  const std::vector<ValueId>& values = spec.node->inputs;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!spec.WantsGradient(i) || !Is16Bit(spec.input(i).gradient_dtype)) {
      continue;
    }
    if (std::count(values.begin(), values.end(), values[i]) > 1) return true;
  }
  return false;
}

// kFloat32 if there is none.
DType NarrowTypeOf(const OpSpec& spec) {
  for (const auto* types : {&spec.inputs, &spec.outputs}) {
    for (const TensorType& type : *types) {
      if (Is16Bit(type.dtype)) return type.dtype;
      if (Is16Bit(type.gradient_dtype)) return type.gradient_dtype;
    }
  }
  return DType::kFloat32;
}

// Of a convolution (OpSpec::has_narrow_factors); the others do not ask.
bool HasNarrowFactors(const OpSpec& spec) {
  return Is16Bit(spec.input(0).dtype) && Is16Bit(spec.input(1).dtype) &&
         (!spec.WantsAnyGradient() || Is16Bit(spec.output(0).gradient_dtype));
}

OpSpec InFloat32(const OpSpec& spec) {
  OpSpec wide = spec;
  wide.has_narrow_factors = HasNarrowFactors(spec);
  for (auto* types : {&wide.inputs, &wide.outputs}) {
    for (TensorType& type : *types) {
      if (Is16Bit(type.dtype)) type.dtype = DType::kFloat32;
      type.gradient_dtype = DType::kFloat32;
    }
  }
  return wide;
}

// Arrays share memory only if they have one type.
Op::Traits SharedByType(const OpSpec& spec, const Op::Traits& op) {
  Op::Traits traits = op;
  const TensorType& y = spec.output(0);
  const int in_place = traits.in_place_input;
  if (in_place >= 0 && spec.input(in_place).dtype != y.dtype) {
    traits.in_place_input = -1;
  }
  traits.is_view = op.is_view && spec.input(0).dtype == y.dtype;
  traits.gradient_in_place =
      op.gradient_in_place && spec.input(0).gradient_dtype == y.gradient_dtype;
  return traits;
}

// Of an Op for float32 that computes `spec`.
Op::Traits TraitsOf(const OpSpec& spec, const Op::Traits& op,
                    const WideCopies& copies) {
  Op::Traits traits = SharedByType(spec, op);
  traits.forward_scratch_bytes =
      traits.is_view ? 0 : copies.forward_scratch_bytes;
  traits.backward_scratch_bytes = copies.backward_scratch_bytes;
  return traits;
}

absl::StatusOr<std::unique_ptr<Op>> CreateWidenedOp(const OpSpec& spec,
                                                    DType type) {
  SYNCLINE_ASSIGN_OR_RETURN(std::unique_ptr<Op> op, CreateOp(InFloat32(spec)));
  const CastKernels* const casts = spec.kernels().cast;
  absl::Status has_casts = spec.RequireKernels(casts);
  if (has_casts.ok()) {
    has_casts = spec.RequireKernels(casts->casts[type][DType::kFloat32],
                                    casts->casts[DType::kFloat32][type]);
  }
  if (!has_casts.ok()) return Annotate(has_casts, Describe(*spec.node));
  WideCopies copies;
  LayOutForward(spec, *casts, op->traits(), &copies);
  LayOutBackward(spec, *casts, op->traits(), &copies);
  const Op::Traits traits = TraitsOf(spec, op->traits(), copies);
  return std::make_unique<WidenedOp>(traits, std::move(op), std::move(copies));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> CreateTypedOp(const OpSpec& spec) {
  if (spec.node->op_type == kCastTo16Bits) {
    auto cast = FindOp("Cast")->make(spec);
    if (!cast.ok()) return Annotate(cast.status(), Describe(*spec.node));
    return cast;
  }
  const DType type = NarrowTypeOf(spec);
  if (spec.node->domain == kFusedDomain) {
    SYNCLINE_ASSIGN_OR_RETURN(std::unique_ptr<Op> op, CreateFusedOp(spec));
    if (type == DType::kFloat32) return op;
    const Op::Traits traits = SharedByType(spec, op->traits());
    return std::make_unique<NarrowOp>(traits, spec, std::move(op));
  }
  if (type == DType::kFloat32) return CreateOp(spec);
  if (spec.device->computes_in(spec.node->op_type, type) &&
      !RoundsAGradientTwice(spec)) {
    absl::StatusOr<std::unique_ptr<Op>> op = CreateOp(spec);
    if (op.ok()) {
      const Op::Traits traits = SharedByType(spec, (*op)->traits());
      return std::make_unique<NarrowOp>(traits, spec, *std::move(op));
    }
    if (!absl::IsUnimplemented(op.status())) return op;
  }
  return CreateWidenedOp(spec, type);
}

}  // namespace syncline::worker

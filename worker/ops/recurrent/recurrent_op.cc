// RNN, GRU and LSTM.

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/recurrent_kernels.h"
#include "worker/ops/op.h"
#include "worker/ops/recurrent/rnn_activation.h"

namespace syncline::worker {
namespace {

// The inputs, as ONNX has them.
enum Input : size_t { kX, kW, kR, kBias, kLengths, kH, kC, kPeepholes };

absl::Status CheckDims(const OpSpec& spec, size_t input, const Dims& want) {
  const TensorType& type = spec.input(input);
  if (!type.present || type.dims == want) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("input ", input, " is ", DimsToString(type.dims),
                   "; it must be ", DimsToString(want)));
}

absl::Status CheckTypes(const OpSpec& spec) {
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const DType want = i == kLengths ? DType::kInt32 : DType::kFloat32;
    if (!spec.input(i).present || spec.input(i).dtype == want) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("input ", i, " is ", DTypeName(spec.input(i).dtype),
                     "; it must be ", DTypeName(want)));
  }
  return absl::OkStatus();
}

absl::Status ReadDirection(const Node& node, RecurrentShape* s) {
  const std::string direction = node.String("direction", "forward");
  if (direction != "forward" && direction != "reverse" &&
      direction != "bidirectional") {
    return absl::InvalidArgumentError(
        absl::StrCat("direction is \"", direction,
                     "\"; it must be forward, reverse or bidirectional"));
  }
  s->reversed = direction == "reverse";
  s->directions = direction == "bidirectional" ? 2 : 1;
  return absl::OkStatus();
}

absl::Status ReadFunctions(const Node& node,
                           absl::Span<const RnnActivation::Kind> usual,
                           RecurrentShape* s) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<RnnActivation> functions,
                            RnnActivationsOf(node, s->directions, usual));
  s->has_usual_functions = !node.Has("clip");
  for (size_t i = 0; i < functions.size(); ++i) {
    s->has_usual_functions &= functions[i].kind == usual[i % usual.size()];
    s->functions.push_back(functions[i]);
  }
  return absl::OkStatus();
}

// Checks inputs and attributes that the three have, against a cell of this many
// gates that usually has these functions. Errors: InvalidArgument.
absl::StatusOr<RecurrentShape> ShapeOf(
    const OpSpec& spec, RecurrentCell cell, int64_t gates,
    absl::Span<const RnnActivation::Kind> usual) {
  SYNCLINE_RETURN_IF_ERROR(CheckTypes(spec));
  const Node& node = *spec.node;
  const Dims& x = spec.input(kX).dims;
  const Dims& r = spec.input(kR).dims;
  if (x.size() != 3 || r.size() != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("inputs 0 and 2 are ", DimsToString(x), " and ",
                     DimsToString(r), "; they must have 3 dimensions"));
  }
  RecurrentShape s;
  s.cell = cell;
  s.gates = gates;
  s.batch_first = node.Int("layout", 0) != 0;
  s.steps = x[s.batch_first ? 1 : 0];
  s.samples = x[s.batch_first ? 0 : 1];
  s.width = x[2];
  s.hidden = r[2];
  s.has_bias = spec.input(kBias).present;
  s.has_lengths = spec.input(kLengths).present;
  s.has_peepholes = spec.input(kPeepholes).present;
  s.scales_product = node.Int("linear_before_reset", 0) != 0;
  s.couples_gates = node.Int("input_forget", 0) != 0;
  s.wants_gradients = spec.WantsAnyGradient();
  s.wants_dx = spec.WantsGradient(kX);
  s.wants_dw = spec.WantsGradient(kW);
  SYNCLINE_RETURN_IF_ERROR(ReadDirection(node, &s));
  const int64_t hidden = node.Int("hidden_size", s.hidden);
  if (hidden != s.hidden) {
    return absl::InvalidArgumentError(absl::StrCat(
        "hidden_size is ", hidden, ", but input 2 is ", DimsToString(r)));
  }
  const int64_t d = s.directions;
  const Dims state = s.batch_first ? Dims{s.samples, d, s.hidden}
                                   : Dims{d, s.samples, s.hidden};
  const std::pair<size_t, Dims> dims[] = {{kW, {d, s.gate_row(), s.width}},
                                          {kR, {d, s.gate_row(), s.hidden}},
                                          {kBias, {d, 2 * s.gate_row()}},
                                          {kLengths, {s.samples}},
                                          {kH, state},
                                          {kC, state},
                                          {kPeepholes, {d, 3 * s.hidden}}};
  for (const auto& [input, want] : dims) {
    SYNCLINE_RETURN_IF_ERROR(CheckDims(spec, input, want));
  }
  SYNCLINE_RETURN_IF_ERROR(ReadFunctions(node, usual, &s));
  return s;
}

Op::Traits TraitsOf(const RecurrentShape& s, const RecurrentLayer& layer) {
  Op::Traits traits;
  traits.backward_inputs = 1u << kR;
  if (s.has_peepholes) traits.backward_inputs |= 1u << kPeepholes;
  if (s.has_lengths) traits.backward_inputs |= 1u << kLengths;
  if (s.wants_dx) traits.backward_inputs |= 1u << kW;
  if (s.wants_dw && !s.copies_input()) traits.backward_inputs |= 1u << kX;
  traits.workspace_bytes = layer.workspace_bytes();
  traits.forward_scratch_bytes = layer.forward_scratch_bytes();
  traits.backward_scratch_bytes = layer.backward_scratch_bytes();
  return traits;
}

class RecurrentOp : public Op {
 public:
  RecurrentOp(const RecurrentShape& shape,
              std::unique_ptr<RecurrentLayer> layer)
      : Op(TraitsOf(shape, *layer)),
        steps_(shape.steps),
        layer_(std::move(layer)) {}

  absl::Status Forward(const Tensors& t) override {
    return layer_->Forward(*t.stream, ArraysOf(t));
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const auto of_output = [&](size_t i) {
      return i < g.outputs.size() ? g.outputs[i] : nullptr;
    };
    const auto of_input = [&](size_t i) {
      return RecurrentGradients::Into{g.in(i), g.accumulate(i)};
    };
    return layer_->Backward(*t.stream, ArraysOf(t),
                            {.dy = of_output(0),
                             .dlast_h = of_output(1),
                             .dlast_c = of_output(2),
                             .x = of_input(kX),
                             .w = of_input(kW),
                             .r = of_input(kR),
                             .bias = of_input(kBias),
                             .h = of_input(kH),
                             .c = of_input(kC),
                             .peepholes = of_input(kPeepholes)});
  }

  absl::Status Explain(const DataError& error) const override {
    return absl::InvalidArgumentError(
        absl::StrCat("length ", error.value, " of sample ", error.position,
                     " is not within the ", steps_, " steps"));
  }

 private:
  static RecurrentTensors ArraysOf(const Tensors& t) {
    return {.x = t.in(kX),
            .w = t.in(kW),
            .r = t.in(kR),
            .bias = t.in(kBias),
            .lengths = t.inputs.size() > kLengths
                           ? static_cast<const int32_t*>(t.inputs[kLengths])
                           : nullptr,
            .h = t.in(kH),
            .c = t.in(kC),
            .peepholes = t.in(kPeepholes),
            .y = t.out(0),
            .last_h = t.out(1),
            .last_c = t.out(2),
            .workspace = t.workspace,
            .scratch = t.scratch,
            .errors = t.errors};
  }

  const int64_t steps_;
  const std::unique_ptr<RecurrentLayer> layer_;
};

absl::StatusOr<std::unique_ptr<Op>> MakeRecurrent(
    const OpSpec& spec, RecurrentCell cell, int64_t gates,
    absl::Span<const RnnActivation::Kind> usual) {
  const RecurrentKernels* const family = spec.kernels().recurrent;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family->make));
  SYNCLINE_ASSIGN_OR_RETURN(const RecurrentShape shape,
                            ShapeOf(spec, cell, gates, usual));
  SYNCLINE_ASSIGN_OR_RETURN(std::unique_ptr<RecurrentLayer> layer,
                            family->make(*spec.device, shape));
  return std::make_unique<RecurrentOp>(shape, std::move(layer));
}

using Kind = RnnActivation::Kind;

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeRNN(const OpSpec& spec) {
  return MakeRecurrent(spec, RecurrentCell::kRnn, /*gates=*/1, {Kind::kTanh});
}

absl::StatusOr<std::unique_ptr<Op>> MakeGRU(const OpSpec& spec) {
  return MakeRecurrent(spec, RecurrentCell::kGru, /*gates=*/3,
                       {Kind::kSigmoid, Kind::kTanh});
}

absl::StatusOr<std::unique_ptr<Op>> MakeLSTM(const OpSpec& spec) {
  return MakeRecurrent(spec, RecurrentCell::kLstm, /*gates=*/4,
                       {Kind::kSigmoid, Kind::kTanh, Kind::kTanh});
}

}  // namespace syncline::worker

#include "worker/ops/recurrent/recurrent_op.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/loop.h"
#include "kernels/elementwise/row_sums.h"
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

int64_t KeptStates(const OpSpec& spec, const RecurrentShape& s) {
  const int64_t all = s.steps + 1;
  return spec.WantsAnyGradient() ? all : std::min<int64_t>(all, 2);
}

float* Floats(void* memory) { return static_cast<float*>(memory); }

// [a, b, n] to [b, a, n].
void SwapLeading(int64_t a, int64_t b, int64_t n, bool accumulate,
                 const float* from, float* to) {
  for (int64_t j = 0; j < b; ++j) {
    for (int64_t i = 0; i < a; ++i) {
      const float* const row = from + (i * b + j) * n;
      Emit(n, accumulate, to + (j * a + i) * n,
           [=](int64_t k) { return row[k]; });
    }
  }
}

}  // namespace

absl::StatusOr<RecurrentShape> MakeRecurrentShape(
    const OpSpec& spec, int64_t gates,
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
  s.gates = gates;
  s.batch_first = node.Int("layout", 0) != 0;
  s.steps = x[s.batch_first ? 1 : 0];
  s.samples = x[s.batch_first ? 0 : 1];
  s.width = x[2];
  s.hidden = r[2];
  s.has_bias = spec.input(kBias).present;
  s.has_lengths = spec.input(kLengths).present;
  s.has_peepholes = spec.input(kPeepholes).present;
  const std::string direction = node.String("direction", "forward");
  if (direction != "forward" && direction != "reverse" &&
      direction != "bidirectional") {
    return absl::InvalidArgumentError(
        absl::StrCat("direction is \"", direction,
                     "\"; it must be forward, reverse or bidirectional"));
  }
  s.reversed = direction == "reverse";
  s.directions = direction == "bidirectional" ? 2 : 1;
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
  SYNCLINE_ASSIGN_OR_RETURN(s.functions, RnnActivationsOf(node, d, usual));
  s.has_usual_functions = !node.Has("clip");
  for (size_t i = 0; i < s.functions.size(); ++i) {
    s.has_usual_functions &= s.functions[i].kind == usual[i % usual.size()];
  }
  return s;
}

RecurrentOp::RecurrentOp(const OpSpec& spec, const RecurrentShape& shape,
                         Kept kept, int64_t cell_scratch)
    : Op(TraitsOf(spec, shape, kept, cell_scratch)),
      shape_(shape),
      kept_(kept),
      wants_(spec.wants_gradient),
      has_gradients_(spec.WantsAnyGradient()),
      kept_states_(KeptStates(spec, shape)) {}

Op::Traits RecurrentOp::TraitsOf(const OpSpec& spec, const RecurrentShape& s,
                                 Kept kept, int64_t cell_scratch) {
  Traits traits;
  traits.backward_inputs = 1u << kR;
  if (s.has_peepholes) traits.backward_inputs |= 1u << kPeepholes;
  if (s.has_lengths) traits.backward_inputs |= 1u << kLengths;
  if (spec.WantsGradient(kX)) traits.backward_inputs |= 1u << kW;
  if (spec.WantsGradient(kW) && !s.copies_input()) {
    traits.backward_inputs |= 1u << kX;
  }
  const int64_t input = s.rows() * s.width;
  const int64_t copied = s.copies_input() ? input : 0;
  const int64_t states = kept == Kept::kNothing ? 1 : 2;
  const int64_t direction =
      s.rows() * s.gate_row() + states * KeptStates(spec, s) * s.state();
  traits.workspace_bytes = (s.directions * direction + copied) * sizeof(float);
  traits.forward_scratch_bytes = (s.gate_row() + cell_scratch) * sizeof(float);
  traits.backward_scratch_bytes =
      (s.rows() * (s.gate_row() + s.hidden) + 4 * s.state() +
       (s.batch_first ? input : 0) + cell_scratch) *
      sizeof(float);
  return traits;
}

absl::Status RecurrentOp::Compile() {
  const RecurrentShape& s = shape_;
  SYNCLINE_ASSIGN_OR_RETURN(input_product_,
                            Gemm::Create({.m = s.rows(),
                                          .n = s.gate_row(),
                                          .k = s.width,
                                          .transpose_b = true,
                                          .has_bias = s.has_bias}));
  if (has_gradients() && wants_[kX]) {
    SYNCLINE_ASSIGN_OR_RETURN(
        dx_, Gemm::Create({.m = s.rows(), .n = s.width, .k = s.gate_row()}));
  }
  if (has_gradients() && wants_[kW]) {
    SYNCLINE_ASSIGN_OR_RETURN(dw_, Gemm::Create({.m = s.gate_row(),
                                                 .n = s.width,
                                                 .k = s.rows(),
                                                 .transpose_a = true}));
  }
  return CompileCell();
}

absl::Status RecurrentOp::CompileCell() {
  const RecurrentShape& s = shape_;
  SYNCLINE_ASSIGN_OR_RETURN(state_product_,
                            Gemm::Create({.m = s.samples,
                                          .n = s.gate_row(),
                                          .k = s.hidden,
                                          .transpose_b = true}));
  if (!has_gradients()) return absl::OkStatus();
  SYNCLINE_ASSIGN_OR_RETURN(
      dh_, Gemm::Create({.m = s.samples, .n = s.hidden, .k = s.gate_row()}));
  SYNCLINE_ASSIGN_OR_RETURN(dr_, Gemm::Create({.m = s.gate_row(),
                                               .n = s.hidden,
                                               .k = s.rows(),
                                               .transpose_a = true}));
  return absl::OkStatus();
}

absl::Status RecurrentOp::AddStateProduct(const Step& s) {
  return state_product_->Accumulate(s.h_before, s.r, s.gates);
}

absl::Status RecurrentOp::AddStateGradient(const Step& s,
                                           const StepGradient& g) {
  return dh_->Accumulate(g.dgates, s.r, g.dh);
}

absl::Status RecurrentOp::AddRecurrentGradient(const RecurrentGradient& g) {
  if (g.dbias != nullptr) {
    AddRowSums(g.dgates, shape_.gate_row(), shape_.gate_row(), g.dbias);
  }
  if (g.dr == nullptr) return absl::OkStatus();
  return dr_->Accumulate(g.dgates, g.h_before, g.dr);
}

void RecurrentOp::AddRowSums(const float* d, int64_t stride, int64_t count,
                             float* out) const {
  constexpr int64_t kWidth = ShortRowSums::kWidth;
  for (int64_t c = 0; c < count; c += kWidth) {
    ShortRowSums sums(std::min(kWidth, count - c));
    for (int64_t row = 0; row < shape_.rows(); ++row) {
      sums->Add([at = d + row * stride + c](int64_t i) { return at[i]; });
    }
    sums->Write(/*accumulate=*/true, out + c);
  }
}

RecurrentOp::Direction RecurrentOp::DirectionOf(const Tensors& t,
                                                int64_t index) const {
  const int64_t gates = shape_.rows() * shape_.gate_row();
  const int64_t states = kept_states_ * shape_.state();
  const bool keeps = kept_ != Kept::kNothing;
  Direction d;
  d.index = index;
  d.backwards = shape_.directions == 2 ? index == 1 : shape_.reversed;
  d.gates =
      Floats(t.workspace) + index * (gates + states + (keeps ? states : 0));
  d.h = d.gates + gates;
  d.kept = keeps ? d.h + states : nullptr;
  return d;
}

const float* RecurrentOp::TimeMajorInput(const Tensors& t) const {
  if (!shape_.copies_input()) return t.in(kX);
  return DirectionOf(t, shape_.directions).gates;  // after the last one's
}

RecurrentOp::Step RecurrentOp::StepAt(const Tensors& t, const Direction& d,
                                      int64_t time, float* scratch) const {
  const int64_t state = shape_.state();
  const int64_t before = (d.backwards ? time + 1 : time) % kept_states_;
  const int64_t after = (d.backwards ? time : time + 1) % kept_states_;
  Step s;
  s.gates = d.gates + time * shape_.samples * shape_.gate_row();
  s.h_before = d.h + before * state;
  s.h = d.h + after * state;
  s.kept_before = d.kept == nullptr ? nullptr : d.kept + before * state;
  s.kept = d.kept == nullptr ? nullptr : d.kept + after * state;
  s.r = t.in(kR) + d.index * shape_.gate_row() * shape_.hidden;
  s.r_bias = t.in(kBias) == nullptr
                 ? nullptr
                 : t.in(kBias) + (2 * d.index + 1) * shape_.gate_row();
  s.peepholes = shape_.has_peepholes
                    ? t.in(kPeepholes) + d.index * 3 * shape_.hidden
                    : nullptr;
  s.functions = shape_.functions.data() +
                d.index * (shape_.functions.size() / shape_.directions);
  s.scratch = scratch;
  return s;
}

bool RecurrentOp::Holds(const Tensors& t, int64_t time, int64_t sample) const {
  return shape_.has_lengths &&
         time >= static_cast<const int32_t*>(t.inputs[kLengths])[sample];
}

absl::Status RecurrentOp::CheckLengths(const Tensors& t) const {
  if (!shape_.has_lengths) return absl::OkStatus();
  const auto* const lengths = static_cast<const int32_t*>(t.inputs[kLengths]);
  for (int64_t n = 0; n < shape_.samples; ++n) {
    if (lengths[n] >= 0 && lengths[n] <= shape_.steps) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("length ", lengths[n], " of sample ", n,
                     " is not within the ", shape_.steps, " steps"));
  }
  return absl::OkStatus();
}

int64_t RecurrentOp::StateOffset(int64_t direction, int64_t sample) const {
  return shape_.hidden * (shape_.batch_first
                              ? sample * shape_.directions + direction
                              : direction * shape_.samples + sample);
}

int64_t RecurrentOp::OutputOffset(int64_t time, int64_t direction,
                                  int64_t sample) const {
  const int64_t outer =
      shape_.batch_first ? sample * shape_.steps + time : time;
  const int64_t row = outer * shape_.directions + direction;
  return shape_.hidden *
         (shape_.batch_first ? row : row * shape_.samples + sample);
}

void RecurrentOp::ReadState(const float* from, int64_t direction,
                            float* to) const {
  if (from == nullptr) {
    std::fill_n(to, shape_.state(), 0.0f);
    return;
  }
  for (int64_t n = 0; n < shape_.samples; ++n, to += shape_.hidden) {
    std::copy_n(from + StateOffset(direction, n), shape_.hidden, to);
  }
}

void RecurrentOp::WriteState(const float* from, int64_t direction,
                             float* to) const {
  if (to == nullptr) return;
  for (int64_t n = 0; n < shape_.samples; ++n, from += shape_.hidden) {
    std::copy_n(from, shape_.hidden, to + StateOffset(direction, n));
  }
}

void RecurrentOp::AddState(const float* from, int64_t direction,
                           float* to) const {
  if (to == nullptr) return;
  for (int64_t n = 0; n < shape_.samples; ++n, from += shape_.hidden) {
    Emit(shape_.hidden, /*accumulate=*/true, to + StateOffset(direction, n),
         [=](int64_t i) { return from[i]; });
  }
}

// The biases that the input's products of one direction have added to them;
// null: none.
const float* RecurrentOp::SumBiases(const Tensors& t, int64_t direction,
                                    float* sums) const {
  if (!shape_.has_bias) return nullptr;
  const int64_t n = shape_.gate_row();
  const float* const of_input = t.in(kBias) + 2 * direction * n;
  const float* const of_state = of_input + n;
  for (int64_t i = 0; i < n; ++i) {
    const bool folds = FoldsStateBias(i / shape_.hidden);
    sums[i] = of_input[i] + (folds ? of_state[i] : 0.0f);
  }
  return sums;
}

absl::Status RecurrentOp::Forward(const Tensors& t) {
  SYNCLINE_RETURN_IF_ERROR(CheckLengths(t));
  if (shape_.copies_input()) CopyInput(t);
  for (int64_t i = 0; i < shape_.directions; ++i) {
    const Direction d = DirectionOf(t, i);
    SYNCLINE_RETURN_IF_ERROR(RunDirection(t, d));
  }
  return absl::OkStatus();
}

void RecurrentOp::CopyInput(const Tensors& t) const {
  float* row = DirectionOf(t, shape_.directions).gates;
  if (shape_.batch_first) {
    SwapLeading(shape_.samples, shape_.steps, shape_.width,
                /*accumulate=*/false, t.in(kX), row);
  } else {
    std::copy_n(t.in(kX), shape_.rows() * shape_.width, row);
  }
  if (!shape_.has_lengths) return;
  for (int64_t time = 0; time < shape_.steps; ++time) {
    for (int64_t n = 0; n < shape_.samples; ++n, row += shape_.width) {
      if (Holds(t, time, n)) std::fill_n(row, shape_.width, 0.0f);
    }
  }
}

absl::Status RecurrentOp::RunDirection(const Tensors& t, const Direction& d) {
  float* const scratch = Floats(t.scratch);
  SYNCLINE_RETURN_IF_ERROR(input_product_->Run(
      TimeMajorInput(t), t.in(kW) + d.index * shape_.gate_row() * shape_.width,
      SumBiases(t, d.index, scratch), d.gates));
  const auto place = [&](int64_t state) {
    return state % kept_states_ * shape_.state();
  };
  const int64_t first = place(d.backwards ? shape_.steps : 0);
  ReadState(t.in(kH), d.index, d.h + first);
  if (kept_ == Kept::kMemory) ReadState(t.in(kC), d.index, d.kept + first);
  for (int64_t i = 0; i < shape_.steps; ++i) {
    const int64_t time = TimeOf(d, i);
    const Step s = StepAt(t, d, time, scratch + shape_.gate_row());
    SYNCLINE_RETURN_IF_ERROR(Run(s));
    HoldStates(t, time, s);
    WriteOutput(t, d.index, time, s.h);
  }
  const int64_t last = place(d.backwards ? 0 : shape_.steps);
  WriteState(d.h + last, d.index, t.out(1));
  if (kept_ == Kept::kMemory) WriteState(d.kept + last, d.index, t.out(2));
  return absl::OkStatus();
}

void RecurrentOp::HoldStates(const Tensors& t, int64_t time,
                             const Step& s) const {
  for (int64_t n = 0; n < shape_.samples && shape_.has_lengths; ++n) {
    if (!Holds(t, time, n)) continue;
    const int64_t row = n * shape_.hidden;
    std::copy_n(s.h_before + row, shape_.hidden, s.h + row);
    if (kept_ == Kept::kMemory) {
      std::copy_n(s.kept_before + row, shape_.hidden, s.kept + row);
    }
  }
}

// `h` is the state after this step.
void RecurrentOp::WriteOutput(const Tensors& t, int64_t direction, int64_t time,
                              const float* h) const {
  if (t.out(0) == nullptr) return;
  for (int64_t n = 0; n < shape_.samples; ++n, h += shape_.hidden) {
    float* const y = t.out(0) + OutputOffset(time, direction, n);
    if (Holds(t, time, n)) {
      std::fill_n(y, shape_.hidden, 0.0f);
    } else {
      std::copy_n(h, shape_.hidden, y);
    }
  }
}

RecurrentOp::GradientScratch RecurrentOp::ScratchOf(const Tensors& t) const {
  GradientScratch s;
  s.dgates = Floats(t.scratch);
  s.drecurrent = s.dgates + shape_.rows() * shape_.gate_row();
  s.dh = s.drecurrent + shape_.rows() * shape_.hidden;
  s.dkept = s.dh + shape_.state();
  s.held_dh = s.dkept + shape_.state();
  s.held_dkept = s.held_dh + shape_.state();
  s.dx = s.held_dkept + shape_.state();
  s.step = s.dx + (shape_.batch_first ? shape_.rows() * shape_.width : 0);
  return s;
}

// From here on every gradient is added to, whatever the order in which the
// directions come and whichever inputs are one value.
void RecurrentOp::ClearGradients(const Gradients& g) const {
  const int64_t d = shape_.directions;
  const std::pair<size_t, int64_t> counts[] = {
      {kX, shape_.rows() * shape_.width},
      {kW, d * shape_.gate_row() * shape_.width},
      {kR, d * shape_.gate_row() * shape_.hidden},
      {kBias, 2 * d * shape_.gate_row()},
      {kH, d * shape_.state()},
      {kC, d * shape_.state()},
      {kPeepholes, 3 * d * shape_.hidden}};
  for (const auto& [input, count] : counts) {
    if (g.in(input) == nullptr || g.accumulate(input)) continue;
    std::fill_n(g.in(input), count, 0.0f);
  }
}

absl::Status RecurrentOp::Backward(const Tensors& t, const Gradients& g) {
  ClearGradients(g);
  for (int64_t i = 0; i < shape_.directions; ++i) {
    const Direction d = DirectionOf(t, i);
    SYNCLINE_RETURN_IF_ERROR(RunDirectionGradient(t, g, d));
    SYNCLINE_RETURN_IF_ERROR(AddWeightGradients(t, g, d));
    SYNCLINE_RETURN_IF_ERROR(AddInputGradient(t, g, d));
  }
  return absl::OkStatus();
}

absl::Status RecurrentOp::RunDirectionGradient(const Tensors& t,
                                               const Gradients& g,
                                               const Direction& d) {
  const auto of_output = [&](size_t i) {
    return i < g.outputs.size() ? g.outputs[i] : nullptr;
  };
  const GradientScratch scratch = ScratchOf(t);
  ReadState(of_output(1), d.index, scratch.dh);
  ReadState(of_output(2), d.index, scratch.dkept);
  for (int64_t i = shape_.steps; i-- > 0;) {
    const int64_t time = TimeOf(d, i);
    AddOutputGradient(t, of_output(0), d.index, time, scratch.dh);
    if (shape_.has_lengths) {
      std::copy_n(scratch.dh, shape_.state(), scratch.held_dh);
      std::copy_n(scratch.dkept, shape_.state(), scratch.held_dkept);
    }
    const int64_t row = time * shape_.samples;
    SYNCLINE_RETURN_IF_ERROR(
        RunGradient(StepAt(t, d, time, scratch.step),
                    {.dgates = scratch.dgates + row * shape_.gate_row(),
                     .drecurrent = scratch.drecurrent + row * shape_.hidden,
                     .dh = scratch.dh,
                     .dkept = scratch.dkept}));
    HoldGradients(t, time, scratch);
  }
  AddState(scratch.dh, d.index, g.in(kH));
  AddState(scratch.dkept, d.index, g.in(kC));
  return absl::OkStatus();
}

void RecurrentOp::AddOutputGradient(const Tensors& t, const float* dy,
                                    int64_t direction, int64_t time,
                                    float* dh) const {
  if (dy == nullptr) return;
  for (int64_t n = 0; n < shape_.samples; ++n, dh += shape_.hidden) {
    if (Holds(t, time, n)) continue;
    const float* const row = dy + OutputOffset(time, direction, n);
    Emit(shape_.hidden, /*accumulate=*/true, dh,
         [=](int64_t i) { return row[i]; });
  }
}

// A step that was none has no gradient, and passes on those of its states.
void RecurrentOp::HoldGradients(const Tensors& t, int64_t time,
                                const GradientScratch& scratch) const {
  for (int64_t n = 0; n < shape_.samples && shape_.has_lengths; ++n) {
    if (!Holds(t, time, n)) continue;
    const int64_t row = time * shape_.samples + n;
    std::fill_n(scratch.dgates + row * shape_.gate_row(), shape_.gate_row(),
                0.0f);
    std::fill_n(scratch.drecurrent + row * shape_.hidden, shape_.hidden, 0.0f);
    const int64_t at = n * shape_.hidden;
    std::copy_n(scratch.held_dh + at, shape_.hidden, scratch.dh + at);
    std::copy_n(scratch.held_dkept + at, shape_.hidden, scratch.dkept + at);
  }
}

absl::Status RecurrentOp::AddWeightGradients(const Tensors& t,
                                             const Gradients& g,
                                             const Direction& d) {
  const GradientScratch scratch = ScratchOf(t);
  const int64_t n = shape_.gate_row();
  const int64_t before = d.backwards ? shape_.state() : 0;
  RecurrentGradient recurrent;
  recurrent.dgates = scratch.dgates;
  recurrent.drecurrent = scratch.drecurrent;
  recurrent.h_before = d.h + before;
  recurrent.kept_before = d.kept == nullptr ? nullptr : d.kept + before;
  recurrent.kept =
      d.kept == nullptr ? nullptr : d.kept + shape_.state() - before;
  recurrent.dr =
      g.in(kR) == nullptr ? nullptr : g.in(kR) + d.index * n * shape_.hidden;
  recurrent.dbias =
      g.in(kBias) == nullptr ? nullptr : g.in(kBias) + (2 * d.index + 1) * n;
  recurrent.dpeepholes = g.in(kPeepholes) == nullptr
                             ? nullptr
                             : g.in(kPeepholes) + d.index * 3 * shape_.hidden;
  SYNCLINE_RETURN_IF_ERROR(AddRecurrentGradient(recurrent));
  if (g.in(kBias) != nullptr) {
    AddRowSums(scratch.dgates, n, n, g.in(kBias) + 2 * d.index * n);
  }
  if (g.in(kW) == nullptr) return absl::OkStatus();
  return dw_->Accumulate(scratch.dgates, TimeMajorInput(t),
                         g.in(kW) + d.index * n * shape_.width);
}

absl::Status RecurrentOp::AddInputGradient(const Tensors& t, const Gradients& g,
                                           const Direction& d) {
  if (g.in(kX) == nullptr) return absl::OkStatus();
  const GradientScratch scratch = ScratchOf(t);
  const float* const w = t.in(kW) + d.index * shape_.gate_row() * shape_.width;
  if (!shape_.batch_first) {
    return dx_->Accumulate(scratch.dgates, w, g.in(kX));
  }
  SYNCLINE_RETURN_IF_ERROR(
      dx_->Run(scratch.dgates, w, /*bias=*/nullptr, scratch.dx));
  SwapLeading(shape_.steps, shape_.samples, shape_.width, /*accumulate=*/true,
              scratch.dx, g.in(kX));
  return absl::OkStatus();
}

}  // namespace syncline::worker

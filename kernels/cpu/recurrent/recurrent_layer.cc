#include "kernels/cpu/recurrent/recurrent_layer.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/report.h"
#include "kernels/elementwise/loop.h"
#include "kernels/elementwise/row_sums.h"

namespace syncline {
namespace {

int64_t KeptStates(const RecurrentShape& s) {
  const int64_t all = s.steps + 1;
  return s.wants_gradients ? all : std::min<int64_t>(all, 2);
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

CpuRecurrentLayer::CpuRecurrentLayer(const RecurrentShape& shape, Kept kept,
                                     int64_t cell_scratch)
    : shape_(shape),
      kept_(kept),
      cell_scratch_(cell_scratch),
      kept_states_(KeptStates(shape)) {}

int64_t CpuRecurrentLayer::workspace_bytes() const {
  const RecurrentShape& s = shape_;
  const int64_t copied = s.copies_input() ? s.rows() * s.width : 0;
  const int64_t states = kept_ == Kept::kNothing ? 1 : 2;
  const int64_t direction =
      s.rows() * s.gate_row() + states * kept_states_ * s.state();
  return (s.directions * direction + copied) * sizeof(float);
}

int64_t CpuRecurrentLayer::forward_scratch_bytes() const {
  return (shape_.gate_row() + cell_scratch_) * sizeof(float);
}

int64_t CpuRecurrentLayer::backward_scratch_bytes() const {
  const RecurrentShape& s = shape_;
  return (s.rows() * (s.gate_row() + s.hidden) + 4 * s.state() +
          (s.batch_first ? s.rows() * s.width : 0) + cell_scratch_) *
         sizeof(float);
}

absl::Status CpuRecurrentLayer::Compile() {
  const RecurrentShape& s = shape_;
  SYNCLINE_ASSIGN_OR_RETURN(input_product_,
                            Gemm::Create({.m = s.rows(),
                                          .n = s.gate_row(),
                                          .k = s.width,
                                          .transpose_b = true,
                                          .has_bias = s.has_bias}));
  if (s.wants_dx) {
    SYNCLINE_ASSIGN_OR_RETURN(
        dx_, Gemm::Create({.m = s.rows(), .n = s.width, .k = s.gate_row()}));
  }
  if (s.wants_dw) {
    SYNCLINE_ASSIGN_OR_RETURN(dw_, Gemm::Create({.m = s.gate_row(),
                                                 .n = s.width,
                                                 .k = s.rows(),
                                                 .transpose_a = true}));
  }
  return CompileCell();
}

absl::Status CpuRecurrentLayer::CompileCell() {
  const RecurrentShape& s = shape_;
  SYNCLINE_ASSIGN_OR_RETURN(state_product_,
                            Gemm::Create({.m = s.samples,
                                          .n = s.gate_row(),
                                          .k = s.hidden,
                                          .transpose_b = true}));
  if (!s.wants_gradients) return absl::OkStatus();
  SYNCLINE_ASSIGN_OR_RETURN(
      dh_, Gemm::Create({.m = s.samples, .n = s.hidden, .k = s.gate_row()}));
  SYNCLINE_ASSIGN_OR_RETURN(dr_, Gemm::Create({.m = s.gate_row(),
                                               .n = s.hidden,
                                               .k = s.rows(),
                                               .transpose_a = true}));
  return absl::OkStatus();
}

absl::Status CpuRecurrentLayer::AddStateProduct(const Step& s) {
  return state_product_->Accumulate(s.h_before, s.r, s.gates);
}

absl::Status CpuRecurrentLayer::AddStateGradient(const Step& s,
                                                 const StepGradient& g) {
  return dh_->Accumulate(g.dgates, s.r, g.dh);
}

absl::Status CpuRecurrentLayer::AddRecurrentGradient(const WeightGradient& g) {
  if (g.dbias != nullptr) {
    AddRowSums(g.dgates, shape_.gate_row(), shape_.gate_row(), g.dbias);
  }
  if (g.dr == nullptr) return absl::OkStatus();
  return dr_->Accumulate(g.dgates, g.h_before, g.dr);
}

void CpuRecurrentLayer::AddRowSums(const float* d, int64_t stride,
                                   int64_t count, float* out) const {
  constexpr int64_t kWidth = ShortRowSums::kWidth;
  for (int64_t c = 0; c < count; c += kWidth) {
    ShortRowSums sums(std::min(kWidth, count - c));
    for (int64_t row = 0; row < shape_.rows(); ++row) {
      sums->Add([at = d + row * stride + c](int64_t i) { return at[i]; });
    }
    sums->Write(/*accumulate=*/true, out + c);
  }
}

CpuRecurrentLayer::Direction CpuRecurrentLayer::DirectionOf(
    const RecurrentTensors& t, int64_t index) const {
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

const float* CpuRecurrentLayer::TimeMajorInput(
    const RecurrentTensors& t) const {
  if (!shape_.copies_input()) return t.x;
  return DirectionOf(t, shape_.directions).gates;  // after the last one's
}

CpuRecurrentLayer::Step CpuRecurrentLayer::StepAt(const RecurrentTensors& t,
                                                  const Direction& d,
                                                  int64_t time,
                                                  float* scratch) const {
  const int64_t state = shape_.state();
  const int64_t before = (d.backwards ? time + 1 : time) % kept_states_;
  const int64_t after = (d.backwards ? time : time + 1) % kept_states_;
  Step s;
  s.gates = d.gates + time * shape_.samples * shape_.gate_row();
  s.h_before = d.h + before * state;
  s.h = d.h + after * state;
  s.kept_before = d.kept == nullptr ? nullptr : d.kept + before * state;
  s.kept = d.kept == nullptr ? nullptr : d.kept + after * state;
  s.r = t.r + d.index * shape_.gate_row() * shape_.hidden;
  s.r_bias = t.bias == nullptr ? nullptr
                               : t.bias + (2 * d.index + 1) * shape_.gate_row();
  s.peepholes = shape_.has_peepholes ? t.peepholes + d.index * 3 * shape_.hidden
                                     : nullptr;
  s.functions = shape_.functions.data() +
                d.index * (static_cast<int64_t>(shape_.functions.size()) /
                           shape_.directions);
  s.scratch = scratch;
  return s;
}

bool CpuRecurrentLayer::Holds(const RecurrentTensors& t, int64_t time,
                              int64_t sample) const {
  return shape_.has_lengths && time >= t.lengths[sample];
}

void CpuRecurrentLayer::CheckLengths(const RecurrentTensors& t) const {
  if (!shape_.has_lengths) return;
  for (int64_t n = 0; n < shape_.samples; ++n) {
    if (t.lengths[n] >= 0 && t.lengths[n] <= shape_.steps) continue;
    Report(t.errors, /*kind=*/0, n, t.lengths[n]);
  }
}

int64_t CpuRecurrentLayer::StateOffset(int64_t direction,
                                       int64_t sample) const {
  return shape_.hidden * (shape_.batch_first
                              ? sample * shape_.directions + direction
                              : direction * shape_.samples + sample);
}

int64_t CpuRecurrentLayer::OutputOffset(int64_t time, int64_t direction,
                                        int64_t sample) const {
  const int64_t outer =
      shape_.batch_first ? sample * shape_.steps + time : time;
  const int64_t row = outer * shape_.directions + direction;
  return shape_.hidden *
         (shape_.batch_first ? row : row * shape_.samples + sample);
}

void CpuRecurrentLayer::ReadState(const float* from, int64_t direction,
                                  float* to) const {
  if (from == nullptr) {
    std::fill_n(to, shape_.state(), 0.0f);
    return;
  }
  for (int64_t n = 0; n < shape_.samples; ++n, to += shape_.hidden) {
    std::copy_n(from + StateOffset(direction, n), shape_.hidden, to);
  }
}

void CpuRecurrentLayer::WriteState(const float* from, int64_t direction,
                                   float* to) const {
  if (to == nullptr) return;
  for (int64_t n = 0; n < shape_.samples; ++n, from += shape_.hidden) {
    std::copy_n(from, shape_.hidden, to + StateOffset(direction, n));
  }
}

void CpuRecurrentLayer::AddState(const float* from, int64_t direction,
                                 float* to) const {
  if (to == nullptr) return;
  for (int64_t n = 0; n < shape_.samples; ++n, from += shape_.hidden) {
    Emit(shape_.hidden, /*accumulate=*/true, to + StateOffset(direction, n),
         [=](int64_t i) { return from[i]; });
  }
}

// The biases that the input's products of one direction have added to them;
// null: none.
const float* CpuRecurrentLayer::SumBiases(const RecurrentTensors& t,
                                          int64_t direction,
                                          float* sums) const {
  if (!shape_.has_bias) return nullptr;
  const int64_t n = shape_.gate_row();
  const float* const of_input = t.bias + 2 * direction * n;
  const float* const of_state = of_input + n;
  for (int64_t i = 0; i < n; ++i) {
    const bool folds = FoldsStateBias(i / shape_.hidden);
    sums[i] = of_input[i] + (folds ? of_state[i] : 0.0f);
  }
  return sums;
}

absl::Status CpuRecurrentLayer::Forward(Stream& stream,
                                        const RecurrentTensors& t) {
  const CpuKernel kernel(stream);
  CheckLengths(t);
  if (shape_.copies_input()) CopyInput(t);
  for (int64_t i = 0; i < shape_.directions; ++i) {
    const Direction d = DirectionOf(t, i);
    SYNCLINE_RETURN_IF_ERROR(RunDirection(t, d));
  }
  return absl::OkStatus();
}

void CpuRecurrentLayer::CopyInput(const RecurrentTensors& t) const {
  float* row = DirectionOf(t, shape_.directions).gates;
  if (shape_.batch_first) {
    SwapLeading(shape_.samples, shape_.steps, shape_.width,
                /*accumulate=*/false, t.x, row);
  } else {
    std::copy_n(t.x, shape_.rows() * shape_.width, row);
  }
  if (!shape_.has_lengths) return;
  for (int64_t time = 0; time < shape_.steps; ++time) {
    for (int64_t n = 0; n < shape_.samples; ++n, row += shape_.width) {
      if (Holds(t, time, n)) std::fill_n(row, shape_.width, 0.0f);
    }
  }
}

absl::Status CpuRecurrentLayer::RunDirection(const RecurrentTensors& t,
                                             const Direction& d) {
  float* const scratch = Floats(t.scratch);
  SYNCLINE_RETURN_IF_ERROR(input_product_->Run(
      TimeMajorInput(t), t.w + d.index * shape_.gate_row() * shape_.width,
      SumBiases(t, d.index, scratch), d.gates));
  const auto place = [&](int64_t state) {
    return state % kept_states_ * shape_.state();
  };
  const int64_t first = place(d.backwards ? shape_.steps : 0);
  ReadState(t.h, d.index, d.h + first);
  if (kept_ == Kept::kMemory) ReadState(t.c, d.index, d.kept + first);
  for (int64_t i = 0; i < shape_.steps; ++i) {
    const int64_t time = TimeOf(d, i);
    const Step s = StepAt(t, d, time, scratch + shape_.gate_row());
    SYNCLINE_RETURN_IF_ERROR(Run(s));
    HoldStates(t, time, s);
    WriteOutput(t, d.index, time, s.h);
  }
  const int64_t last = place(d.backwards ? 0 : shape_.steps);
  WriteState(d.h + last, d.index, t.last_h);
  if (kept_ == Kept::kMemory) WriteState(d.kept + last, d.index, t.last_c);
  return absl::OkStatus();
}

void CpuRecurrentLayer::HoldStates(const RecurrentTensors& t, int64_t time,
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
void CpuRecurrentLayer::WriteOutput(const RecurrentTensors& t,
                                    int64_t direction, int64_t time,
                                    const float* h) const {
  if (t.y == nullptr) return;
  for (int64_t n = 0; n < shape_.samples; ++n, h += shape_.hidden) {
    float* const y = t.y + OutputOffset(time, direction, n);
    if (Holds(t, time, n)) {
      std::fill_n(y, shape_.hidden, 0.0f);
    } else {
      std::copy_n(h, shape_.hidden, y);
    }
  }
}

CpuRecurrentLayer::GradientScratch CpuRecurrentLayer::ScratchOf(
    const RecurrentTensors& t) const {
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
void CpuRecurrentLayer::ClearGradients(const RecurrentGradients& g) const {
  const int64_t d = shape_.directions;
  const std::pair<RecurrentGradients::Into, int64_t> counts[] = {
      {g.x, shape_.rows() * shape_.width},
      {g.w, d * shape_.gate_row() * shape_.width},
      {g.r, d * shape_.gate_row() * shape_.hidden},
      {g.bias, 2 * d * shape_.gate_row()},
      {g.h, d * shape_.state()},
      {g.c, d * shape_.state()},
      {g.peepholes, 3 * d * shape_.hidden}};
  for (const auto& [into, count] : counts) {
    if (into.to == nullptr || into.accumulate) continue;
    std::fill_n(into.to, count, 0.0f);
  }
}

absl::Status CpuRecurrentLayer::Backward(Stream& stream,
                                         const RecurrentTensors& t,
                                         const RecurrentGradients& g) {
  const CpuKernel kernel(stream);
  ClearGradients(g);
  for (int64_t i = 0; i < shape_.directions; ++i) {
    const Direction d = DirectionOf(t, i);
    SYNCLINE_RETURN_IF_ERROR(RunDirectionGradient(t, g, d));
    SYNCLINE_RETURN_IF_ERROR(AddWeightGradients(t, g, d));
    SYNCLINE_RETURN_IF_ERROR(AddInputGradient(t, g, d));
  }
  return absl::OkStatus();
}

absl::Status CpuRecurrentLayer::RunDirectionGradient(
    const RecurrentTensors& t, const RecurrentGradients& g,
    const Direction& d) {
  const GradientScratch scratch = ScratchOf(t);
  ReadState(g.dlast_h, d.index, scratch.dh);
  ReadState(g.dlast_c, d.index, scratch.dkept);
  for (int64_t i = shape_.steps; i-- > 0;) {
    const int64_t time = TimeOf(d, i);
    AddOutputGradient(t, g.dy, d.index, time, scratch.dh);
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
  AddState(scratch.dh, d.index, g.h.to);
  AddState(scratch.dkept, d.index, g.c.to);
  return absl::OkStatus();
}

void CpuRecurrentLayer::AddOutputGradient(const RecurrentTensors& t,
                                          const float* dy, int64_t direction,
                                          int64_t time, float* dh) const {
  if (dy == nullptr) return;
  for (int64_t n = 0; n < shape_.samples; ++n, dh += shape_.hidden) {
    if (Holds(t, time, n)) continue;
    const float* const row = dy + OutputOffset(time, direction, n);
    Emit(shape_.hidden, /*accumulate=*/true, dh,
         [=](int64_t i) { return row[i]; });
  }
}

// A step that was none has no gradient, and passes on those of its states.
void CpuRecurrentLayer::HoldGradients(const RecurrentTensors& t, int64_t time,
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

absl::Status CpuRecurrentLayer::AddWeightGradients(const RecurrentTensors& t,
                                                   const RecurrentGradients& g,
                                                   const Direction& d) {
  const GradientScratch scratch = ScratchOf(t);
  const int64_t n = shape_.gate_row();
  const int64_t before = d.backwards ? shape_.state() : 0;
  WeightGradient recurrent;
  recurrent.dgates = scratch.dgates;
  recurrent.drecurrent = scratch.drecurrent;
  recurrent.h_before = d.h + before;
  recurrent.kept_before = d.kept == nullptr ? nullptr : d.kept + before;
  recurrent.kept =
      d.kept == nullptr ? nullptr : d.kept + shape_.state() - before;
  recurrent.dr =
      g.r.to == nullptr ? nullptr : g.r.to + d.index * n * shape_.hidden;
  recurrent.dbias =
      g.bias.to == nullptr ? nullptr : g.bias.to + (2 * d.index + 1) * n;
  recurrent.dpeepholes = g.peepholes.to == nullptr
                             ? nullptr
                             : g.peepholes.to + d.index * 3 * shape_.hidden;
  SYNCLINE_RETURN_IF_ERROR(AddRecurrentGradient(recurrent));
  if (g.bias.to != nullptr) {
    AddRowSums(scratch.dgates, n, n, g.bias.to + 2 * d.index * n);
  }
  if (g.w.to == nullptr) return absl::OkStatus();
  return dw_->Accumulate(scratch.dgates, TimeMajorInput(t),
                         g.w.to + d.index * n * shape_.width);
}

absl::Status CpuRecurrentLayer::AddInputGradient(const RecurrentTensors& t,
                                                 const RecurrentGradients& g,
                                                 const Direction& d) {
  if (g.x.to == nullptr) return absl::OkStatus();
  const GradientScratch scratch = ScratchOf(t);
  const float* const w = t.w + d.index * shape_.gate_row() * shape_.width;
  if (!shape_.batch_first) {
    return dx_->Accumulate(scratch.dgates, w, g.x.to);
  }
  SYNCLINE_RETURN_IF_ERROR(
      dx_->Run(scratch.dgates, w, /*bias=*/nullptr, scratch.dx));
  SwapLeading(shape_.steps, shape_.samples, shape_.width, /*accumulate=*/true,
              scratch.dx, g.x.to);
  return absl::OkStatus();
}

}  // namespace syncline

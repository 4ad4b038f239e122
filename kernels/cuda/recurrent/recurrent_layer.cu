#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/recurrent/cells.h"
#include "kernels/cuda/recurrent/rows.h"
#include "kernels/device/device.h"
#include "kernels/device/matrix_product_kernels.h"
#include "kernels/device/recurrent_kernels.h"

namespace syncline {
namespace {

using cuda::CellGradient;
using cuda::CellStep;
using cuda::OnDevice;

// --- The layer ---------------------------------------------------------------

// The input's products of all steps are one matrix product for each direction;
// a step then adds the state's and applies the cell. Backwards, steps leave the
// gradients of their gates' sums, from which those of the weights are one
// product over all steps each.
class CudaRecurrentLayer : public RecurrentLayer {
 public:
  explicit CudaRecurrentLayer(const RecurrentShape& shape)
      : s_(shape),
        is_gru_(s_.cell == RecurrentCell::kGru),
        is_lstm_(s_.cell == RecurrentCell::kLstm),
        keeps_(is_lstm_ || (is_gru_ && s_.scales_product)),
        kept_states_(s_.wants_gradients ? s_.steps + 1
                                        : std::min<int64_t>(s_.steps + 1, 2)) {}

  // Errors: the product library's.
  absl::Status Compile(Device& device);

  int64_t workspace_bytes() const override {
    const int64_t copied = s_.copies_input() ? s_.rows() * s_.width : 0;
    return (s_.directions * DirectionCount() + copied) * sizeof(float);
  }
  int64_t forward_scratch_bytes() const override {
    return (s_.gate_row() + s_.state()) * sizeof(float);
  }
  int64_t backward_scratch_bytes() const override {
    return (s_.rows() * (s_.gate_row() + s_.hidden) + 3 * s_.state() +
            (s_.batch_first ? s_.rows() * s_.width : 0)) *
           sizeof(float);
  }

  absl::Status Forward(Stream& stream, const RecurrentTensors& t) override;
  absl::Status Backward(Stream& stream, const RecurrentTensors& t,
                        const RecurrentGradients& g) override;

 private:
  // One direction of a call: its arrays, in the workspace.
  struct Direction {
    int64_t index = 0;
    bool backwards = false;
    float* sums = nullptr;  // [steps, samples, gates * hidden]
    float* h = nullptr;     // [kept_states_, samples, hidden]: forwards, state
                            // t is before step t; backwards, after it
    float* kept = nullptr;  // likewise, or null
  };
  // A step's arrays on the host's side.
  struct StepArrays {
    float* sums;
    float* h_before;
    float* h;
    float* kept_before;
    float* kept;
    const float* r;
    const float* r_bias;
  };
  struct Scratch {
    float* dgates;      // [rows, gates * hidden]
    float* drecurrent;  // [rows, hidden]
    float* dh;          // a state each
    float* dkept;
    float* dscaled;
    float* dx;  // [rows, width], with batch_first
  };

  int64_t DirectionCount() const {
    return s_.rows() * s_.gate_row() +
           (keeps_ ? 2 : 1) * kept_states_ * s_.state();
  }
  Direction DirectionOf(const RecurrentTensors& t, int64_t index) const;
  const float* TimeMajorInput(const RecurrentTensors& t) const {
    return s_.copies_input() ? DirectionOf(t, s_.directions).sums : t.x;
  }
  int64_t TimeOf(const Direction& d, int64_t step) const {
    return d.backwards ? s_.steps - 1 - step : step;
  }
  StepArrays ArraysOf(const RecurrentTensors& t, const Direction& d,
                      int64_t time) const;
  CellStep StepOf(const RecurrentTensors& t, const Direction& d,
                  const StepArrays& a, int64_t time) const;
  Scratch ScratchOf(const RecurrentTensors& t) const;
  // Where a direction's states are among the graph's arrays.
  cuda::RowPlaces StatePlaces(int64_t direction) const {
    return s_.batch_first ? cuda::RowPlaces{direction * s_.hidden,
                                            s_.directions * s_.hidden}
                          : cuda::RowPlaces{direction * s_.state(), s_.hidden};
  }
  // `from` may be null: zeros.
  void ReadState(Stream& stream, const float* from, int64_t direction,
                 float* to) const;
  // `to` may be null.
  void WriteState(Stream& stream, const float* from, int64_t direction,
                  bool accumulate, float* to) const;

  absl::Status RunDirection(Stream& stream, const RecurrentTensors& t,
                            const Direction& d) const;
  absl::Status RunStep(Stream& stream, const StepArrays& a, const CellStep& s,
                       float* scaled) const;
  void ClearGradients(Stream& stream, const RecurrentGradients& g) const;
  absl::Status RunDirectionGradient(Stream& stream, const RecurrentTensors& t,
                                    const RecurrentGradients& g,
                                    const Direction& d) const;
  absl::Status RunStepGradient(Stream& stream, const StepArrays& a,
                               const CellGradient& g, int64_t time,
                               const Scratch& scratch) const;
  absl::Status AddWeightGradients(Stream& stream, const RecurrentTensors& t,
                                  const RecurrentGradients& g,
                                  const Direction& d) const;
  absl::Status AddRecurrentGradient(Stream& stream, const Scratch& scratch,
                                    const float* h_before, float* dr) const;
  void AddStateBiasGradient(Stream& stream, const Scratch& scratch,
                            float* dbias) const;
  void AddPeepholeGradient(Stream& stream, const Scratch& scratch,
                           const Direction& d, float* dpeepholes) const;
  absl::Status AddInputGradient(Stream& stream, const RecurrentTensors& t,
                                const RecurrentGradients& g,
                                const Direction& d) const;

  const RecurrentShape s_;
  const bool is_gru_;
  const bool is_lstm_;
  const bool keeps_;  // an array besides h
  // All states, or without gradients two that take turns: state t is at t
  // modulo this.
  const int64_t kept_states_;
  // Of the input; of the state and the gates that see it as it is, which are
  // all but a GRU's candidate; and of that.
  std::unique_ptr<MatrixProduct> input_, gates_, candidate_;
  std::unique_ptr<MatrixProduct> dx_, dw_;
  std::unique_ptr<MatrixProduct> dgates_, dcandidate_;
  std::unique_ptr<MatrixProduct> dr_gates_, dr_candidate_;
};

absl::Status CudaRecurrentLayer::Compile(Device& device) {
  const auto make = [&](const MatrixProductShape& shape,
                        std::unique_ptr<MatrixProduct>* to) -> absl::Status {
    SYNCLINE_ASSIGN_OR_RETURN(*to,
                              CudaMatrixProductKernels().make(device, shape));
    return absl::OkStatus();
  };
  const int64_t n = s_.hidden;
  const int64_t row = s_.gate_row();
  const int64_t seen = is_gru_ ? 2 * n : row;  // of gates that see the state
  SYNCLINE_RETURN_IF_ERROR(make({.m = s_.rows(),
                                 .n = row,
                                 .k = s_.width,
                                 .transpose_b = true,
                                 .has_bias = s_.has_bias},
                                &input_));
  SYNCLINE_RETURN_IF_ERROR(make(
      {.m = s_.samples, .n = seen, .k = n, .transpose_b = true, .c_row = row},
      &gates_));
  const int64_t candidate_row = s_.scales_product ? 0 : row;
  if (is_gru_) {
    SYNCLINE_RETURN_IF_ERROR(
        make({.m = s_.samples,
              .n = n,
              .k = n,
              .transpose_b = true,
              .c_row = candidate_row,
              .has_bias = s_.scales_product && s_.has_bias},
             &candidate_));
  }
  if (s_.wants_dx) {
    SYNCLINE_RETURN_IF_ERROR(
        make({.m = s_.rows(), .n = s_.width, .k = row}, &dx_));
  }
  if (s_.wants_dw) {
    SYNCLINE_RETURN_IF_ERROR(make(
        {.m = row, .n = s_.width, .k = s_.rows(), .transpose_a = true}, &dw_));
  }
  if (!s_.wants_gradients) return absl::OkStatus();
  SYNCLINE_RETURN_IF_ERROR(
      make({.m = s_.samples, .n = n, .k = seen, .a_row = row}, &dgates_));
  SYNCLINE_RETURN_IF_ERROR(make(
      {.m = seen, .n = n, .k = s_.rows(), .transpose_a = true, .a_row = row},
      &dr_gates_));
  if (!is_gru_) return absl::OkStatus();
  SYNCLINE_RETURN_IF_ERROR(make(
      {.m = s_.samples, .n = n, .k = n, .a_row = candidate_row}, &dcandidate_));
  return make({.m = n,
               .n = n,
               .k = s_.rows(),
               .transpose_a = true,
               .a_row = candidate_row},
              &dr_candidate_);
}

CudaRecurrentLayer::Direction CudaRecurrentLayer::DirectionOf(
    const RecurrentTensors& t, int64_t index) const {
  Direction d;
  d.index = index;
  d.backwards = s_.directions == 2 ? index == 1 : s_.reversed;
  d.sums = static_cast<float*>(t.workspace) + index * DirectionCount();
  d.h = d.sums + s_.rows() * s_.gate_row();
  d.kept = keeps_ ? d.h + kept_states_ * s_.state() : nullptr;
  return d;
}

CudaRecurrentLayer::StepArrays CudaRecurrentLayer::ArraysOf(
    const RecurrentTensors& t, const Direction& d, int64_t time) const {
  const int64_t before = (d.backwards ? time + 1 : time) % kept_states_;
  const int64_t after = (d.backwards ? time : time + 1) % kept_states_;
  const int64_t state = s_.state();
  const int64_t row = s_.gate_row();
  return {
      .sums = d.sums + time * s_.samples * row,
      .h_before = d.h + before * state,
      .h = d.h + after * state,
      .kept_before = keeps_ ? d.kept + before * state : nullptr,
      .kept = keeps_ ? d.kept + after * state : nullptr,
      .r = t.r + d.index * row * s_.hidden,
      .r_bias = t.bias == nullptr ? nullptr : t.bias + (2 * d.index + 1) * row};
}

CellStep CudaRecurrentLayer::StepOf(const RecurrentTensors& t,
                                    const Direction& d, const StepArrays& a,
                                    int64_t time) const {
  CellStep s;
  s.samples = s_.samples;
  s.hidden = s_.hidden;
  s.gates = s_.gates;
  s.time = time;
  s.has_lengths = s_.has_lengths;
  s.lengths = OnDevice(t.lengths);
  const int64_t functions =
      static_cast<int64_t>(s_.functions.size()) / s_.directions;
  for (int64_t i = 0; i < functions; ++i) {
    s.functions[i] = s_.functions[d.index * functions + i];
  }
  // Sums of gates are clipped, the memory is not: as in ONNX Runtime.
  s.functions[2].clip = std::numeric_limits<float>::infinity();
  const float* const h_before = a.h_before;
  const float* const kept_before = a.kept_before;
  s.sums = OnDevice(a.sums);
  s.h_before = OnDevice(h_before);
  s.h = OnDevice(a.h);
  s.kept_before = OnDevice(kept_before);
  s.kept = OnDevice(a.kept);
  s.has_peepholes = s_.has_peepholes;
  s.peepholes = OnDevice(
      s_.has_peepholes ? t.peepholes + d.index * 3 * s_.hidden : nullptr);
  s.couples_gates = s_.couples_gates;
  s.scales_product = s_.scales_product;
  const int64_t step = (time * s_.directions + d.index) * s_.hidden;
  s.y_begin = s_.batch_first ? step : step * s_.samples;
  s.y_stride =
      s_.batch_first ? s_.steps * s_.directions * s_.hidden : s_.hidden;
  return s;
}

void CudaRecurrentLayer::ReadState(Stream& stream, const float* from,
                                   int64_t direction, float* to) const {
  if (from == nullptr) return stream.Clear(to, s_.state() * sizeof(float));
  cuda::CopyRows(stream, s_.samples, s_.hidden, from, StatePlaces(direction),
                 /*accumulate=*/false, to, {0, s_.hidden});
}

void CudaRecurrentLayer::WriteState(Stream& stream, const float* from,
                                    int64_t direction, bool accumulate,
                                    float* to) const {
  if (to == nullptr) return;
  cuda::CopyRows(stream, s_.samples, s_.hidden, from, {0, s_.hidden},
                 accumulate, to, StatePlaces(direction));
}

// --- Forward -----------------------------------------------------------------

absl::Status CudaRecurrentLayer::Forward(Stream& stream,
                                         const RecurrentTensors& t) {
  if (s_.has_lengths) cuda::CheckLengths(stream, s_, t);
  if (s_.copies_input()) {
    cuda::LaunchElements(
        stream, s_.rows() * s_.width,
        cuda::CopyInput{s_.steps, s_.samples, s_.width, s_.batch_first,
                        s_.has_lengths, OnDevice(t.lengths), OnDevice(t.x),
                        OnDevice(DirectionOf(t, s_.directions).sums)});
  }
  for (int64_t i = 0; i < s_.directions; ++i) {
    SYNCLINE_RETURN_IF_ERROR(RunDirection(stream, t, DirectionOf(t, i)));
  }
  return absl::OkStatus();
}

absl::Status CudaRecurrentLayer::RunDirection(Stream& stream,
                                              const RecurrentTensors& t,
                                              const Direction& d) const {
  const int64_t row = s_.gate_row();
  float* const biases = static_cast<float*>(t.scratch);
  if (s_.has_bias) {
    // The reset gate scales the candidate's product with its bias.
    const int64_t folded = is_gru_ && s_.scales_product ? 2 * s_.hidden : row;
    cuda::SumBiases(stream, row, folded, t.bias + 2 * d.index * row, biases);
  }
  SYNCLINE_RETURN_IF_ERROR(input_->Run(stream, TimeMajorInput(t),
                                       t.w + d.index * row * s_.width,
                                       s_.has_bias ? biases : nullptr, d.sums));
  const auto place = [&](int64_t state) {
    return state % kept_states_ * s_.state();
  };
  const int64_t first = place(d.backwards ? s_.steps : 0);
  ReadState(stream, t.h, d.index, d.h + first);
  if (is_lstm_) ReadState(stream, t.c, d.index, d.kept + first);
  for (int64_t i = 0; i < s_.steps; ++i) {
    const int64_t time = TimeOf(d, i);
    const StepArrays a = ArraysOf(t, d, time);
    CellStep s = StepOf(t, d, a, time);
    s.has_y = t.y != nullptr;
    s.y = OnDevice(t.y);
    SYNCLINE_RETURN_IF_ERROR(RunStep(stream, a, s, biases + row));
  }
  const int64_t last = place(d.backwards ? 0 : s_.steps);
  WriteState(stream, d.h + last, d.index, /*accumulate=*/false, t.last_h);
  if (is_lstm_) {
    WriteState(stream, d.kept + last, d.index, /*accumulate=*/false, t.last_c);
  }
  return absl::OkStatus();
}

absl::Status CudaRecurrentLayer::RunStep(Stream& stream, const StepArrays& a,
                                         const CellStep& s,
                                         float* scaled) const {
  const int64_t n = s_.hidden;
  SYNCLINE_RETURN_IF_ERROR(gates_->Accumulate(stream, a.h_before, a.r, a.sums));
  if (is_lstm_) {
    cuda::LaunchElements(stream, s_.state(), cuda::LstmCell{s});
    return absl::OkStatus();
  }
  if (!is_gru_) {
    cuda::LaunchElements(stream, s_.state(), cuda::RnnCell{s});
    return absl::OkStatus();
  }
  const float* const r = a.r + 2 * n * n;
  if (s_.scales_product) {
    const float* const bias = a.r_bias == nullptr ? nullptr : a.r_bias + 2 * n;
    SYNCLINE_RETURN_IF_ERROR(
        candidate_->Run(stream, a.h_before, r, bias, a.kept));
  } else {
    cuda::LaunchElements(stream, s_.state(),
                         cuda::GruScaleState{s, OnDevice(scaled)});
    SYNCLINE_RETURN_IF_ERROR(
        candidate_->Accumulate(stream, scaled, r, a.sums + 2 * n));
  }
  cuda::LaunchElements(stream, s_.state(), cuda::GruCell{s});
  return absl::OkStatus();
}

// --- Backward ----------------------------------------------------------------

CudaRecurrentLayer::Scratch CudaRecurrentLayer::ScratchOf(
    const RecurrentTensors& t) const {
  Scratch s;
  s.dgates = static_cast<float*>(t.scratch);
  s.drecurrent = s.dgates + s_.rows() * s_.gate_row();
  s.dh = s.drecurrent + s_.rows() * s_.hidden;
  s.dkept = s.dh + s_.state();
  s.dscaled = s.dkept + s_.state();
  s.dx = s.dscaled + s_.state();
  return s;
}

// From here on every gradient is added to, whatever the order in which the
// directions come and whichever inputs are one value.
void CudaRecurrentLayer::ClearGradients(Stream& stream,
                                        const RecurrentGradients& g) const {
  const int64_t d = s_.directions;
  const std::pair<RecurrentGradients::Into, int64_t> counts[] = {
      {g.x, s_.rows() * s_.width},
      {g.w, d * s_.gate_row() * s_.width},
      {g.r, d * s_.gate_row() * s_.hidden},
      {g.bias, 2 * d * s_.gate_row()},
      {g.h, d * s_.state()},
      {g.c, d * s_.state()},
      {g.peepholes, 3 * d * s_.hidden}};
  for (const auto& [into, count] : counts) {
    if (into.to == nullptr || into.accumulate) continue;
    stream.Clear(into.to, count * sizeof(float));
  }
}

absl::Status CudaRecurrentLayer::Backward(Stream& stream,
                                          const RecurrentTensors& t,
                                          const RecurrentGradients& g) {
  ClearGradients(stream, g);
  for (int64_t i = 0; i < s_.directions; ++i) {
    const Direction d = DirectionOf(t, i);
    SYNCLINE_RETURN_IF_ERROR(RunDirectionGradient(stream, t, g, d));
    SYNCLINE_RETURN_IF_ERROR(AddWeightGradients(stream, t, g, d));
    SYNCLINE_RETURN_IF_ERROR(AddInputGradient(stream, t, g, d));
  }
  return absl::OkStatus();
}

absl::Status CudaRecurrentLayer::RunDirectionGradient(
    Stream& stream, const RecurrentTensors& t, const RecurrentGradients& g,
    const Direction& d) const {
  const Scratch scratch = ScratchOf(t);
  ReadState(stream, g.dlast_h, d.index, scratch.dh);
  ReadState(stream, g.dlast_c, d.index, scratch.dkept);
  for (int64_t i = s_.steps; i-- > 0;) {
    const int64_t time = TimeOf(d, i);
    const StepArrays a = ArraysOf(t, d, time);
    const int64_t row = time * s_.samples;
    CellGradient step;
    step.s = StepOf(t, d, a, time);
    step.s.has_y = g.dy != nullptr;
    step.s.dy = OnDevice(g.dy);
    step.dgates = OnDevice(scratch.dgates + row * s_.gate_row());
    step.drecurrent = OnDevice(scratch.drecurrent + row * s_.hidden);
    step.dh = OnDevice(scratch.dh);
    step.dkept = OnDevice(scratch.dkept);
    SYNCLINE_RETURN_IF_ERROR(RunStepGradient(stream, a, step, time, scratch));
  }
  WriteState(stream, scratch.dh, d.index, /*accumulate=*/true, g.h.to);
  WriteState(stream, scratch.dkept, d.index, /*accumulate=*/true, g.c.to);
  return absl::OkStatus();
}

absl::Status CudaRecurrentLayer::RunStepGradient(Stream& stream,
                                                 const StepArrays& a,
                                                 const CellGradient& g,
                                                 int64_t time,
                                                 const Scratch& scratch) const {
  const int64_t n = s_.hidden;
  float* const dgates = scratch.dgates + time * s_.samples * s_.gate_row();
  if (is_lstm_) {
    cuda::LaunchElements(stream, s_.state(), cuda::LstmGradient{g});
  } else if (is_gru_) {
    cuda::LaunchElements(stream, s_.state(), cuda::GruGradient{g});
  } else {
    cuda::LaunchElements(stream, s_.state(), cuda::RnnGradient{g});
  }
  if (is_gru_ && s_.scales_product) {
    SYNCLINE_RETURN_IF_ERROR(
        dcandidate_->Accumulate(stream, scratch.drecurrent + time * s_.state(),
                                a.r + 2 * n * n, scratch.dh));
  } else if (is_gru_) {
    SYNCLINE_RETURN_IF_ERROR(
        dcandidate_->Run(stream, dgates + 2 * n, a.r + 2 * n * n,
                         /*bias=*/nullptr, scratch.dscaled));
    const float* const dscaled = scratch.dscaled;
    cuda::LaunchElements(stream, s_.state(),
                         cuda::GruResetGradient{g, OnDevice(dscaled)});
  }
  return dgates_->Accumulate(stream, dgates, a.r, scratch.dh);
}

absl::Status CudaRecurrentLayer::AddWeightGradients(Stream& stream,
                                                    const RecurrentTensors& t,
                                                    const RecurrentGradients& g,
                                                    const Direction& d) const {
  const Scratch scratch = ScratchOf(t);
  const int64_t row = s_.gate_row();
  if (g.r.to != nullptr) {
    SYNCLINE_RETURN_IF_ERROR(AddRecurrentGradient(
        stream, scratch, d.h + (d.backwards ? s_.state() : 0),
        g.r.to + d.index * row * s_.hidden));
  }
  if (g.bias.to != nullptr) {
    float* const dbias = g.bias.to + 2 * d.index * row;
    cuda::AddRowSums(stream, s_.rows(), row, scratch.dgates, row,
                     /*seen=*/nullptr, 0, dbias);
    AddStateBiasGradient(stream, scratch, dbias + row);
  }
  if (g.peepholes.to != nullptr) {
    AddPeepholeGradient(stream, scratch, d,
                        g.peepholes.to + d.index * 3 * s_.hidden);
  }
  if (g.w.to == nullptr) return absl::OkStatus();
  return dw_->Accumulate(stream, scratch.dgates, TimeMajorInput(t),
                         g.w.to + d.index * row * s_.width);
}

// A GRU's candidate has another operand than its gates: its product's own
// gradient, or the scaled state.
absl::Status CudaRecurrentLayer::AddRecurrentGradient(Stream& stream,
                                                      const Scratch& scratch,
                                                      const float* h_before,
                                                      float* dr) const {
  const int64_t n = s_.hidden;
  SYNCLINE_RETURN_IF_ERROR(
      dr_gates_->Accumulate(stream, scratch.dgates, h_before, dr));
  if (!is_gru_) return absl::OkStatus();
  float* const of_candidate = dr + 2 * n * n;
  return s_.scales_product
             ? dr_candidate_->Accumulate(stream, scratch.drecurrent, h_before,
                                         of_candidate)
             : dr_candidate_->Accumulate(stream, scratch.dgates + 2 * n,
                                         scratch.drecurrent, of_candidate);
}

void CudaRecurrentLayer::AddStateBiasGradient(Stream& stream,
                                              const Scratch& scratch,
                                              float* dbias) const {
  const int64_t n = s_.hidden;
  const int64_t row = s_.gate_row();
  const bool is_apart = is_gru_ && s_.scales_product;
  cuda::AddRowSums(stream, s_.rows(), is_apart ? 2 * n : row, scratch.dgates,
                   row,
                   /*seen=*/nullptr, 0, dbias);
  if (!is_apart) return;
  cuda::AddRowSums(stream, s_.rows(), n, scratch.drecurrent, n,
                   /*seen=*/nullptr, 0, dbias + 2 * n);
}

// Input and forget gate see the memory before the step, the output gate after
// it.
void CudaRecurrentLayer::AddPeepholeGradient(Stream& stream,
                                             const Scratch& scratch,
                                             const Direction& d,
                                             float* dpeepholes) const {
  const int64_t n = s_.hidden;
  const float* const before = d.kept + (d.backwards ? s_.state() : 0);
  const float* const after = d.kept + (d.backwards ? 0 : s_.state());
  const float* const seen[] = {before, after, before};
  for (int64_t gate = 0; gate < 3; ++gate) {
    cuda::AddRowSums(stream, s_.rows(), n, scratch.dgates + gate * n,
                     s_.gate_row(), seen[gate], n, dpeepholes + gate * n);
  }
}

absl::Status CudaRecurrentLayer::AddInputGradient(Stream& stream,
                                                  const RecurrentTensors& t,
                                                  const RecurrentGradients& g,
                                                  const Direction& d) const {
  if (g.x.to == nullptr) return absl::OkStatus();
  const Scratch scratch = ScratchOf(t);
  const float* const w = t.w + d.index * s_.gate_row() * s_.width;
  if (!s_.batch_first) {
    return dx_->Accumulate(stream, scratch.dgates, w, g.x.to);
  }
  SYNCLINE_RETURN_IF_ERROR(dx_->Run(stream, scratch.dgates, w,
                                    /*bias=*/nullptr, scratch.dx));
  cuda::AddSwapped(stream, s_, scratch.dx, g.x.to);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RecurrentLayer>> Make(
    Device& device, const RecurrentShape& shape) {
  auto layer = std::make_unique<CudaRecurrentLayer>(shape);
  SYNCLINE_RETURN_IF_ERROR(layer->Compile(device));
  return layer;
}

}  // namespace

const RecurrentKernels& CudaRecurrentKernels() {
  static constexpr RecurrentKernels kKernels = {.make = Make};
  return kKernels;
}

}  // namespace syncline

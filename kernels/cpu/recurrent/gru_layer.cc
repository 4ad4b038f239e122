#include <algorithm>
#include <optional>

#include "common/base/status_macros.h"
#include "kernels/cpu/recurrent/recurrent_layer.h"
#include "kernels/elementwise/loop.h"
#include "kernels/recurrent.h"

namespace syncline {
namespace {

// The reset gate scales the state before the candidate's product, or with
// linear_before_reset the product, bias and all.
class GruLayer : public CpuRecurrentLayer {
 public:
  // Keeps the candidate's product of each step where the gate scales that.
  explicit GruLayer(const RecurrentShape& shape)
      : CpuRecurrentLayer(
            shape, shape.scales_product ? Kept::kOfStep : Kept::kNothing,
            /*cell_scratch=*/shape.state() +
                (shape.has_usual_functions ? 0
                                           : shape.samples * shape.gate_row())),
        scales_product_(shape.scales_product) {}

 private:
  absl::Status CompileCell() override;

  // Of the candidate, what the reset gate scales.
  bool FoldsStateBias(int64_t gate) const override {
    return gate < 2 || !scales_product_;
  }

  absl::Status Run(const Step& s) override {
    const int64_t n = shape().hidden;
    SYNCLINE_RETURN_IF_ERROR(gates_->Accumulate(s.h_before, s.r, s.gates));
    for (int64_t i = 0; i < shape().samples; ++i) {
      if (is_usual()) {
        Apply({.kind = RnnActivation::Kind::kSigmoid}, 2 * n, GatesOf(s, i),
              GatesOf(s, i));
      } else {
        Apply(s.functions[0], 2 * n, s.gates + i * 3 * n, GatesOf(s, i));
      }
    }
    const float* const r = s.r + 2 * n * n;
    if (scales_product_) {
      const float* const bias =
          s.r_bias == nullptr ? nullptr : s.r_bias + 2 * n;
      SYNCLINE_RETURN_IF_ERROR(candidate_->Run(s.h_before, r, bias, s.kept));
    } else {
      ScaleState(s, s.scratch);
      SYNCLINE_RETURN_IF_ERROR(
          candidate_->Accumulate(s.scratch, r, s.gates + 2 * n));
    }
    for (int64_t i = 0; i < shape().samples; ++i) {
      const float* const scaled = scales_product_ ? s.kept + i * n : nullptr;
      const float* const before = s.h_before + i * n;
      if (is_usual()) {
        GruCell(n, s.gates + i * 3 * n, scaled, before, s.h + i * n);
      } else {
        GruCell(s.functions[1], n, s.gates + i * 3 * n, GatesOf(s, i), scaled,
                before, s.h + i * n);
      }
    }
    return absl::OkStatus();
  }

  absl::Status RunGradient(const Step& s, const StepGradient& g) override {
    const int64_t n = shape().hidden;
    for (int64_t i = 0; i < shape().samples; ++i) RunCellGradient(s, g, i);
    const float* const r = s.r + 2 * n * n;
    if (scales_product_) {
      for (int64_t i = 0; i < shape().samples; ++i) {
        RunResetGradient(s, g, i, s.kept + i * n, g.dgates + i * 3 * n + 2 * n,
                         /*accumulate=*/false, g.drecurrent + i * n);
      }
      SYNCLINE_RETURN_IF_ERROR(dcandidate_->Accumulate(g.drecurrent, r, g.dh));
    } else {
      float* const dscaled = s.scratch;
      SYNCLINE_RETURN_IF_ERROR(
          dcandidate_->Run(g.dgates + 2 * n, r, nullptr, dscaled));
      for (int64_t i = 0; i < shape().samples; ++i) {
        RunResetGradient(s, g, i, s.h_before + i * n, dscaled + i * n,
                         /*accumulate=*/true, g.dh + i * n);
      }
      ScaleState(s, g.drecurrent);
    }
    return dgates_->Accumulate(g.dgates, s.r, g.dh);
  }

  void RunCellGradient(const Step& s, const StepGradient& g, int64_t i) const {
    const int64_t n = shape().hidden;
    float* const sums = s.gates + i * 3 * n;
    float* const gates = GatesOf(s, i);
    const float* const before = s.h_before + i * n;
    float* const dgates = g.dgates + i * 3 * n;
    if (is_usual()) {
      GruCellGradient(n, gates, before, g.dh + i * n, dgates);
      return;
    }
    Apply(s.functions[0], 2 * n, sums, gates);
    Apply(s.functions[1], n, sums + 2 * n, gates + 2 * n);
    GruCellGradient(s.functions[0], s.functions[1], n, sums, gates, before,
                    g.dh + i * n, dgates);
  }

  // `d` is the gradient of the reset gate times `value`; dvalue is set, or
  // added to.
  void RunResetGradient(const Step& s, const StepGradient& g, int64_t i,
                        const float* value, const float* d, bool accumulate,
                        float* dvalue) const {
    const int64_t n = shape().hidden;
    const float* const reset = GatesOf(s, i) + n;
    float* const dreset = g.dgates + i * 3 * n + n;
    if (is_usual()) {
      GruResetGradient(n, reset, value, d, dreset, accumulate, dvalue);
    } else {
      GruResetGradient(s.functions[0], n, s.gates + i * 3 * n + n, reset, value,
                       d, dreset, accumulate, dvalue);
    }
  }

  // The candidate's part has another operand than the gates': its product's own
  // gradient, or the scaled state.
  absl::Status AddRecurrentGradient(const WeightGradient& g) override {
    const int64_t n = shape().hidden;
    if (g.dbias != nullptr && scales_product_) {
      AddRowSums(g.dgates, 3 * n, 2 * n, g.dbias);
      AddRowSums(g.drecurrent, n, n, g.dbias + 2 * n);
    } else if (g.dbias != nullptr) {
      AddRowSums(g.dgates, 3 * n, 3 * n, g.dbias);
    }
    if (g.dr == nullptr) return absl::OkStatus();
    SYNCLINE_RETURN_IF_ERROR(dr_gates_->Accumulate(g.dgates, g.h_before, g.dr));
    float* const of_candidate = g.dr + 2 * n * n;
    return scales_product_ ? dr_candidate_->Accumulate(g.drecurrent, g.h_before,
                                                       of_candidate)
                           : dr_candidate_->Accumulate(
                                 g.dgates + 2 * n, g.drecurrent, of_candidate);
  }

  // to = reset gate * state before the step.
  void ScaleState(const Step& s, float* to) const {
    const int64_t n = shape().hidden;
    for (int64_t i = 0; i < shape().samples; ++i) {
      const float* const reset = GatesOf(s, i) + n;
      const float* const h = s.h_before + i * n;
      Emit(n, /*accumulate=*/false, to + i * n,
           [=](int64_t k) { return reset[k] * h[k]; });
    }
  }

  bool is_usual() const { return shape().has_usual_functions; }
  // A sample's gates once they are activations: in place of the sums, or where
  // derivatives are taken from these, in scratch memory behind a state.
  float* GatesOf(const Step& s, int64_t i) const {
    const int64_t at = i * shape().gate_row();
    return is_usual() ? s.gates + at : s.scratch + shape().state() + at;
  }

  const bool scales_product_;
  // Of update and reset gate together, and of the candidate.
  std::optional<Gemm> gates_, candidate_;
  std::optional<Gemm> dgates_, dcandidate_;
  std::optional<Gemm> dr_gates_, dr_candidate_;
};

absl::Status GruLayer::CompileCell() {
  const int64_t n = shape().hidden;
  const int64_t row = 3 * n;
  const int64_t samples = shape().samples;
  SYNCLINE_ASSIGN_OR_RETURN(gates_, Gemm::Create({.m = samples,
                                                  .n = 2 * n,
                                                  .k = n,
                                                  .transpose_b = true,
                                                  .c_row = row}));
  SYNCLINE_ASSIGN_OR_RETURN(
      candidate_,
      Gemm::Create({.m = samples,
                    .n = n,
                    .k = n,
                    .transpose_b = true,
                    .c_row = scales_product_ ? 0 : row,
                    .has_bias = scales_product_ && shape().has_bias}));
  if (!shape().wants_gradients) return absl::OkStatus();
  const int64_t candidate_row = scales_product_ ? 0 : row;
  SYNCLINE_ASSIGN_OR_RETURN(
      dgates_, Gemm::Create({.m = samples, .n = n, .k = 2 * n, .a_row = row}));
  SYNCLINE_ASSIGN_OR_RETURN(
      dcandidate_,
      Gemm::Create({.m = samples, .n = n, .k = n, .a_row = candidate_row}));
  SYNCLINE_ASSIGN_OR_RETURN(dr_gates_, Gemm::Create({.m = 2 * n,
                                                     .n = n,
                                                     .k = shape().rows(),
                                                     .transpose_a = true,
                                                     .a_row = row}));
  SYNCLINE_ASSIGN_OR_RETURN(dr_candidate_,
                            Gemm::Create({.m = n,
                                          .n = n,
                                          .k = shape().rows(),
                                          .transpose_a = true,
                                          .a_row = candidate_row}));
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<CpuRecurrentLayer> MakeCpuGruLayer(
    const RecurrentShape& shape) {
  return std::make_unique<GruLayer>(shape);
}

}  // namespace syncline

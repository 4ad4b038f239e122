#include <algorithm>
#include <limits>

#include "common/base/status_macros.h"
#include "kernels/cpu/recurrent/recurrent_layer.h"
#include "kernels/elementwise/loop.h"
#include "kernels/recurrent.h"

namespace syncline {
namespace {

class LstmLayer : public CpuRecurrentLayer {
 public:
  explicit LstmLayer(const RecurrentShape& shape)
      : CpuRecurrentLayer(shape, Kept::kMemory,
                          /*cell_scratch=*/5 * shape.hidden),
        coupled_(shape.couples_gates),
        is_usual_(shape.has_usual_functions && !shape.has_peepholes &&
                  !coupled_) {}

 private:
  absl::Status Run(const Step& s) override {
    SYNCLINE_RETURN_IF_ERROR(AddStateProduct(s));
    const int64_t n = shape().hidden;
    for (int64_t i = 0; i < shape().samples; ++i) {
      float* const gates = s.gates + i * 4 * n;
      const float* const before = s.kept_before + i * n;
      float* const c = s.kept + i * n;
      float* const h = s.h + i * n;
      if (is_usual_) {
        LstmCell(n, gates, before, c, h);
      } else {
        LstmCell(FunctionsOf(s), n, s.peepholes, gates, s.scratch, before, c,
                 h);
      }
    }
    return absl::OkStatus();
  }

  absl::Status RunGradient(const Step& s, const StepGradient& g) override {
    const int64_t n = shape().hidden;
    for (int64_t i = 0; i < shape().samples; ++i) {
      const float* const gates = s.gates + i * 4 * n;
      const float* const before = s.kept_before + i * n;
      const float* const c = s.kept + i * n;
      const float* const dh = g.dh + i * n;
      float* const dc = g.dkept + i * n;
      float* const dgates = g.dgates + i * 4 * n;
      if (is_usual_) {
        LstmCellGradient(n, gates, before, c, dh, dc, dgates);
      } else {
        LstmCellGradient(FunctionsOf(s), n, s.peepholes, gates, s.scratch,
                         before, c, dh, dc, dgates);
      }
    }
    // All of it comes through the gates.
    std::fill_n(g.dh, shape().state(), 0.0f);
    return AddStateGradient(s, g);
  }

  absl::Status AddRecurrentGradient(const WeightGradient& g) override {
    if (g.dpeepholes != nullptr) AddPeepholeGradient(g);
    return CpuRecurrentLayer::AddRecurrentGradient(g);
  }

  // Input and forget gate see the memory before the step, the output gate after
  // it.
  void AddPeepholeGradient(const WeightGradient& g) const {
    const int64_t n = shape().hidden;
    const float* const seen[] = {g.kept_before, g.kept, g.kept_before};
    for (int64_t row = 0; row < shape().rows(); ++row) {
      for (int64_t gate = 0; gate < 3; ++gate) {
        const float* const d = g.dgates + (row * 4 + gate) * n;
        const float* const c = seen[gate] + row * n;
        Emit(n, /*accumulate=*/true, g.dpeepholes + gate * n,
             [=](int64_t i) { return d[i] * c[i]; });
      }
    }
  }

  LstmFunctions FunctionsOf(const Step& s) const {
    LstmFunctions functions = {s.functions[0], s.functions[1], s.functions[2],
                               coupled_};
    // Sums of gates are clipped, the memory is not: as in ONNX Runtime.
    functions.h.clip = std::numeric_limits<float>::infinity();
    return functions;
  }

  const bool coupled_;
  const bool is_usual_;
};

}  // namespace

std::unique_ptr<CpuRecurrentLayer> MakeCpuLstmLayer(
    const RecurrentShape& shape) {
  return std::make_unique<LstmLayer>(shape);
}

}  // namespace syncline

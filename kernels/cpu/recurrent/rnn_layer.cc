// Elman, Cognitive Science 1990.

#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/cpu/recurrent/recurrent_layer.h"

namespace syncline {
namespace {

class RnnLayer : public CpuRecurrentLayer {
 public:
  explicit RnnLayer(const RecurrentShape& shape)
      : CpuRecurrentLayer(shape, Kept::kNothing, /*cell_scratch=*/0) {}

 private:
  absl::Status Run(const Step& s) override {
    SYNCLINE_RETURN_IF_ERROR(AddStateProduct(s));
    Apply(s.functions[0], shape().state(), s.gates, s.h);
    return absl::OkStatus();
  }

  absl::Status RunGradient(const Step& s, const StepGradient& g) override {
    ApplyGradient(s.functions[0], shape().state(), s.gates, g.dh, g.dgates);
    // All of it comes through the gate.
    std::fill_n(g.dh, shape().state(), 0.0f);
    return AddStateGradient(s, g);
  }
};

}  // namespace

std::unique_ptr<CpuRecurrentLayer> MakeCpuRnnLayer(
    const RecurrentShape& shape) {
  return std::make_unique<RnnLayer>(shape);
}

}  // namespace syncline

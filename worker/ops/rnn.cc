// Elman, Cognitive Science 1990.

#include "common/base/status_macros.h"
#include "kernels/activation.h"
#include "worker/ops/recurrent_op.h"

namespace syncline {
namespace {

class RnnOp : public RecurrentOp {
 public:
  RnnOp(const OpSpec& spec, const RecurrentShape& shape)
      : RecurrentOp(spec, shape, Kept::kNothing) {}

 private:
  absl::Status Run(const Step& s) override {
    SYNCLINE_RETURN_IF_ERROR(AddStateProduct(s));
    Tanh(shape().state(), s.gates, s.h);
    return absl::OkStatus();
  }

  absl::Status RunGradient(const Step& s, const StepGradient& g) override {
    TanhGradient(shape().state(), s.h, g.dh, /*accumulate=*/false, g.dgates);
    // All of it comes through the gate.
    std::fill_n(g.dh, shape().state(), 0.0f);
    return AddStateGradient(s, g);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeRNN(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(const RecurrentShape shape,
                            MakeRecurrentShape(spec, /*gates=*/1, {"Tanh"}));
  auto op = std::make_unique<RnnOp>(spec, shape);
  SYNCLINE_RETURN_IF_ERROR(op->Compile());
  return op;
}

}  // namespace syncline

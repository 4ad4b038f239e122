// Elman, Cognitive Science 1990.

#include "common/base/status_macros.h"
#include "worker/ops/recurrent/recurrent_op.h"

namespace syncline::worker {
namespace {

class RnnOp : public RecurrentOp {
 public:
  RnnOp(const OpSpec& spec, const RecurrentShape& shape)
      : RecurrentOp(spec, shape, Kept::kNothing, /*cell_scratch=*/0) {}

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

absl::StatusOr<std::unique_ptr<Op>> MakeRNN(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const RecurrentShape shape,
      MakeRecurrentShape(spec, /*gates=*/1, {RnnActivation::Kind::kTanh}));
  auto op = std::make_unique<RnnOp>(spec, shape);
  SYNCLINE_RETURN_IF_ERROR(op->Compile());
  return op;
}

}  // namespace syncline::worker

#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/recurrent.h"
#include "worker/ops/recurrent_op.h"

namespace syncline {
namespace {

class LstmOp : public RecurrentOp {
 public:
  LstmOp(const OpSpec& spec, const RecurrentShape& shape)
      : RecurrentOp(spec, shape, Kept::kMemory) {}

 private:
  absl::Status Run(const Step& s) override {
    SYNCLINE_RETURN_IF_ERROR(AddStateProduct(s));
    const int64_t n = shape().hidden;
    for (int64_t i = 0; i < shape().samples; ++i) {
      LstmCell(n, s.gates + i * 4 * n, s.kept_before + i * n, s.kept + i * n,
               s.h + i * n);
    }
    return absl::OkStatus();
  }

  absl::Status RunGradient(const Step& s, const StepGradient& g) override {
    const int64_t n = shape().hidden;
    for (int64_t i = 0; i < shape().samples; ++i) {
      LstmCellGradient(n, s.gates + i * 4 * n, s.kept_before + i * n,
                       s.kept + i * n, g.dh + i * n, g.dkept + i * n,
                       g.dgates + i * 4 * n);
    }
    // All of it comes through the gates.
    std::fill_n(g.dh, shape().state(), 0.0f);
    return AddStateGradient(s, g);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeLSTM(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const RecurrentShape shape,
      MakeRecurrentShape(spec, /*gates=*/4, {"Sigmoid", "Tanh", "Tanh"}));
  auto op = std::make_unique<LstmOp>(spec, shape);
  SYNCLINE_RETURN_IF_ERROR(op->Compile());
  return op;
}

}  // namespace syncline

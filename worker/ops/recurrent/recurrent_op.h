#ifndef SYNCLINE_WORKER_OPS_RECURRENT_RECURRENT_OP_H_
#define SYNCLINE_WORKER_OPS_RECURRENT_RECURRENT_OP_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/gemm.h"
#include "kernels/rnn_activation.h"
#include "worker/ops/op.h"

namespace syncline::worker {

// The part that RNN, GRU and LSTM share. The input's products of all steps are
// one matrix product for each direction; a step then adds the state's and
// applies the cell. Backwards, steps leave the gradients of their gates' sums,
// from which those of the weights are one product over all steps each.
//
// A sample's steps from its length on (input 4) are none: its state is held,
// its output is zero there, and its input may be anything, NaN included.
struct RecurrentShape {
  int64_t gates = 1;  // of the cell
  int64_t steps = 0;
  int64_t samples = 0;
  int64_t width = 0;  // of the input
  int64_t hidden = 0;
  int64_t directions = 1;
  bool reversed = false;     // with one direction: it is backwards
  bool batch_first = false;  // layout 1
  bool has_bias = false;
  bool has_lengths = false;
  bool has_peepholes = false;
  std::vector<RnnActivation> functions;  // of each direction's cell
  bool has_usual_functions = true;       // and nothing is clipped

  int64_t state() const { return samples * hidden; }  // elements, a direction's
  int64_t gate_row() const { return gates * hidden; }
  int64_t rows() const { return steps * samples; }
  // With time first, and zeros beyond a sample's length.
  bool copies_input() const { return batch_first || has_lengths; }
};

// Checks inputs and attributes that the three have, against a cell of this many
// gates that usually has these functions. Errors: InvalidArgument.
absl::StatusOr<RecurrentShape> MakeRecurrentShape(
    const OpSpec& spec, int64_t gates,
    absl::Span<const RnnActivation::Kind> usual);

class RecurrentOp : public Op {
 public:
  // Makes the matrix products. Errors: Internal, from oneDNN.
  absl::Status Compile();

  absl::Status Forward(const Tensors& t) final;
  absl::Status Backward(const Tensors& t, const Gradients& g) final;

 protected:
  // The array that a cell keeps besides h: of the state's size, one for each
  // step and one more. kMemory: a second state, which is an input and an output
  // too.
  enum class Kept { kNothing, kOfStep, kMemory };

  // One step in one direction; arrays are [samples, hidden] unless said
  // otherwise.
  struct Step {
    float* gates;  // [samples, gates * hidden]
    const float* h_before;
    float* h;
    const float* kept_before;  // of what the cell keeps, if it does
    float* kept;
    const float* r;          // the state's weights [gates * hidden, hidden]
    const float* r_bias;     // [gates * hidden]; null: none
    const float* peepholes;  // [3 * hidden]; null: none
    const RnnActivation* functions;  // the cell's
    float* scratch;                  // as the cell asked for
  };
  // Its gradients. `dh` and `dkept` are of the states after the step, and
  // become those before it.
  struct StepGradient {
    float* dgates;      // [samples, gates * hidden], of the sums
    float* drecurrent;  // for RecurrentGradient below
    float* dh;
    float* dkept;
  };
  // All steps in one direction.
  struct RecurrentGradient {
    const float* dgates;       // [rows, gates * hidden]
    const float* drecurrent;   // [rows, hidden]
    const float* h_before;     // [rows, hidden]
    const float* kept_before;  // likewise, of what the cell keeps
    const float* kept;
    float* dr;          // added to; null: not wanted
    float* dbias;       // of the state's weights, likewise
    float* dpeepholes;  // likewise
  };

  // `cell_scratch`: floats of a step's scratch.
  RecurrentOp(const OpSpec& spec, const RecurrentShape& shape, Kept kept,
              int64_t cell_scratch);

  const RecurrentShape& shape() const { return shape_; }
  bool has_gradients() const { return has_gradients_; }
  // For a cell whose gates all see the state: gates += h_before * R^T, and dh
  // += dgates * R.
  absl::Status AddStateProduct(const Step& s);
  absl::Status AddStateGradient(const Step& s, const StepGradient& g);
  // out[i] += d[row * stride + i] over all rows, i < count.
  void AddRowSums(const float* d, int64_t stride, int64_t count,
                  float* out) const;

  // Makes the products that the cell's other functions use.
  virtual absl::Status CompileCell();
  // True if the initial `gates` contain the state's bias.
  virtual bool FoldsStateBias(int64_t) const { return true; }
  // `gates` come with the input's products and biases. Writes h, and what it
  // keeps.
  virtual absl::Status Run(const Step& s) = 0;
  virtual absl::Status RunGradient(const Step& s, const StepGradient& g) = 0;
  virtual absl::Status AddRecurrentGradient(const RecurrentGradient& g);

 private:
  // One direction of a call: its arrays, in the workspace.
  struct Direction {
    int64_t index = 0;
    bool backwards = false;
    float* gates = nullptr;  // [steps, samples, gates * hidden]
    float* h = nullptr;      // [kept_states_, samples, hidden]: forwards, state
                             // t is before step t; backwards, after it
    float* kept = nullptr;   // likewise, or null
  };

  static Traits TraitsOf(const OpSpec& spec, const RecurrentShape& shape,
                         Kept kept, int64_t cell_scratch);
  Direction DirectionOf(const Tensors& t, int64_t index) const;
  void CopyInput(const Tensors& t) const;
  // The input, with time as its first dimension.
  const float* TimeMajorInput(const Tensors& t) const;
  int64_t TimeOf(const Direction& d, int64_t step) const {
    return d.backwards ? shape_.steps - 1 - step : step;
  }
  Step StepAt(const Tensors& t, const Direction& d, int64_t time,
              float* scratch) const;
  // The step is beyond the sample's length.
  bool Holds(const Tensors& t, int64_t time, int64_t sample) const;
  absl::Status CheckLengths(const Tensors& t) const;

  // Offsets into the graph's arrays of all directions, by layout.
  int64_t StateOffset(int64_t direction, int64_t sample) const;
  int64_t OutputOffset(int64_t time, int64_t direction, int64_t sample) const;
  void ReadState(const float* from, int64_t direction, float* to) const;
  void WriteState(const float* from, int64_t direction, float* to) const;
  void AddState(const float* from, int64_t direction, float* to) const;

  const float* SumBiases(const Tensors& t, int64_t direction,
                         float* sums) const;
  absl::Status RunDirection(const Tensors& t, const Direction& d);
  void HoldStates(const Tensors& t, int64_t time, const Step& s) const;
  void WriteOutput(const Tensors& t, int64_t direction, int64_t time,
                   const float* h) const;

  void ClearGradients(const Gradients& g) const;
  absl::Status RunDirectionGradient(const Tensors& t, const Gradients& g,
                                    const Direction& d);
  void AddOutputGradient(const Tensors& t, const float* dy, int64_t direction,
                         int64_t time, float* dh) const;
  absl::Status AddWeightGradients(const Tensors& t, const Gradients& g,
                                  const Direction& d);
  absl::Status AddInputGradient(const Tensors& t, const Gradients& g,
                                const Direction& d);

  // Scratch of the backward pass.
  struct GradientScratch {
    float* dgates;      // [rows, gates * hidden]
    float* drecurrent;  // [rows, hidden]
    float* dh;          // a state each, of one direction
    float* dkept;
    float* held_dh;  // what they were before the step
    float* held_dkept;
    float* dx;    // [rows, width], with batch_first
    float* step;  // the cell's
  };
  GradientScratch ScratchOf(const Tensors& t) const;
  void HoldGradients(const Tensors& t, int64_t time,
                     const GradientScratch& scratch) const;

  const RecurrentShape shape_;
  const Kept kept_;
  const std::vector<bool> wants_;
  const bool has_gradients_;
  // All states, or without gradients two that take turns: state t is at t
  // modulo this.
  const int64_t kept_states_;
  std::optional<Gemm> input_product_, state_product_;
  std::optional<Gemm> dx_, dw_, dh_, dr_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_RECURRENT_RECURRENT_OP_H_

#ifndef SYNCLINE_KERNELS_CPU_RECURRENT_RECURRENT_LAYER_H_
#define SYNCLINE_KERNELS_CPU_RECURRENT_RECURRENT_LAYER_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "kernels/device/recurrent_kernels.h"
#include "kernels/gemm.h"

namespace syncline {

// The part that RNN, GRU and LSTM share. The input's products of all steps are
// one matrix product for each direction; a step then adds the state's and
// applies the cell. Backwards, steps leave the gradients of their gates' sums,
// from which those of the weights are one product over all steps each.
class CpuRecurrentLayer : public RecurrentLayer {
 public:
  // Makes the matrix products. Errors: Internal, from oneDNN.
  absl::Status Compile();

  int64_t workspace_bytes() const final;
  int64_t forward_scratch_bytes() const final;
  int64_t backward_scratch_bytes() const final;
  absl::Status Forward(Stream& stream, const RecurrentTensors& t) final;
  absl::Status Backward(Stream& stream, const RecurrentTensors& t,
                        const RecurrentGradients& g) final;

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
    float* drecurrent;  // for WeightGradient below
    float* dh;
    float* dkept;
  };
  // All steps in one direction.
  struct WeightGradient {
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
  CpuRecurrentLayer(const RecurrentShape& shape, Kept kept,
                    int64_t cell_scratch);

  const RecurrentShape& shape() const { return shape_; }
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
  virtual absl::Status AddRecurrentGradient(const WeightGradient& g);

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

  Direction DirectionOf(const RecurrentTensors& t, int64_t index) const;
  void CopyInput(const RecurrentTensors& t) const;
  // The input, with time as its first dimension.
  const float* TimeMajorInput(const RecurrentTensors& t) const;
  int64_t TimeOf(const Direction& d, int64_t step) const {
    return d.backwards ? shape_.steps - 1 - step : step;
  }
  Step StepAt(const RecurrentTensors& t, const Direction& d, int64_t time,
              float* scratch) const;
  // The step is beyond the sample's length.
  bool Holds(const RecurrentTensors& t, int64_t time, int64_t sample) const;
  void CheckLengths(const RecurrentTensors& t) const;

  // Offsets into the graph's arrays of all directions, by layout.
  int64_t StateOffset(int64_t direction, int64_t sample) const;
  int64_t OutputOffset(int64_t time, int64_t direction, int64_t sample) const;
  void ReadState(const float* from, int64_t direction, float* to) const;
  void WriteState(const float* from, int64_t direction, float* to) const;
  void AddState(const float* from, int64_t direction, float* to) const;

  const float* SumBiases(const RecurrentTensors& t, int64_t direction,
                         float* sums) const;
  absl::Status RunDirection(const RecurrentTensors& t, const Direction& d);
  void HoldStates(const RecurrentTensors& t, int64_t time, const Step& s) const;
  void WriteOutput(const RecurrentTensors& t, int64_t direction, int64_t time,
                   const float* h) const;

  void ClearGradients(const RecurrentGradients& g) const;
  absl::Status RunDirectionGradient(const RecurrentTensors& t,
                                    const RecurrentGradients& g,
                                    const Direction& d);
  void AddOutputGradient(const RecurrentTensors& t, const float* dy,
                         int64_t direction, int64_t time, float* dh) const;
  absl::Status AddWeightGradients(const RecurrentTensors& t,
                                  const RecurrentGradients& g,
                                  const Direction& d);
  absl::Status AddInputGradient(const RecurrentTensors& t,
                                const RecurrentGradients& g,
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
  GradientScratch ScratchOf(const RecurrentTensors& t) const;
  void HoldGradients(const RecurrentTensors& t, int64_t time,
                     const GradientScratch& scratch) const;

  const RecurrentShape shape_;
  const Kept kept_;
  const int64_t cell_scratch_;
  // All states, or without gradients two that take turns: state t is at t
  // modulo this.
  const int64_t kept_states_;
  std::optional<Gemm> input_product_, state_product_;
  std::optional<Gemm> dx_, dw_, dh_, dr_;
};

// A layer of each cell, which Compile must follow.
std::unique_ptr<CpuRecurrentLayer> MakeCpuRnnLayer(const RecurrentShape& shape);
std::unique_ptr<CpuRecurrentLayer> MakeCpuGruLayer(const RecurrentShape& shape);
std::unique_ptr<CpuRecurrentLayer> MakeCpuLstmLayer(
    const RecurrentShape& shape);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CPU_RECURRENT_RECURRENT_LAYER_H_

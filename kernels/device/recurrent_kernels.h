#ifndef SYNCLINE_KERNELS_DEVICE_RECURRENT_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_RECURRENT_KERNELS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/data_error.h"
#include "kernels/elementwise/fixed_list.h"
#include "kernels/rnn_activation.h"

namespace syncline {

class Device;
class Stream;

// The cell of a layer, and its gates in the order of the arrays.
enum class RecurrentCell {
  kRnn,  // one gate (Elman, Cognitive Science 1990)
  kGru,  // update, reset, candidate
  kLstm  // input, output, forget, candidate
};

// A layer of RNN, GRU or LSTM, as ONNX has it: kernels/recurrent.h has the
// formulas of the cells.
//
// A sample's steps from its length on are none: its state is held, its output
// is zero there, and its input may be anything, NaN included.
struct RecurrentShape {
  RecurrentCell cell = RecurrentCell::kRnn;
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
  bool has_peepholes = false;   // kLstm
  bool scales_product = false;  // kGru: the reset gate scales the candidate's
                                // product, bias and all; else the state
  bool couples_gates = false;   // kLstm: the forget gate is 1 - input
  // Of each direction's cell, one direction's after the other's.
  FixedList<RnnActivation, 6> functions;
  bool has_usual_functions = true;  // and nothing is clipped

  // The calls and the gradients that will be asked for.
  bool wants_gradients = false;
  bool wants_dx = false;
  bool wants_dw = false;

  int64_t state() const { return samples * hidden; }  // elements, a direction's
  int64_t gate_row() const { return gates * hidden; }
  int64_t rows() const { return steps * samples; }
  // With time first, and zeros beyond a sample's length: Forward leaves such a
  // copy for Backward, which then does not read the input.
  bool copies_input() const { return batch_first || has_lengths; }
};

// The arrays of a layer. Time comes first, or with batch_first the samples.
// Null: what is omitted.
struct RecurrentTensors {
  const float* x = nullptr;          // [steps, samples, width]
  const float* w = nullptr;          // [directions, gates * hidden, width]
  const float* r = nullptr;          // [directions, gates * hidden, hidden]
  const float* bias = nullptr;       // [directions, 2 * gates * hidden]
  const int32_t* lengths = nullptr;  // [samples]
  const float* h = nullptr;          // [directions, samples, hidden]
  const float* c = nullptr;          // likewise, of kLstm
  const float* peepholes = nullptr;  // [directions, 3 * hidden]

  float* y = nullptr;       // [steps, directions, samples, hidden]
  float* last_h = nullptr;  // as h
  float* last_c = nullptr;

  void* workspace = nullptr;  // that Forward leaves for Backward
  void* scratch = nullptr;    // of this call
  ErrorSlot errors;
};

struct RecurrentGradients {
  // Of the outputs; null: zero.
  const float* dy = nullptr;
  const float* dlast_h = nullptr;
  const float* dlast_c = nullptr;
  // Of the inputs; null: not wanted.
  struct Into {
    float* to = nullptr;
    bool accumulate = false;
  };
  Into x, w, r, bias, h, c, peepholes;
};

// A layer that a device has compiled for one shape. float32. Thread-compatible.
class RecurrentLayer {
 public:
  virtual ~RecurrentLayer() = default;

  virtual int64_t workspace_bytes() const = 0;
  virtual int64_t forward_scratch_bytes() const = 0;
  virtual int64_t backward_scratch_bytes() const = 0;

  // A length that is negative, or larger than the number of steps, is reported
  // as kind 0, with its sample, and counts as the nearest that is not. Errors:
  // Internal: the device's library failed.
  virtual absl::Status Forward(Stream& stream, const RecurrentTensors& t) = 0;
  // REQUIRES: made with wants_gradients. Reads r, lengths and peepholes; w for
  // the gradient of x; x for that of w unless the shape copies it. Errors: as
  // Forward.
  virtual absl::Status Backward(Stream& stream, const RecurrentTensors& t,
                                const RecurrentGradients& g) = 0;
};

struct RecurrentKernels {
  // Errors: Internal: the device's library refused.
  absl::StatusOr<std::unique_ptr<RecurrentLayer>> (*make)(
      Device& device, const RecurrentShape& shape) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_RECURRENT_KERNELS_H_

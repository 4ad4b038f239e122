#ifndef SYNCLINE_KERNELS_RECURRENT_H_
#define SYNCLINE_KERNELS_RECURRENT_H_

// One step of a recurrent network on one row of n hidden units, after the
// matrix products; and its gradients. (A plain network's step is Apply of
// kernels/rnn_activation.h.) float32. Gates lie one after another in ONNX's
// order, n elements each. Arrays overlap only where they are one.
//
// Each cell is there twice: with its usual functions, sigmoid and tanh, whose
// derivatives follow from the gates; and with any, then from the gates' sums,
// which stay as they are, and `gates` is of this call alone.

#include <cstdint>

#include "kernels/rnn_activation.h"

namespace syncline {

// Long short-term memory (Hochreiter and Schmidhuber 1997; forget gates by
// Gers, Schmidhuber and Cummins 2000). `gates` are input, output, forget and
// candidate: sums of products in, activations out.
//
//   c = forget * c_before + input * candidate     h = output * tanh(c)
void LstmCell(int64_t n, float* gates, const float* c_before, float* c,
              float* h);
// `dc` is the gradient of c, besides what comes through h, and becomes that of
// c_before. Writes `dgates`, of the sums.
void LstmCellGradient(int64_t n, const float* gates, const float* c_before,
                      const float* c, const float* dh, float* dc,
                      float* dgates);

// The same with functions f of the gates, g of the candidate and h of the
// memory.
struct LstmFunctions {
  RnnActivation f, g, h;
  bool coupled = false;  // the forget gate is 1 - input, and has no sum
};
// `peepholes` (Gers and Schmidhuber 2000), [3, n] for input, output and forget,
// or null, are weights of c_before in the sums, for output of c; they are added
// to `sums`. `gates` is [5, n].
void LstmCell(const LstmFunctions& functions, int64_t n, const float* peepholes,
              float* sums, float* gates, const float* c_before, float* c,
              float* h);
void LstmCellGradient(const LstmFunctions& functions, int64_t n,
                      const float* peepholes, const float* sums, float* gates,
                      const float* c_before, const float* c, const float* dh,
                      float* dc, float* dgates);

// Gated recurrent unit (Cho et al., EMNLP 2014). `gates` are update and reset,
// which are activations already, and the candidate's sum, which becomes its
// activation. `recurrent`, unless it is null, is what the reset gate scales
// before it is added to that sum.
//
//   h = (1 - update) * candidate + update * h_before
void GruCell(int64_t n, float* gates, const float* recurrent,
             const float* h_before, float* h);
// `dh` becomes the part of h_before's gradient that comes through no gate.
// Writes `dgates` of update and candidate: of their sums.
void GruCellGradient(int64_t n, const float* gates, const float* h_before,
                     float* dh, float* dgates);
// The same where g makes the candidate of its sum, and f made the gates.
void GruCell(const RnnActivation& g, int64_t n, float* sums, float* gates,
             const float* recurrent, const float* h_before, float* h);
void GruCellGradient(const RnnActivation& f, const RnnActivation& g, int64_t n,
                     const float* sums, const float* gates,
                     const float* h_before, float* dh, float* dgates);
// Where the reset gate has scaled `value` and `d` is the gradient of that:
// writes the gradient of the gate's sum; and that of `value` to dvalue, or adds
// it.
void GruResetGradient(int64_t n, const float* reset, const float* value,
                      const float* d, float* dreset, bool accumulate,
                      float* dvalue);
void GruResetGradient(const RnnActivation& f, int64_t n, const float* sum,
                      const float* reset, const float* value, const float* d,
                      float* dreset, bool accumulate, float* dvalue);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_RECURRENT_H_

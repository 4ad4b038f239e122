#ifndef SYNCLINE_KERNELS_RECURRENT_H_
#define SYNCLINE_KERNELS_RECURRENT_H_

// What a recurrent network does to one row, of n hidden units, in one step,
// once the matrix products are there; and the gradients. (A plain network's
// step is Tanh of kernels/activation.h.) float32. Gates lie one after another
// in ONNX's order, n elements each. Arrays overlap only where they are one.

#include <cstdint>

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
// Where the reset gate has scaled `value` and `d` is the gradient of that:
// writes the gradient of the gate's sum; and that of `value` to dvalue, or adds
// it.
void GruResetGradient(int64_t n, const float* reset, const float* value,
                      const float* d, float* dreset, bool accumulate,
                      float* dvalue);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_RECURRENT_H_

#ifndef SYNCLINE_KERNELS_CUDA_RECURRENT_CELLS_H_
#define SYNCLINE_KERNELS_CUDA_RECURRENT_CELLS_H_

// The cells of recurrent layers as kernels: kernels/recurrent.h has their
// formulas. A thread has one hidden unit of one sample. Gates are computed from
// their sums each time, which stay as they are.

#include <cstdint>

#include "kernels/cuda/language.h"
#include "kernels/rnn_functions.h"

namespace syncline::cuda {

SYNCLINE_DEVICE inline float ValueOf(const RnnActivation& f, float x) {
  float value = 0;
  WithRnnFunction(
      f, [&](auto function) { value = function.Value(Clipped(x, f.clip)); });
  return value;
}

SYNCLINE_DEVICE inline float DerivativeOf(const RnnActivation& f, float x) {
  if (x > f.clip || x < -f.clip) return 0;
  float derivative = 0;
  WithRnnFunction(f, [&](auto function) {
    derivative = function.Derivative(Clipped(x, f.clip));
  });
  return derivative;
}

// A step of one direction. Arrays are [samples, hidden] unless said otherwise.
struct CellStep {
  int64_t samples = 0;
  int64_t hidden = 0;
  int64_t gates = 1;
  int64_t time = 0;
  bool has_lengths = false;
  Global<const int32_t> lengths;  // [samples]
  RnnActivation functions[3];     // the cell's

  Global<float> sums;  // [samples, gates * hidden]
  Global<const float> h_before;
  Global<float> h;
  Global<const float> kept_before;  // of what the cell keeps, if it does
  Global<float> kept;
  bool has_peepholes = false;
  Global<const float> peepholes;  // [3 * hidden]
  bool couples_gates = false;
  bool scales_product = false;

  // The output of this step, or its gradient: where its samples begin.
  bool has_y = false;
  int64_t y_begin = 0;
  int64_t y_stride = 0;
  Global<float> y;
  Global<const float> dy;

  // Where unit `i` of all samples has its first gate; the next is `hidden`
  // behind it.
  SYNCLINE_DEVICE int64_t GatesAt(int64_t i) const {
    return i / hidden * gates * hidden + i % hidden;
  }
  SYNCLINE_DEVICE int64_t OutputAt(int64_t i) const {
    return y_begin + i / hidden * y_stride + i % hidden;
  }
  // The step is beyond the sample's length.
  SYNCLINE_DEVICE bool Holds(int64_t i) const {
    return has_lengths && time >= lengths[i / hidden];
  }
  SYNCLINE_DEVICE void Write(int64_t i, float state) const {
    h[i] = state;
    if (has_y) y[OutputAt(i)] = state;
  }
  SYNCLINE_DEVICE void Hold(int64_t i) const {
    h[i] = h_before[i];
    if (has_y) y[OutputAt(i)] = 0;
  }
  SYNCLINE_DEVICE float Peephole(int64_t gate, int64_t i) const {
    return has_peepholes
               ? static_cast<float>(peepholes[gate * hidden + i % hidden])
               : 0.0f;
  }
};

// Of a step: `dh` and `dkept` are of the states after it, and become those
// before it, as far as they come through no product.
struct CellGradient {
  CellStep s;
  Global<float> dgates;      // [samples, gates * hidden], of the sums
  Global<float> drecurrent;  // GRU: see GruGradient
  Global<float> dh;
  Global<float> dkept;

  SYNCLINE_DEVICE float StateGradient(int64_t i) const {
    float d = dh[i];
    if (s.has_y) d += s.dy[s.OutputAt(i)];
    return d;
  }
  // Of a step that was none. The gradients of its states stay.
  SYNCLINE_DEVICE void Hold(int64_t i) const {
    for (int64_t gate = 0; gate < s.gates; ++gate) {
      dgates[s.GatesAt(i) + gate * s.hidden] = 0;
    }
  }
};

// --- RNN ---------------------------------------------------------------------

struct RnnCell {
  CellStep s;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    if (s.Holds(i)) return s.Hold(i);
    s.Write(i, ValueOf(s.functions[0], s.sums[i]));
  }
};

struct RnnGradient {
  CellGradient g;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    if (g.s.Holds(i)) return g.Hold(i);
    g.dgates[i] =
        g.StateGradient(i) * DerivativeOf(g.s.functions[0], g.s.sums[i]);
    g.dh[i] = 0;  // all of it comes through the gate
  }
};

// --- LSTM --------------------------------------------------------------------

// The gates of a unit, in the order of the arrays, from complete sums.
struct LstmGates {
  float input, output, forget, candidate;
};

SYNCLINE_DEVICE inline LstmGates LstmGatesOf(const CellStep& s, int64_t at) {
  LstmGates gates;
  gates.input = ValueOf(s.functions[0], s.sums[at]);
  gates.output = ValueOf(s.functions[0], s.sums[at + s.hidden]);
  gates.forget = s.couples_gates
                     ? 1.0f - gates.input
                     : ValueOf(s.functions[0], s.sums[at + 2 * s.hidden]);
  gates.candidate = ValueOf(s.functions[1], s.sums[at + 3 * s.hidden]);
  return gates;
}

// The step of an LSTM: `kept` is its memory.
struct LstmCell {
  CellStep s;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    const float before = s.kept_before[i];
    if (s.Holds(i)) {
      s.kept[i] = before;
      return s.Hold(i);
    }
    const int64_t at = s.GatesAt(i);
    if (s.has_peepholes) {
      s.sums[at] += s.Peephole(0, i) * before;
      s.sums[at + 2 * s.hidden] += s.Peephole(2, i) * before;
    }
    LstmGates gates = LstmGatesOf(s, at);
    const float c = gates.forget * before + gates.input * gates.candidate;
    if (s.has_peepholes) {
      s.sums[at + s.hidden] += s.Peephole(1, i) * c;
      gates.output = ValueOf(s.functions[0], s.sums[at + s.hidden]);
    }
    s.kept[i] = c;
    s.Write(i, gates.output * ValueOf(s.functions[2], c));
  }
};

struct LstmGradient {
  CellGradient g;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    const CellStep& s = g.s;
    if (s.Holds(i)) return g.Hold(i);
    const int64_t at = s.GatesAt(i);
    const int64_t n = s.hidden;
    const LstmGates gates = LstmGatesOf(s, at);
    const float before = s.kept_before[i];
    const float c = s.kept[i];
    const float dh = g.StateGradient(i);
    const float doutput = dh * ValueOf(s.functions[2], c) *
                          DerivativeOf(s.functions[0], s.sums[at + n]);
    // The memory's, through the result and the output's peephole too.
    const float d = g.dkept[i] +
                    dh * gates.output * DerivativeOf(s.functions[2], c) +
                    s.Peephole(1, i) * doutput;
    const float past = s.couples_gates ? -before : 0.0f;
    const float dinput =
        d * (gates.candidate + past) * DerivativeOf(s.functions[0], s.sums[at]);
    const float dforget =
        s.couples_gates
            ? 0.0f
            : d * before * DerivativeOf(s.functions[0], s.sums[at + 2 * n]);
    g.dgates[at] = dinput;
    g.dgates[at + n] = doutput;
    g.dgates[at + 2 * n] = dforget;
    g.dgates[at + 3 * n] =
        d * gates.input * DerivativeOf(s.functions[1], s.sums[at + 3 * n]);
    g.dkept[i] = d * gates.forget + s.Peephole(0, i) * dinput +
                 s.Peephole(2, i) * dforget;
    g.dh[i] = 0;  // all of it comes through the gates
  }
};

// --- GRU ---------------------------------------------------------------------

// The state, as the reset gate scales it for the candidate's product.
struct GruScaleState {
  CellStep s;
  Global<float> to;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    const float reset =
        ValueOf(s.functions[0], s.sums[s.GatesAt(i) + s.hidden]);
    to[i] = reset * s.h_before[i];
  }
};

// With scales_product what is kept is the candidate's product.
struct GruCell {
  CellStep s;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    if (s.Holds(i)) return s.Hold(i);
    const int64_t at = s.GatesAt(i);
    if (s.scales_product) {
      const float reset = ValueOf(s.functions[0], s.sums[at + s.hidden]);
      s.sums[at + 2 * s.hidden] += reset * s.kept[i];
    }
    const float update = ValueOf(s.functions[0], s.sums[at]);
    const float candidate = ValueOf(s.functions[1], s.sums[at + 2 * s.hidden]);
    s.Write(i, (1.0f - update) * candidate + update * s.h_before[i]);
  }
};

// Without scales_product GruResetGradient has the reset gate. `drecurrent` is
// the gradient of the candidate's product, or the scaled state.
struct GruGradient {
  CellGradient g;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    const CellStep& s = g.s;
    if (s.Holds(i)) {
      g.drecurrent[i] = 0;
      return g.Hold(i);
    }
    const int64_t at = s.GatesAt(i);
    const int64_t n = s.hidden;
    const float update = ValueOf(s.functions[0], s.sums[at]);
    const float candidate = ValueOf(s.functions[1], s.sums[at + 2 * n]);
    const float d = g.StateGradient(i);
    const float dcandidate =
        d * (1.0f - update) * DerivativeOf(s.functions[1], s.sums[at + 2 * n]);
    g.dgates[at] = d * (s.h_before[i] - candidate) *
                   DerivativeOf(s.functions[0], s.sums[at]);
    g.dgates[at + 2 * n] = dcandidate;
    g.dh[i] = d * update;
    if (!s.scales_product) return;
    g.dgates[at + n] =
        dcandidate * s.kept[i] * DerivativeOf(s.functions[0], s.sums[at + n]);
    g.drecurrent[i] = dcandidate * ValueOf(s.functions[0], s.sums[at + n]);
  }
};

struct GruResetGradient {
  CellGradient g;
  Global<const float> dscaled;  // of the scaled state

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    const CellStep& s = g.s;
    if (s.Holds(i)) return;
    const int64_t at = s.GatesAt(i) + s.hidden;
    const float reset = ValueOf(s.functions[0], s.sums[at]);
    const float before = s.h_before[i];
    const float d = dscaled[i];
    g.dgates[at] = d * before * DerivativeOf(s.functions[0], s.sums[at]);
    g.dh[i] += d * reset;
    g.drecurrent[i] = reset * before;
  }
};

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_RECURRENT_CELLS_H_

#ifndef SYNCLINE_KERNELS_REFERENCE_REFERENCE_RECURRENT_H_
#define SYNCLINE_KERNELS_REFERENCE_REFERENCE_RECURRENT_H_

// The specification of ONNX's RNN, GRU and LSTM, as
// kernels/reference/reference.h has that of the rest: forward, sample by
// sample. Its derivative is taken by central differences in double.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/reference/reference.h"

namespace syncline::reference {

enum class Cell { kRnn, kGru, kLstm };

inline int64_t GateCount(Cell cell) {
  return cell == Cell::kRnn ? 1 : cell == Cell::kGru ? 3 : 4;
}

// A function of a cell by ONNX's name.
struct NamedFunction {
  std::string name;
  double alpha = 0, beta = 0;
};

template <typename T>
T Activate(const NamedFunction& f, T x) {
  const T alpha(f.alpha), beta(f.beta);
  if (f.name == "Affine") return alpha * x + beta;
  if (f.name == "Elu") return x < T(0) ? alpha * (std::exp(x) - T(1)) : x;
  if (f.name == "HardSigmoid") {
    return std::clamp(alpha * x + beta, T(0), T(1));
  }
  if (f.name == "LeakyRelu") return x < T(0) ? alpha * x : x;
  if (f.name == "Relu") return std::max(x, T(0));
  if (f.name == "ScaledTanh") return alpha * std::tanh(beta * x);
  if (f.name == "Sigmoid") return T(1) / (T(1) + std::exp(-x));
  if (f.name == "Softplus") return std::log(T(1) + std::exp(x));
  if (f.name == "Softsign") return x / (T(1) + std::abs(x));
  if (f.name == "Tanh") return std::tanh(x);
  if (f.name == "ThresholdedRelu") return x > alpha ? x : T(0);
  return x;
}

struct RecurrentAttributes {
  Cell cell = Cell::kLstm;
  int64_t directions = 1;
  bool reversed = false;             // with one direction: it is backwards
  bool linear_before_reset = false;  // GRU
  bool batch_first = false;          // layout 1
  std::vector<int64_t> lengths;      // by sample; empty: all steps
  // Of each direction; empty: the cell's usual ones.
  std::vector<NamedFunction> functions = {};
  double clip = 0;  // of their arguments that are sums of gates; 0: none
  bool input_forget = false;  // LSTM: the forget gate is 1 - input
};

// Inputs and outputs in ONNX's shapes; bias, states and peepholes may be empty.
template <typename T>
struct RecurrentInputs {
  Array<T> x, w, r, bias, h, c;
  Array<T> peepholes = {};
};
template <typename T>
struct RecurrentOutputs {
  Array<T> y, h, c;
};

template <typename T>
T ElementOr(const Array<T>& array, int64_t i) {
  return array.values.empty() ? T(0) : array.values[i];
}

// Hidden and cell state of one sample in one direction.
template <typename T>
struct RecurrentState {
  std::vector<T> h, c;
};

// Sizes and the formulas of one step.
template <typename T>
class RecurrentReference {
 public:
  RecurrentReference(const RecurrentAttributes& a, const RecurrentInputs<T>& in)
      : a_(a),
        in_(in),
        steps_(in.x.dims[a.batch_first ? 1 : 0]),
        samples_(in.x.dims[a.batch_first ? 0 : 1]),
        width_(in.x.dims[2]),
        hidden_(in.r.dims[2]) {}

  RecurrentOutputs<T> Run() const {
    RecurrentOutputs<T> out;
    const int64_t d = a_.directions;
    out.y = Array<T>(a_.batch_first ? Dims{samples_, steps_, d, hidden_}
                                    : Dims{steps_, d, samples_, hidden_});
    out.h = Array<T>(a_.batch_first ? Dims{samples_, d, hidden_}
                                    : Dims{d, samples_, hidden_});
    out.c = out.h;
    for (int64_t direction = 0; direction < d; ++direction) {
      for (int64_t n = 0; n < samples_; ++n) RunSample(direction, n, &out);
    }
    return out;
  }

 private:
  void RunSample(int64_t d, int64_t n, RecurrentOutputs<T>* out) const {
    const bool backwards = a_.directions == 2 ? d == 1 : a_.reversed;
    const int64_t length = a_.lengths.empty() ? steps_ : a_.lengths[n];
    RecurrentState<T> state;
    for (int64_t i = 0; i < hidden_; ++i) {
      state.h.push_back(ElementOr(in_.h, StateAt(d, n) + i));
      state.c.push_back(ElementOr(in_.c, StateAt(d, n) + i));
    }
    for (int64_t s = 0; s < length; ++s) {
      const int64_t t = backwards ? length - 1 - s : s;
      Step(d, n, t, &state);
      const int64_t row = a_.batch_first
                              ? (n * steps_ + t) * a_.directions + d
                              : (t * a_.directions + d) * samples_ + n;
      for (int64_t i = 0; i < hidden_; ++i) {
        out->y.values[row * hidden_ + i] = state.h[i];
      }
    }
    for (int64_t i = 0; i < hidden_; ++i) {
      out->h.values[StateAt(d, n) + i] = state.h[i];
      out->c.values[StateAt(d, n) + i] = state.c[i];
    }
  }

  int64_t StateAt(int64_t d, int64_t n) const {
    return hidden_ *
           (a_.batch_first ? n * a_.directions + d : d * samples_ + n);
  }

  // Unit `i` of gate `g`: x W^T + Wb, and h R^T + Rb.
  T FromInput(int64_t d, int64_t n, int64_t t, int64_t g, int64_t i) const {
    const int64_t row = d * GateCount(a_.cell) * hidden_ + g * hidden_ + i;
    const int64_t at = a_.batch_first ? n * steps_ + t : t * samples_ + n;
    T sum = Bias(d, g, i);
    for (int64_t k = 0; k < width_; ++k) {
      sum += in_.x.values[at * width_ + k] * in_.w.values[row * width_ + k];
    }
    return sum;
  }
  T FromState(int64_t d, const std::vector<T>& h, int64_t g, int64_t i) const {
    const int64_t row = d * GateCount(a_.cell) * hidden_ + g * hidden_ + i;
    T sum = Bias(d, GateCount(a_.cell) + g, i);
    for (int64_t k = 0; k < hidden_; ++k) {
      sum += h[k] * in_.r.values[row * hidden_ + k];
    }
    return sum;
  }
  T Bias(int64_t d, int64_t gate, int64_t i) const {
    return ElementOr(in_.bias,
                     (d * 2 * GateCount(a_.cell) + gate) * hidden_ + i);
  }

  // Function `i` of direction d's cell, clipping included.
  T Call(int64_t d, size_t i, T x) const {
    static const std::vector<NamedFunction> kRnn = {{"Tanh"}};
    static const std::vector<NamedFunction> kGated = {
        {"Sigmoid"}, {"Tanh"}, {"Tanh"}};
    const std::vector<NamedFunction>& usual =
        a_.cell == Cell::kRnn ? kRnn : kGated;
    const bool of_memory = a_.cell == Cell::kLstm && i == 2;
    if (a_.clip > 0 && !of_memory) {
      x = std::clamp(x, T(-a_.clip), T(a_.clip));
    }
    if (a_.functions.empty()) return Activate(usual[i], x);
    return Activate(a_.functions[d * (a_.functions.size() / a_.directions) + i],
                    x);
  }

  void Step(int64_t d, int64_t n, int64_t t, RecurrentState<T>* state) const {
    const std::vector<T> h = state->h;
    const auto sum = [&](int64_t g, int64_t i) {
      return FromInput(d, n, t, g, i) + FromState(d, h, g, i);
    };
    std::vector<T> reset(hidden_), reset_h(hidden_);
    for (int64_t i = 0; i < hidden_ && a_.cell == Cell::kGru; ++i) {
      reset[i] = Call(d, 0, sum(1, i));
      reset_h[i] = reset[i] * h[i];
    }
    for (int64_t i = 0; i < hidden_; ++i) {
      if (a_.cell == Cell::kRnn) {
        state->h[i] = Call(d, 0, sum(0, i));
      } else if (a_.cell == Cell::kGru) {
        const T update = Call(d, 0, sum(0, i));
        const T candidate =
            Call(d, 1,
                 FromInput(d, n, t, 2, i) +
                     (a_.linear_before_reset ? reset[i] * FromState(d, h, 2, i)
                                             : FromState(d, reset_h, 2, i)));
        state->h[i] = (T(1) - update) * candidate + update * h[i];
      } else {
        LstmUnit(d, i, sum, state);
      }
    }
  }

  template <typename Sum>
  void LstmUnit(int64_t d, int64_t i, Sum sum, RecurrentState<T>* state) const {
    T& c = state->c[i];
    const auto peephole = [&](int64_t gate) {
      return ElementOr(in_.peepholes, (d * 3 + gate) * hidden_ + i) * c;
    };
    const T input = Call(d, 0, sum(0, i) + peephole(0));
    const T forget =
        a_.input_forget ? T(1) - input : Call(d, 0, sum(2, i) + peephole(2));
    c = forget * c + input * Call(d, 1, sum(3, i));
    state->h[i] = Call(d, 0, sum(1, i) + peephole(1)) * Call(d, 2, c);
  }

  const RecurrentAttributes& a_;
  const RecurrentInputs<T>& in_;
  const int64_t steps_, samples_, width_, hidden_;
};

template <typename T>
RecurrentOutputs<T> Recurrent(const RecurrentAttributes& a,
                              const RecurrentInputs<T>& in) {
  return RecurrentReference<T>(a, in).Run();
}

}  // namespace syncline::reference

#endif  // SYNCLINE_KERNELS_REFERENCE_REFERENCE_RECURRENT_H_

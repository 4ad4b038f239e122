#ifndef SYNCLINE_KERNELS_RNN_ACTIVATION_H_
#define SYNCLINE_KERNELS_RNN_ACTIVATION_H_

#include <cstdint>
#include <limits>

namespace syncline {

// A function that a recurrent network's cell applies, to the sums of its gates
// or to its memory: those that ONNX names for it. Its argument is first clipped
// to [-clip, clip]; beyond, no gradient flows.
struct RnnActivation {
  enum class Kind {
    kAffine,  // alpha x + beta
    kElu,
    kHardSigmoid,
    kLeakyRelu,
    kRelu,
    kScaledTanh,  // alpha tanh(beta x)
    kSigmoid,
    kSoftplus,
    kSoftsign,
    kTanh,
    kThresholdedRelu
  };
  Kind kind = Kind::kTanh;
  float alpha = 0;  // where it has them
  float beta = 0;
  float clip = std::numeric_limits<float>::infinity();
};

// y[i] = f(x[i]). y may be x. NaN stays NaN.
void Apply(const RnnActivation& f, int64_t n, const float* x, float* y);
// dx[i] = dy[i] * f'(x[i]). dx may be dy.
void ApplyGradient(const RnnActivation& f, int64_t n, const float* x,
                   const float* dy, float* dx);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_RNN_ACTIVATION_H_

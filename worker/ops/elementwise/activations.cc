// Activations: functions between the layers of a network, element by element.

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/activation.h"
#include "kernels/elementwise/binary_loop.h"
#include "kernels/elementwise/scalar_function.h"
#include "kernels/elementwise/vector_math.h"
#include "worker/ops/elementwise/binary_op.h"
#include "worker/ops/elementwise/pointwise_op.h"
#include "worker/ops/elementwise/unary_op.h"

namespace syncline::worker {
namespace {

// Barron, 2017.
struct ContinuousExponential {
  float alpha;
  float Value(float x) const {
    return x < 0 ? alpha * ExpMinusOne(x / alpha) : x;
  }
  float Derivative(float x) const { return x < 0 ? Exp(x / alpha) : 1.0f; }
};

// Howard et al., ICCV 2019: x * clip(x / 6 + 1 / 2, 0, 1).
struct HardSelfGated {
  float Value(float x) const {
    const float gate = x * (1.0f / 6) + 0.5f;
    const float low = gate < 0 ? 0.0f : gate;
    return x * (low > 1 ? 1.0f : low);
  }
  float Derivative(float x) const {
    const float inside = x * (1.0f / 3) + 0.5f;
    return x <= -3 ? 0.0f : (x >= 3 ? 1.0f : inside);
  }
};

// Misra, BMVC 2020.
// x * tanh(log(1 + e^x)), where the tanh is n / (n + 2), n = e^x (e^x + 2).
// From 20 on it is 1, which must not become infinity over infinity.
struct SelfRegularized {
  static float Power(float x) {
    const float power = Exp(x > 20.0f ? 20.0f : x);
    return power * (power + 2.0f);
  }
  float Value(float x) const {
    const float n = Power(x);
    return x * (n / (n + 2.0f));
  }
  // 1 - tanh^2 is 4 (n + 1) / (n + 2)^2, which cancels nothing.
  float Derivative(float x) const {
    const float n = Power(x);
    const float share = 1.0f / (n + 2.0f);
    return n * share + x * Logistic(x) * (4.0f * (n + 1.0f) * share * share);
  }
};

// He et al., ICCV 2015.
void PReluForward(const Broadcast& s, const float* x, const float* slope,
                  float* y) {
  ApplyBinary(s, x, slope, y,
              [](float v, float k) { return v < 0 ? k * v : v; });
}

void PReluInputGradient(const BinaryBackward& in) {
  BinaryGradient(in.shape, Side::kA, in.accumulate, in.dx,
                 [&](int64_t o, int64_t ia, int64_t ib) {
                   return in.a[ia] < 0 ? in.dy[o] * in.b[ib] : in.dy[o];
                 });
}

void PReluSlopeGradient(const BinaryBackward& in) {
  BinaryGradient(in.shape, Side::kB, in.accumulate, in.dx,
                 [&](int64_t o, int64_t ia, int64_t) {
                   return in.a[ia] < 0 ? in.dy[o] * in.a[ia] : 0.0f;
                 });
}

// Klambauer et al., NIPS 2017.
struct ScaledExponential {
  float alpha;
  float gamma;
  float Value(float x) const {
    return gamma * (x > 0 ? x : alpha * ExpMinusOne(x));
  }
  float Derivative(float x) const {
    return gamma * (x > 0 ? 1.0f : alpha * Exp(x));
  }
};

// Zero within [-limit, limit]; outside it, nearer to zero by `bias`.
struct Shrunk {
  float limit;
  float bias;
  float Value(float x) const {
    return x < -limit ? x + bias : (x > limit ? x - bias : (x == x ? 0.0f : x));
  }
  float Derivative(float x) const {
    return x < -limit || x > limit ? 1.0f : 0.0f;
  }
};

// Ramachandran et al., 2017; with alpha 1, SiLU.
struct SelfGated {
  float alpha;
  float Value(float x) const { return x * Logistic(alpha * x); }
  float Derivative(float x) const {
    const float gate = Logistic(alpha * x);
    return gate + alpha * x * gate * (1.0f - gate);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeCelu(const OpSpec& spec) {
  return MakePointwise(spec,
                       ContinuousExponential{spec.node->Float("alpha", 1.0f)});
}

absl::StatusOr<std::unique_ptr<Op>> MakeElu(const OpSpec& spec) {
  return MakePointwise(spec, scalar::Elu{spec.node->Float("alpha", 1.0f)});
}

absl::StatusOr<std::unique_ptr<Op>> MakeGelu(const OpSpec& spec) {
  constexpr auto kInput = UnaryKernels::Saved::kInput;
  const std::string approximate = spec.node->String("approximate", "none");
  if (approximate == "none")
    return MakeUnary(spec, {Gelu, GeluGradient, kInput});
  if (approximate == "tanh") {
    return MakeUnary(spec, {GeluTanh, GeluTanhGradient, kInput});
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "approximate is \"", approximate, "\"; it must be \"none\" or \"tanh\""));
}

absl::StatusOr<std::unique_ptr<Op>> MakeHardSigmoid(const OpSpec& spec) {
  return MakePointwise(spec,
                       scalar::HardSigmoid{spec.node->Float("alpha", 0.2f),
                                           spec.node->Float("beta", 0.5f)});
}

absl::StatusOr<std::unique_ptr<Op>> MakeHardSwish(const OpSpec& spec) {
  return MakePointwise(spec, HardSelfGated{});
}

absl::StatusOr<std::unique_ptr<Op>> MakeLeakyRelu(const OpSpec& spec) {
  return MakePointwise(spec,
                       scalar::LeakyRelu{spec.node->Float("alpha", 0.01f)});
}

absl::StatusOr<std::unique_ptr<Op>> MakeMish(const OpSpec& spec) {
  return MakePointwise(spec, SelfRegularized{});
}

absl::StatusOr<std::unique_ptr<Op>> MakePRelu(const OpSpec& spec) {
  const Dims& x = spec.input(0).dims;
  const Dims& slope = spec.input(1).dims;
  SYNCLINE_ASSIGN_OR_RETURN(const Dims both, BroadcastDims(x, slope));
  if (both != x) {
    return absl::InvalidArgumentError(
        absl::StrCat("the slope is ", DimsToString(slope),
                     ", which cannot be repeated to ", DimsToString(x)));
  }
  return MakeBinary(
      spec, {.forward = PReluForward,
             .gradient_a = {.run = PReluInputGradient, .reads_inputs = 0b11},
             .gradient_b = {.run = PReluSlopeGradient, .reads_inputs = 0b01}});
}

absl::StatusOr<std::unique_ptr<Op>> MakeRelu(const OpSpec& spec) {
  return MakeUnary(spec, {Relu, ReluGradient, UnaryKernels::Saved::kOutput});
}

absl::StatusOr<std::unique_ptr<Op>> MakeSelu(const OpSpec& spec) {
  return MakePointwise(
      spec, ScaledExponential{spec.node->Float("alpha", 1.67326319f),
                              spec.node->Float("gamma", 1.05070102f)});
}

absl::StatusOr<std::unique_ptr<Op>> MakeShrink(const OpSpec& spec) {
  return MakePointwise(spec, Shrunk{spec.node->Float("lambd", 0.5f),
                                    spec.node->Float("bias", 0.0f)});
}

absl::StatusOr<std::unique_ptr<Op>> MakeSigmoid(const OpSpec& spec) {
  return MakeUnary(spec,
                   {Sigmoid, SigmoidGradient, UnaryKernels::Saved::kOutput});
}

absl::StatusOr<std::unique_ptr<Op>> MakeSoftplus(const OpSpec& spec) {
  return MakePointwise(spec, scalar::Softplus());
}

absl::StatusOr<std::unique_ptr<Op>> MakeSoftsign(const OpSpec& spec) {
  return MakePointwise(spec, scalar::Softsign());
}

absl::StatusOr<std::unique_ptr<Op>> MakeSwish(const OpSpec& spec) {
  return MakePointwise(spec, SelfGated{spec.node->Float("alpha", 1.0f)});
}

absl::StatusOr<std::unique_ptr<Op>> MakeTanh(const OpSpec& spec) {
  return MakeUnary(spec, {Tanh, TanhGradient, UnaryKernels::Saved::kOutput});
}

absl::StatusOr<std::unique_ptr<Op>> MakeThresholdedRelu(const OpSpec& spec) {
  return MakePointwise(
      spec, scalar::ThresholdedRelu{spec.node->Float("alpha", 1.0f)});
}

}  // namespace syncline::worker

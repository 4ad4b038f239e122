// Trigonometric and hyperbolic functions and their inverses, element by
// element. Tanh is an activation (activations.cc).

#include <cmath>

#include "worker/ops/elementwise/pointwise_op.h"

namespace syncline::worker {
namespace {

struct Sine {
  float Value(float x) const { return std::sin(x); }
  float Derivative(float x) const { return std::cos(x); }
};

struct Cosine {
  float Value(float x) const { return std::cos(x); }
  float Derivative(float x) const { return -std::sin(x); }
};

struct Tangent {
  float Value(float x) const { return std::tan(x); }
  float Derivative(float x) const {
    const float y = std::tan(x);
    return 1.0f + y * y;
  }
};

struct ArcSine {
  float Value(float x) const { return std::asin(x); }
  float Derivative(float x) const {
    return 1.0f / std::sqrt((1.0f - x) * (1.0f + x));
  }
};

struct ArcCosine {
  float Value(float x) const { return std::acos(x); }
  float Derivative(float x) const {
    return -1.0f / std::sqrt((1.0f - x) * (1.0f + x));
  }
};

struct ArcTangent {
  float Value(float x) const { return std::atan(x); }
  float Derivative(float x) const { return 1.0f / (1.0f + x * x); }
};

struct HyperbolicSine {
  float Value(float x) const { return std::sinh(x); }
  float Derivative(float x) const { return std::cosh(x); }
};

struct HyperbolicCosine {
  float Value(float x) const { return std::cosh(x); }
  float Derivative(float x) const { return std::sinh(x); }
};

struct AreaSine {
  float Value(float x) const { return std::asinh(x); }
  float Derivative(float x) const { return 1.0f / std::hypot(1.0f, x); }
};

struct AreaCosine {
  float Value(float x) const { return std::acosh(x); }
  float Derivative(float x) const {
    return 1.0f / (std::sqrt(x - 1.0f) * std::sqrt(x + 1.0f));
  }
};

struct AreaTangent {
  float Value(float x) const { return std::atanh(x); }
  float Derivative(float x) const { return 1.0f / ((1.0f - x) * (1.0f + x)); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeSin(const OpSpec& spec) {
  return MakePointwise(spec, Sine{});
}

absl::StatusOr<std::unique_ptr<Op>> MakeCos(const OpSpec& spec) {
  return MakePointwise(spec, Cosine{});
}

absl::StatusOr<std::unique_ptr<Op>> MakeTan(const OpSpec& spec) {
  return MakePointwise(spec, Tangent{});
}

absl::StatusOr<std::unique_ptr<Op>> MakeAsin(const OpSpec& spec) {
  return MakePointwise(spec, ArcSine{});
}

absl::StatusOr<std::unique_ptr<Op>> MakeAcos(const OpSpec& spec) {
  return MakePointwise(spec, ArcCosine{});
}

absl::StatusOr<std::unique_ptr<Op>> MakeAtan(const OpSpec& spec) {
  return MakePointwise(spec, ArcTangent{});
}

absl::StatusOr<std::unique_ptr<Op>> MakeSinh(const OpSpec& spec) {
  return MakePointwise(spec, HyperbolicSine{});
}

absl::StatusOr<std::unique_ptr<Op>> MakeCosh(const OpSpec& spec) {
  return MakePointwise(spec, HyperbolicCosine{});
}

absl::StatusOr<std::unique_ptr<Op>> MakeAsinh(const OpSpec& spec) {
  return MakePointwise(spec, AreaSine{});
}

absl::StatusOr<std::unique_ptr<Op>> MakeAcosh(const OpSpec& spec) {
  return MakePointwise(spec, AreaCosine{});
}

absl::StatusOr<std::unique_ptr<Op>> MakeAtanh(const OpSpec& spec) {
  return MakePointwise(spec, AreaTangent{});
}

}  // namespace syncline::worker

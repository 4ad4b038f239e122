#ifndef SYNCLINE_KERNELS_ELEMENTWISE_BINARY_FUNCTIONS_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_BINARY_FUNCTIONS_H_

// The functions of two numbers, and their gradients, as ONNX defines them: one
// list, from which the compiler of each device makes its kernels.

#include <cmath>
#include <cstddef>

#include "kernels/elementwise/broadcast_shape.h"
#include "kernels/elementwise/host_device.h"

namespace syncline {

// The values that the gradient of one operand reads, besides dy.
struct BinaryReads {
  bool a = false;
  bool b = false;
  bool y = false;
};

// One element of the operands, the result and its gradient. A value
// that the gradient does not read is 0.
struct BinaryElement {
  float a = 0;
  float b = 0;
  float y = 0;
  float dy = 0;
};

namespace binary {

struct Add {
  static constexpr BinaryReads kReadsForA = {};
  static constexpr BinaryReads kReadsForB = {};
  SYNCLINE_HOST_DEVICE static float Value(float a, float b) { return a + b; }
  SYNCLINE_HOST_DEVICE static float GradientA(const BinaryElement& e) {
    return e.dy;
  }
  SYNCLINE_HOST_DEVICE static float GradientB(const BinaryElement& e) {
    return e.dy;
  }
};

struct Divide {
  static constexpr BinaryReads kReadsForA = {.b = true};
  static constexpr BinaryReads kReadsForB = {.b = true, .y = true};
  SYNCLINE_HOST_DEVICE static float Value(float a, float b) { return a / b; }
  SYNCLINE_HOST_DEVICE static float GradientA(const BinaryElement& e) {
    return e.dy / e.b;
  }
  SYNCLINE_HOST_DEVICE static float GradientB(const BinaryElement& e) {
    return -e.dy * e.y / e.b;
  }
};

struct Multiply {
  static constexpr BinaryReads kReadsForA = {.b = true};
  static constexpr BinaryReads kReadsForB = {.a = true};
  SYNCLINE_HOST_DEVICE static float Value(float a, float b) { return a * b; }
  SYNCLINE_HOST_DEVICE static float GradientA(const BinaryElement& e) {
    return e.dy * e.b;
  }
  SYNCLINE_HOST_DEVICE static float GradientB(const BinaryElement& e) {
    return e.dy * e.a;
  }
};

// He et al., ICCV 2015; b is the slope.
struct PRelu {
  static constexpr BinaryReads kReadsForA = {.a = true, .b = true};
  static constexpr BinaryReads kReadsForB = {.a = true};
  SYNCLINE_HOST_DEVICE static float Value(float a, float b) {
    return a < 0 ? b * a : a;
  }
  SYNCLINE_HOST_DEVICE static float GradientA(const BinaryElement& e) {
    return e.a < 0 ? e.dy * e.b : e.dy;
  }
  SYNCLINE_HOST_DEVICE static float GradientB(const BinaryElement& e) {
    return e.a < 0 ? e.dy * e.a : 0.0f;
  }
};

// The remainder of a division towards 0, which is all that ONNX defines for
// floating point.
struct Remainder {
  static constexpr BinaryReads kReadsForA = {};
  static constexpr BinaryReads kReadsForB = {.a = true, .b = true};
  SYNCLINE_HOST_DEVICE static float Value(float a, float b) {
    return std::fmod(a, b);
  }
  SYNCLINE_HOST_DEVICE static float GradientA(const BinaryElement& e) {
    return e.dy;
  }
  SYNCLINE_HOST_DEVICE static float GradientB(const BinaryElement& e) {
    return -e.dy * std::trunc(e.a / e.b);
  }
};

struct Subtract {
  static constexpr BinaryReads kReadsForA = {};
  static constexpr BinaryReads kReadsForB = {};
  SYNCLINE_HOST_DEVICE static float Value(float a, float b) { return a - b; }
  SYNCLINE_HOST_DEVICE static float GradientA(const BinaryElement& e) {
    return e.dy;
  }
  SYNCLINE_HOST_DEVICE static float GradientB(const BinaryElement& e) {
    return -e.dy;
  }
};

}  // namespace binary

#define SYNCLINE_BINARY_FUNCTIONS(FUNCTION) \
  FUNCTION(Add)                             \
  FUNCTION(Divide)                          \
  FUNCTION(Multiply)                        \
  FUNCTION(PRelu)                           \
  FUNCTION(Remainder)                       \
  FUNCTION(Subtract)

enum class BinaryFunction {
#define SYNCLINE_NAME_FUNCTION(name) k##name,
  SYNCLINE_BINARY_FUNCTIONS(SYNCLINE_NAME_FUNCTION)
#undef SYNCLINE_NAME_FUNCTION
};
inline constexpr size_t kBinaryFunctions = 0
#define SYNCLINE_COUNT_FUNCTION(name) +1
    SYNCLINE_BINARY_FUNCTIONS(SYNCLINE_COUNT_FUNCTION);
#undef SYNCLINE_COUNT_FUNCTION

template <typename F, Side kSide>
constexpr BinaryReads BinaryReadsOf() {
  return kSide == Side::kA ? F::kReadsForA : F::kReadsForB;
}
BinaryReads BinaryReadsOf(BinaryFunction function, Side side);

template <typename F, Side kSide>
SYNCLINE_HOST_DEVICE inline float BinaryGradientOf(const BinaryElement& e) {
  if constexpr (kSide == Side::kA) {
    return F::GradientA(e);
  } else {
    return F::GradientB(e);
  }
}

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_BINARY_FUNCTIONS_H_

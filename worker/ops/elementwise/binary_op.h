#ifndef SYNCLINE_WORKER_OPS_ELEMENTWISE_BINARY_OP_H_
#define SYNCLINE_WORKER_OPS_ELEMENTWISE_BINARY_OP_H_

#include <cstdint>

#include "kernels/elementwise/broadcast.h"
#include "worker/ops/op.h"

namespace syncline::worker {

// The arrays from which one gradient of a binary operation is computed.
struct BinaryBackward {
  const Broadcast& shape;
  const float* a;
  const float* b;
  const float* y;
  const float* dy;
  bool accumulate;
  float* dx;  // of the operand in question
};

// Elementwise arithmetic with broadcasting: two float32 inputs, one output.
struct BinaryKernels {
  void (*forward)(const Broadcast& s, const float* a, const float* b, float* y);
  // The gradient of one operand, and what it reads (bit 0: a, bit 1: b).
  struct Gradient {
    void (*run)(const BinaryBackward& in);
    uint32_t reads_inputs = 0;
    bool reads_output = false;
  };
  Gradient gradient_a;
  Gradient gradient_b;
};

absl::StatusOr<std::unique_ptr<Op>> MakeBinary(const OpSpec& spec,
                                               const BinaryKernels& kernels);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_ELEMENTWISE_BINARY_OP_H_

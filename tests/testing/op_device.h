#ifndef SYNCLINE_TESTS_TESTING_OP_DEVICE_H_
#define SYNCLINE_TESTS_TESTING_OP_DEVICE_H_

// Runs single operators on this machine's processors, as an executor would.

#include "kernels/cpu/cpu_device.h"
#include "kernels/device/data_error.h"
#include "worker/ops/op.h"

namespace syncline::testing {

// A spec for this machine; the rest is the test's.
inline worker::OpSpec HostSpec() {
  worker::OpSpec spec;
  spec.device = &ThisMachine();
  return spec;
}

// Op::Forward, of the first step where the test does not say which. Errors:
// its, or what its kernels have reported, in words.
inline absl::Status RunForward(worker::Op& op, worker::Op::Tensors tensors) {
  CpuStream stream(&ThisMachine());
  DataError error;
  const StepNumbers numbers;
  if (tensors.numbers == nullptr) tensors.numbers = &numbers;
  tensors.stream = &stream;
  tensors.errors = {.record = &error};
  const absl::Status status = op.Forward(tensors);
  return error.node == DataError::kNone ? status : op.Explain(error);
}

inline absl::Status RunBackward(worker::Op& op, worker::Op::Tensors tensors,
                                const worker::Op::Gradients& gradients) {
  CpuStream stream(&ThisMachine());
  tensors.stream = &stream;
  return op.Backward(tensors, gradients);
}

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_OP_DEVICE_H_

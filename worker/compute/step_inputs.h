#ifndef SYNCLINE_WORKER_COMPUTE_STEP_INPUTS_H_
#define SYNCLINE_WORKER_COMPUTE_STEP_INPUTS_H_

#include <cstddef>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/training_graph.h"
#include "kernels/device/device.h"
#include "worker/compute/backward_graph.h"

namespace syncline::worker {

// The arrays of the host that a step reads, in memory of the device: feeds,
// labels, rows of tables, constants. On a device that is the host, arrays are
// used where they are. Thread-compatible.
class StepInputs {
 public:
  // `device` outlives this.
  explicit StepInputs(Device* device) : device_(device) {}

  // A constant, which is copied once. Errors: the device's.
  absl::StatusOr<const void*> Constant(const void* host, size_t bytes);

  // Puts a copy of an array into the stream, to memory that `slot` keeps for
  // it: `capacity` bytes at least, so that arrays of later steps find room at
  // the same address. The array stays as it is until the stream has done that.
  // Slots are small numbers, each for one array of a step. Errors: the
  // device's.
  absl::StatusOr<const void*> Copy(Stream& stream, size_t slot,
                                   const void* host, size_t bytes,
                                   size_t capacity = 0);

 private:
  Device* const device_;
  absl::flat_hash_map<const void*, DeviceMemory> constants_;
  std::vector<DeviceMemory> slots_;
};

// Everything that the loss depends on is there, in a type that is fed. `flow`
// is the training step's. Errors: InvalidArgument, naming what is not.
absl::Status CheckGiven(const Graph& graph, const TrainingGraph& training,
                        const BackwardGraph& flow);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_STEP_INPUTS_H_

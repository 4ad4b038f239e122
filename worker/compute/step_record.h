#ifndef SYNCLINE_WORKER_COMPUTE_STEP_RECORD_H_
#define SYNCLINE_WORKER_COMPUTE_STEP_RECORD_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/data_error.h"
#include "kernels/device/device.h"

namespace syncline::worker {

// The record that the forward pass of a step leaves in memory of the device,
// and that the host reads once: the loss, and the first error in the data.
// Thread-compatible.
class StepRecord {
 public:
  struct Content {
    double loss = 0;
    DataError error;
  };

  // Once. `device` outlives this. Errors: the device's.
  absl::Status Allocate(Device& device, Stream& stream);

  // For kernels, in memory of the device.
  double* loss() const { return &memory_.as<Content>()->loss; }
  DataError* error() const { return &memory_.as<Content>()->error; }

  // Puts into the stream: a copy for the host, and that it is there. Queue does
  // the first alone, as a part of a graph; Note the second, behind the graph.
  void Copy(Stream& stream) {
    Queue(stream);
    Note(stream);
  }
  void Queue(Stream& stream);
  void Note(Stream& stream) { copied_->Record(stream); }
  bool IsCopied() { return copied_->IsDone(); }
  // The latest copy; waits for it. An error in it is forgotten on the device.
  // Errors: the device's.
  absl::StatusOr<Content> Read(Stream& stream);

 private:
  void Clear(Stream& stream);

  DeviceMemory memory_;
  DeviceMemory copy_;  // in memory of the host
  std::unique_ptr<Event> copied_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_STEP_RECORD_H_

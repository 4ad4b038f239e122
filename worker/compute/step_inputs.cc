#include "worker/compute/step_inputs.h"

#include <utility>

#include "common/base/status_macros.h"

namespace syncline::worker {

absl::StatusOr<const void*> StepInputs::Constant(const void* host,
                                                 size_t bytes) {
  if (device_->is_host()) return host;
  const auto it = constants_.find(host);
  if (it != constants_.end()) return it->second.data();
  SYNCLINE_ASSIGN_OR_RETURN(DeviceMemory copy, Upload(*device_, host, bytes));
  const void* const data = copy.data();
  constants_.emplace(host, std::move(copy));
  return data;
}

absl::StatusOr<const void*> StepInputs::Copy(Stream& stream, size_t slot,
                                             const void* host, size_t bytes) {
  if (device_->is_host()) return host;
  SYNCLINE_ASSIGN_OR_RETURN(void* const copy, Output(slot, nullptr, bytes));
  stream.CopyToDevice(copy, host, bytes);
  return copy;
}

absl::StatusOr<void*> StepInputs::Output(size_t slot, void* host,
                                         size_t bytes) {
  if (device_->is_host()) return host;
  if (slot >= slots_.size()) slots_.resize(slot + 1);
  if (slots_[slot].data() == nullptr || slots_[slot].bytes() < bytes) {
    SYNCLINE_ASSIGN_OR_RETURN(slots_[slot], device_->Allocate(bytes));
  }
  return slots_[slot].data();
}

}  // namespace syncline::worker

#include "worker/compute/pass_timer.h"

#include <optional>

#include "common/base/status_macros.h"
#include "kernels/cuda/library_device.h"

namespace syncline::worker {

DeviceMeter* MeterOf(Device& device) {
  auto* const gpu = dynamic_cast<cuda::LibraryDevice*>(&device);
  return gpu == nullptr ? nullptr : &gpu->meter();
}

absl::Status PassTimer::Allocate(Device& device) {
  DeviceMeter* const meter = MeterOf(device);
  if (meter == nullptr) return absl::OkStatus();
  auto* const gpu = &cuda::LibraryDevice::Of(device);
  SYNCLINE_ASSIGN_OR_RETURN(forward_, gpu->MakeTimer());
  SYNCLINE_ASSIGN_OR_RETURN(backward_, gpu->MakeTimer());
  meter_ = meter;
  return absl::OkStatus();
}

void PassTimer::BeginStep() {
  ++steps_;
  is_timed_ = steps_ <= 2 || steps_ % kPeriod == 0;
  if (!is_timed_) return;
  stands_for_ = steps_ - timed_at_;
  timed_at_ = steps_;
}

void PassTimer::BeginForward(Stream& stream) {
  if (is_timed()) forward_->Start(stream);
}

void PassTimer::EndForward(Stream& stream) {
  if (!is_timed()) return;
  forward_->Stop(stream);
  backward_->Start(stream);
}

void PassTimer::EndBackward(Stream& stream) {
  if (is_timed()) backward_->Stop(stream);
}

void PassTimer::EndPart() {
  if (!is_timed()) return;
  const std::optional<double> forward = forward_->Seconds();
  const std::optional<double> backward = backward_->Seconds();
  if (!forward.has_value() || !backward.has_value()) return;
  const auto steps = static_cast<double>(stands_for_);
  meter_->AddPassSeconds(DeviceMeter::kForward, steps * *forward);
  meter_->AddPassSeconds(DeviceMeter::kBackward, steps * *backward);
}

}  // namespace syncline::worker

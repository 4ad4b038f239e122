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
  parts_ = 0;
  ++steps_;
  is_timed_ = steps_ <= 2 || steps_ % kPeriod == 0;
  if (!is_timed_) return;
  stands_for_ = steps_ - timed_at_;
  timed_at_ = steps_;
}

void PassTimer::Begin(Stream& stream) {
  if (!is_timed()) return;
  ++parts_;
  is_apart_ = false;
  forward_->Start(stream);
}

void PassTimer::EndForward(Stream& stream) {
  if (!is_timed()) return;
  is_apart_ = true;
  forward_->Stop(stream);
  backward_->Start(stream);
}

void PassTimer::End(Stream& stream) {
  if (is_timed()) (is_apart_ ? backward_ : forward_)->Stop(stream);
}

void PassTimer::EndStep() {
  if (!is_timed()) return;
  const std::optional<double> first = forward_->Seconds();
  const std::optional<double> second =
      is_apart_ ? backward_->Seconds() : std::make_optional(0.0);
  if (!first.has_value() || !second.has_value()) return;
  const double both = *first + *second;
  if (is_apart_ && both > 0) forward_share_ = *first / both;
  const double all = both * static_cast<double>(stands_for_ * parts_);
  meter_->AddPassSeconds(DeviceMeter::kForward, all * forward_share_);
  meter_->AddPassSeconds(DeviceMeter::kBackward, all * (1 - forward_share_));
}

}  // namespace syncline::worker

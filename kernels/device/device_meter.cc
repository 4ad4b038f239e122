#include "kernels/device/device_meter.h"

namespace syncline {
namespace {

void AddTo(std::atomic<double>* sum, double seconds) {
  double before = sum->load(std::memory_order_relaxed);
  while (!sum->compare_exchange_weak(before, before + seconds,
                                     std::memory_order_relaxed)) {
  }
}

}  // namespace

void DeviceMeter::AddCopySeconds(Direction direction, double seconds) {
  AddTo(&copy_seconds_[direction], seconds);
}

void DeviceMeter::AddPassSeconds(Pass pass, double seconds) {
  AddTo(&pass_seconds_[pass], seconds);
}

void CopySampler::Begin(Stream& stream, DeviceMeter::Direction direction,
                        size_t bytes) {
  meter_.AddCopiedBytes(direction, bytes);
  open_ = nullptr;
  if (!is_timed()) return;
  ++copies_[direction];
  if (used_ == kTimedMax) return;
  if (used_ == timed_.size()) timed_.push_back({.timer = make_timer_()});
  Timed& timed = timed_[used_];
  if (timed.timer == nullptr) return;
  ++used_;
  timed.direction = direction;
  open_ = timed.timer.get();
  open_->Start(stream);
}

void CopySampler::End(Stream& stream) {
  if (open_ != nullptr) open_->Stop(stream);
  open_ = nullptr;
}

void CopySampler::Count(const DeviceMeter::CopiedBytes& bytes) {
  meter_.AddCopiedBytes(DeviceMeter::kToDevice, bytes[DeviceMeter::kToDevice]);
  meter_.AddCopiedBytes(DeviceMeter::kToHost, bytes[DeviceMeter::kToHost]);
}

void CopySampler::OnSynchronized() {
  if (is_timed()) {
    std::array<double, DeviceMeter::kDirections> seconds{};
    std::array<int64_t, DeviceMeter::kDirections> measured{};
    for (size_t k = 0; k < used_; ++k) {
      const std::optional<double> took = timed_[k].timer->Seconds();
      if (!took.has_value()) continue;
      seconds[timed_[k].direction] += *took;
      ++measured[timed_[k].direction];
    }
    // The first round stands for itself: what prepares a job is no step.
    const auto rounds = static_cast<double>(round_ == 0 ? 1 : kPeriod);
    for (int d = 0; d < DeviceMeter::kDirections; ++d) {
      if (measured[d] == 0) continue;
      const double for_all =
          static_cast<double>(copies_[d]) / static_cast<double>(measured[d]);
      meter_.AddCopySeconds(static_cast<DeviceMeter::Direction>(d),
                            rounds * for_all * seconds[d]);
    }
    used_ = 0;
    copies_ = {};
  }
  ++round_;
}

}  // namespace syncline

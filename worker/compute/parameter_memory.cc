#include "worker/compute/parameter_memory.h"

#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/system/log.h"

namespace syncline::worker {

int64_t ParameterMemory::BytesOf(int64_t count) {
  constexpr int64_t kFloats = kCacheLineBytes / sizeof(float);
  return (count + kFloats - 1) / kFloats * int64_t{kCacheLineBytes};
}

int64_t ParameterMemory::BytesFor(absl::Span<const int64_t> counts) {
  int64_t bytes = 0;
  for (const int64_t count : counts) bytes += BytesOf(count);
  return bytes;
}

std::vector<int64_t> ParameterMemory::OffsetsFor(
    absl::Span<const int64_t> counts) {
  std::vector<int64_t> offsets;
  int64_t at = 0;
  for (const int64_t count : counts) {
    offsets.push_back(at);
    at += BytesOf(count);
  }
  return offsets;
}

absl::Status ParameterMemory::Allocate(Device& device, Stream& stream,
                                       absl::Span<const int64_t> counts,
                                       bool shared) {
  counts_.assign(counts.begin(), counts.end());
  const int64_t bytes = BytesFor(counts);
  if (shared) {
    if (auto region = SharedRegion::Create(bytes); region.ok()) {
      region_ = *std::move(region);
    }
  }
  if (region_ == nullptr) memory_ = AlignedFloats(bytes / sizeof(float));
  char* const host = reinterpret_cast<char*>(
      region_ != nullptr ? static_cast<void*>(region_->data())
                         : static_cast<void*>(memory_.data()));
  char* on_device = host;
  if (!device.is_host()) {
    SYNCLINE_ASSIGN_OR_RETURN(copy_, device.Allocate(bytes));
    device_of_copy_ = &device;
    stream.Clear(copy_.data(), bytes);
    on_device = copy_.as<char>();
  }
  for (const int64_t offset : OffsetsFor(counts)) {
    host_.push_back(reinterpret_cast<float*>(host + offset));
    device_.push_back(reinterpret_cast<float*>(on_device + offset));
  }
  return absl::OkStatus();
}

absl::Status ParameterMemory::MakeResident(absl::string_view what,
                                           const GoOnCheck& go_on) {
  SYNCLINE_RETURN_IF_ERROR(TouchMemory(
      what,
      {reinterpret_cast<char*>(memory_.data()), memory_.size() * sizeof(float)},
      go_on));
  if (device_of_copy_ == nullptr || host_.empty()) return absl::OkStatus();
  pinned_ = device_of_copy_->Pin(host_[0], copy_.bytes());
  if (!pinned_.is_pinned() && copy_.bytes() > 0) {
    LogWarning("memory of the host is not pinned; copies are slower")
        .Field("what", what)
        .Field("device", device_of_copy_->name());
  }
  return absl::OkStatus();
}

void ParameterMemory::Release() {
  SYNCLINE_CHECK(region_ == nullptr && copy_.data() == nullptr);
  ReleasePages({reinterpret_cast<char*>(memory_.data()),
                memory_.size() * sizeof(float)});
}

void ParameterMemory::CopyToDevice(Stream& stream) const {
  if (copy_.data() == nullptr || host_.empty()) return;
  stream.CopyToDevice(copy_.data(), host_[0], copy_.bytes());
}

void ParameterMemory::CopyToHost(Stream& stream, size_t i) const {
  if (copy_.data() == nullptr) return;
  stream.CopyToHost(host_[i], device_[i], counts_[i] * sizeof(float));
}

}  // namespace syncline::worker

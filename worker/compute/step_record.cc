#include "worker/compute/step_record.h"

#include "common/base/status_macros.h"

namespace syncline::worker {

absl::Status StepRecord::Allocate(Device& device, Stream& stream) {
  SYNCLINE_ASSIGN_OR_RETURN(memory_, device.Allocate(sizeof(Content)));
  SYNCLINE_ASSIGN_OR_RETURN(copy_, device.AllocatePinned(sizeof(Content)));
  SYNCLINE_ASSIGN_OR_RETURN(copied_, device.MakeEvent());
  Clear(stream);
  return absl::OkStatus();
}

void StepRecord::Queue(Stream& stream) {
  stream.CopyToHost(copy_.data(), memory_.data(), sizeof(Content));
}

absl::StatusOr<StepRecord::Content> StepRecord::Read(Stream& stream) {
  SYNCLINE_RETURN_IF_ERROR(copied_->Wait());
  const Content content = *copy_.as<Content>();
  if (content.error.node != DataError::kNone) Clear(stream);
  return content;
}

void StepRecord::Clear(Stream& stream) {
  static constexpr Content kEmpty;
  stream.CopyToDevice(memory_.data(), &kEmpty, sizeof(kEmpty));
}

}  // namespace syncline::worker

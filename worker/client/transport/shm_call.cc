#include "worker/client/transport/shm_call.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/wire/frame.h"

namespace syncline::worker {
namespace {

// Naming a part costs about as much as copying this.
constexpr size_t kPartBytesMin = 8 << 10;

}  // namespace

std::optional<grpc::ByteBuffer> ShmCall::Prepare(
    const std::shared_ptr<SharedLink>& link, const grpc::ByteBuffer& request,
    size_t answer_bytes) {
  if (link != link_ && payload_) older_.push_back(std::move(payload_));
  link_ = link;
  absl::StatusOr<FrameParts> parts = SplitFrame(request);
  SYNCLINE_CHECK(parts.ok());  // of our own making
  if (!PlacePayload(parts->payload, &parts->shared)) return std::nullopt;
  if (answer_bytes > 0) {
    answer_ = link_->Allocate(answer_bytes);
    if (!answer_) return std::nullopt;
    *parts->shared.mutable_answer() = answer_.range();
  }
  parts->payload.clear();
  return JoinFrame(*std::move(parts));
}

bool ShmCall::PlacePayload(const std::vector<grpc::Slice>& payload,
                           SharedMemory* shared) {
  payload_bytes_ = 0;
  for (const grpc::Slice& slice : payload) payload_bytes_ += slice.size();
  if (payload_bytes_ == 0) return true;
  if (!payload_ && NameInPlace(payload, shared)) return true;
  if (!payload_) {
    payload_ = link_->Allocate(payload_bytes_);
    if (!payload_) return false;
    uint8_t* to = payload_.data();
    for (const grpc::Slice& slice : payload) {
      std::memcpy(to, slice.begin(), slice.size());
      to += slice.size();
    }
  }
  *shared->add_payload() = payload_.range();
  return true;
}

bool ShmCall::NameInPlace(const std::vector<grpc::Slice>& payload,
                          SharedMemory* shared) const {
  if (payload_bytes_ / payload.size() < kPartBytesMin) return false;
  for (const grpc::Slice& slice : payload) {
    const std::optional<SharedRange> range =
        link_->Find(slice.begin(), slice.size());
    if (!range.has_value()) {
      shared->clear_payload();
      return false;
    }
    *shared->add_payload() = *range;
  }
  return true;
}

absl::StatusOr<size_t> ShmCall::TakeAnswer(grpc::ByteBuffer* response) {
  SharedLink::Area answer = std::exchange(answer_, {});
  if (!answer) return 0;
  SYNCLINE_ASSIGN_OR_RETURN(FrameParts parts, SplitFrame(*response));
  if (parts.shared.payload_size() == 0) return 0;
  const SharedRange offered = answer.range();
  const SharedRange& used = parts.shared.payload(0);
  if (parts.shared.payload_size() != 1 || used.region() != offered.region() ||
      used.offset() != offered.offset() || used.size() > offered.size()) {
    return absl::InternalError("answered into memory that was not offered");
  }
  const size_t bytes = used.size();
  parts.payload.push_back(std::move(answer).ToSlice(bytes));
  parts.shared.Clear();
  *response = JoinFrame(std::move(parts));
  return bytes;
}

bool ShmCall::OnError(const absl::Status& status) {
  SharedLink::Area answer = std::exchange(answer_, {});
  const absl::optional<absl::Cord> said =
      status.GetPayload(kSharedMemoryDetail);
  if (said.has_value()) return *said != "unknown";
  if (answer) std::move(answer).Lose();
  return link_ == nullptr || !link_->worn_out();
}

void ShmCall::Clear() {
  // The answer area of an attempt whose outcome is unknown.
  if (answer_) std::move(answer_).Lose();
  payload_ = SharedLink::Area();
  older_.clear();
  link_.reset();
}

}  // namespace syncline::worker

#ifndef SYNCLINE_WORKER_CLIENT_TRANSPORT_SHM_CALL_H_
#define SYNCLINE_WORKER_CLIENT_TRANSPORT_SHM_CALL_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "worker/client/transport/shared_link.h"

namespace syncline::worker {

// The way of one call through shared memory, over all its attempts: where its
// payload is, and where the answer to the attempt under way may be written.
// Thread-compatible.
//
// The payload stays where it is until the call has ended. Each attempt has an
// answer area of its own. If the attempt ended without an answer of the ps, the
// area is lost: the ps may still write into it at any later time.
class ShmCall {
 public:
  // The message to send instead of `request` (of EncodeFrame), whose payload is
  // copied into `link` once, unless it lies where the ps can read it as it is;
  // none if there is no room.
  std::optional<grpc::ByteBuffer> Prepare(
      const std::shared_ptr<SharedLink>& link, const grpc::ByteBuffer& request,
      size_t answer_bytes);

  // The attempt was answered: makes *response what it would be over the
  // network, with the answer area itself as its payload. Returns how many bytes
  // of it were in shared memory. Errors: Internal: the answer names memory that
  // was not offered.
  absl::StatusOr<size_t> TakeAnswer(grpc::ByteBuffer* response);

  // The attempt ended with this error. Returns false if the link must not be
  // used again.
  bool OnError(const absl::Status& status);

  size_t payload_bytes() const { return payload_bytes_; }
  // Of the last Prepare; null after Clear.
  const std::shared_ptr<SharedLink>& link() const { return link_; }

  // The call has ended: gives up its areas.
  void Clear();

 private:
  bool PlacePayload(const std::vector<grpc::Slice>& payload,
                    SharedMemory* shared);
  // Names the slices where they are; false if they are not there, or are so
  // many that one copy costs less.
  bool NameInPlace(const std::vector<grpc::Slice>& payload,
                   SharedMemory* shared) const;

  std::shared_ptr<SharedLink> link_;
  size_t payload_bytes_ = 0;
  SharedLink::Area payload_;
  SharedLink::Area answer_;
  // Payloads in links that were given up: an attempt may still be reading them.
  std::vector<SharedLink::Area> older_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_TRANSPORT_SHM_CALL_H_

#ifndef SYNCLINE_SERVER_SERVICE_REQUEST_READER_H_
#define SYNCLINE_SERVER_SERVICE_REQUEST_READER_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "common/wire/frame.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/parameter_server.pb.h"
#include "server/memory/in_flight_budget.h"
#include "server/memory/shared_regions.h"
#include "server/service/metrics.h"
#include "server/service/payload_source.h"
#include "server/shard/pending_calls.h"
#include "server/shard/shard_layout.h"

namespace syncline::ps {

// Reads the frames of calls (common/wire/frame.h), and takes room in the budget
// for all that a call holds until it ends. Thread-safe.
class RequestReader {
 public:
  // All outlive it.
  RequestReader(InFlightBudget* budget, SharedRegions* shared,
                PsMetrics* metrics)
      : budget_(budget), shared_(shared), metrics_(metrics) {}

  // Takes the frame apart and leaves nothing in `request`: gRPC would keep it
  // for as long as the call is parked.
  //
  // `stays` is asked once `header` is read. It says whether a payload in shared
  // memory is read in place: lanes read it once, and its caller is answered
  // after that. Every other payload is copied, because its caller may use that
  // memory again too soon.
  //
  // Errors: ResourceExhausted: no room; those of DecodeFrame and of
  // SharedRegions::Payload and Answer.
  template <typename Header>
  absl::Status Read(const grpc::ByteBuffer* request,
                    absl::FunctionRef<bool()> stays, Header* header,
                    CallPayload* payload, PayloadPart* part) const;

  // Puts what the compressed blocks of a push are in float32 in the place of a
  // payload's values, with room for them; nothing where they are not
  // compressed. Errors: ResourceExhausted; ReadCompressedBlocks'.
  absl::Status Expand(const PushHeader& push,
                      absl::Span<const BlockIndex> blocks,
                      const ShardLayout& layout, const PayloadPart& part,
                      CallPayload* payload) const;
  // The rows of a call, with room for what was copied of them; null if there
  // are none. Errors: ResourceExhausted.
  absl::StatusOr<std::shared_ptr<CallRows>> HoldRows(
      std::vector<RowList> lists) const;
  // Takes room for a pull that may have to wait. Errors: ResourceExhausted.
  absl::Status HoldPull(const PullFacts& pull, CallPayload* payload) const;
  // Takes room for so many bytes. Errors: ResourceExhausted.
  absl::Status Hold(uint64_t bytes, InFlightBudget::Hold* hold) const {
    return budget_->Acquire(bytes, hold);
  }

 private:
  // The type in which a request's payload is written. Initial values are always
  // float32.
  static WireType PayloadType(const PushPullHeader& header) {
    return header.push().wire_type();
  }
  static WireType PayloadType(const PushHeader& header) {
    return header.wire_type();
  }
  template <typename Header>
  static WireType PayloadType(const Header&) {
    return WIRE_FLOAT32;
  }

  // The part of Read after the frame is taken apart.
  absl::Status ReadPayload(const SharedMemory& shared,
                           absl::FunctionRef<bool()> stays, WireType type,
                           PayloadView view, CallPayload* payload,
                           PayloadPart* part) const;
  // Moves a payload out of shared memory.
  absl::Status CopyOut(PayloadView* view, CallPayload* payload) const;

  InFlightBudget* const budget_;
  SharedRegions* const shared_;
  PsMetrics* const metrics_;
};

template <typename Header>
absl::Status RequestReader::Read(const grpc::ByteBuffer* request,
                                 absl::FunctionRef<bool()> stays,
                                 Header* header, CallPayload* payload,
                                 PayloadPart* part) const {
  SYNCLINE_RETURN_IF_ERROR(budget_->Acquire(request->Length(), &payload->hold));
  PayloadView view;
  SharedMemory shared;
  SYNCLINE_RETURN_IF_ERROR(DecodeFrame(*request, header, &view, &shared));
  const_cast<grpc::ByteBuffer*>(request)->Clear();
  return ReadPayload(shared, stays, PayloadType(*header), std::move(view),
                     payload, part);
}

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_REQUEST_READER_H_

#include "worker/client/transport/shm_registration.h"

#include <utility>

#include "absl/strings/cord.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/message_buffer.h"
#include "common/system/local_socket.h"
#include "common/wire/frame.h"

namespace syncline::worker {
namespace {

SharedFallback ReasonOf(const absl::Status& status) {
  const absl::optional<absl::Cord> detail =
      status.GetPayload(kSharedMemoryDetail);
  if (detail.has_value() && *detail == "other_host") {
    return SharedFallback::kOtherHost;
  }
  if ((detail.has_value() && *detail == "off") ||
      absl::IsUnimplemented(status)) {
    return SharedFallback::kOff;
  }
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
      absl::IsCancelled(status)) {
    return SharedFallback::kUnreachable;
  }
  return SharedFallback::kRefused;
}

}  // namespace

void ShmRegistration::Start() {
  OfferMemoryRequest request;
  *request.mutable_caller() = options_.caller;
  request.set_boot_id(options_.boot_id);
  Call("/syncline.ParameterServer/OfferMemory", request,
       &ShmRegistration::OnOffer);
}

void ShmRegistration::Cancel() {
  std::shared_ptr<grpc::ClientContext> context;
  {
    MutexLock lock(&mu_);
    cancelled_ = true;
    context = context_;
  }
  if (context != nullptr) context->TryCancel();
}

void ShmRegistration::Call(const char* method,
                           const google::protobuf::MessageLite& request,
                           Next next) {
  struct Buffers {
    grpc::ByteBuffer request;
    grpc::ByteBuffer response;
  };
  auto buffers = std::make_shared<Buffers>();
  buffers->request = ToByteBuffer(request);
  std::shared_ptr<grpc::ClientContext> context = MakeContext(options_.deadline);
  // The ps's process may still be starting.
  context->set_wait_for_ready(true);
  bool cancelled = false;
  {
    MutexLock lock(&mu_);
    cancelled = cancelled_;
    context_ = context;
  }
  if (cancelled) context->TryCancel();
  stub_->UnaryCall(
      context.get(), method, grpc::StubOptions(), &buffers->request,
      &buffers->response,
      [self = shared_from_this(), context, buffers,
       next](const grpc::Status& status) mutable {
        {
          MutexLock lock(&self->mu_);
          self->context_.reset();
        }
        context.reset();  // a context holds its channel, which `done` may end
        (self.get()->*next)(FromGrpcStatus(status), buffers->response);
      });
}

void ShmRegistration::OnOffer(const absl::Status& status,
                              const grpc::ByteBuffer& response) {
  if (!status.ok()) return Fail(status, ReasonOf(status));
  OfferMemoryResponse offer;
  if (!FromByteBuffer(response, &offer)) {
    return Fail(absl::InternalError("an offer that does not parse"),
                SharedFallback::kRefused);
  }
  absl::StatusOr<std::shared_ptr<SharedRegion>> region = options_.region();
  if (!region.ok()) return Fail(region.status(), SharedFallback::kMemory);
  absl::StatusOr<FileDescriptor> connection =
      SendDescriptor(offer.socket(), offer.token(), (*region)->memory());
  if (!connection.ok()) {
    return Fail(connection.status(), SharedFallback::kSocket);
  }
  result_.region = *std::move(region);
  result_.connection = *std::move(connection);
  AttachMemoryRequest request;
  *request.mutable_caller() = options_.caller;
  request.set_token(offer.token());
  request.set_read_only(options_.read_only);
  Call("/syncline.ParameterServer/AttachMemory", request,
       &ShmRegistration::OnAttach);
}

void ShmRegistration::OnAttach(const absl::Status& status,
                               const grpc::ByteBuffer& response) {
  if (!status.ok()) return Fail(status, ReasonOf(status));
  AttachMemoryResponse attached;
  if (!FromByteBuffer(response, &attached) || attached.region() == 0) {
    return Fail(absl::InternalError("an attachment that does not parse"),
                SharedFallback::kRefused);
  }
  result_.name = attached.region();
  std::exchange(done_, nullptr)(std::move(result_));
}

void ShmRegistration::Fail(absl::Status status, SharedFallback reason) {
  result_ = Result();
  result_.status = std::move(status);
  result_.reason = reason;
  std::exchange(done_, nullptr)(std::move(result_));
}

}  // namespace syncline::worker

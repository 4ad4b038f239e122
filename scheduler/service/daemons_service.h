#ifndef SYNCLINE_SCHEDULER_SERVICE_DAEMONS_SERVICE_H_
#define SYNCLINE_SCHEDULER_SERVICE_DAEMONS_SERVICE_H_

#include "proto/scheduler.grpc.pb.h"
#include "scheduler/service/file_stream.h"
#include "scheduler/service/member_certificates.h"

namespace syncline::scheduler {

// For ps and workers; proto/scheduler.proto has the contract. Thread-safe.
class DaemonsService final : public Daemons::CallbackService {
 public:
  explicit DaemonsService(const ServiceContext& context);

  grpc::ServerBidiReactor<DaemonMessage, SchedulerMessage>* Session(
      grpc::CallbackServerContext* call) override;
  grpc::ServerWriteReactor<FileChunk>* FetchArtifact(
      grpc::CallbackServerContext* call,
      const DownloadRequest* request) override;
  grpc::ServerReadReactor<UploadRequest>* UploadArtifact(
      grpc::CallbackServerContext* call, UploadResponse* response) override;

 private:
  const ServiceContext context_;
  MemberCertificates certificates_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_DAEMONS_SERVICE_H_

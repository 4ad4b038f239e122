#ifndef SYNCLINE_SCHEDULER_SERVICE_JOBS_SERVICE_H_
#define SYNCLINE_SCHEDULER_SERVICE_JOBS_SERVICE_H_

#include <string>

#include "common/base/mutex.h"
#include "common/rpc/user_calls.h"
#include "proto/scheduler.grpc.pb.h"
#include "scheduler/service/file_stream.h"

namespace syncline::scheduler {

// For users; proto/scheduler.proto has the contract. Thread-safe.
class JobsService final : public Jobs::CallbackService {
 public:
  explicit JobsService(const ServiceContext& context) : context_(context) {}

  // Sets the address that GetCluster returns.
  void SetAddress(const std::string& address) ABSL_LOCKS_EXCLUDED(mu_);

  grpc::ServerReadReactor<SubmitRequest>* Submit(
      grpc::CallbackServerContext* call, SubmitResponse* response) override;
  grpc::ServerWriteReactor<JobStatus>* Watch(
      grpc::CallbackServerContext* call, const WatchRequest* request) override;
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* call,
                                const GetRequest* request,
                                JobStatus* response) override;
  grpc::ServerUnaryReactor* GetTables(grpc::CallbackServerContext* call,
                                      const GetRequest* request,
                                      JobTableStatus* response) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* call,
                                 const ListRequest* request,
                                 ListResponse* response) override;
  grpc::ServerUnaryReactor* Cancel(grpc::CallbackServerContext* call,
                                   const CancelRequest* request,
                                   JobStatus* response) override;
  grpc::ServerUnaryReactor* Profile(grpc::CallbackServerContext* call,
                                    const ProfileRequest* request,
                                    ProfileResponse* response) override;
  grpc::ServerUnaryReactor* ChangeRegime(grpc::CallbackServerContext* call,
                                         const ChangeRegimeRequest* request,
                                         RegimeTransition* response) override;
  grpc::ServerWriteReactor<JobEvent>* Events(
      grpc::CallbackServerContext* call, const EventsRequest* request) override;
  grpc::ServerUnaryReactor* TakeCheckpoint(grpc::CallbackServerContext* call,
                                           const TakeCheckpointRequest* request,
                                           CheckpointInfo* response) override;
  grpc::ServerUnaryReactor* Scale(grpc::CallbackServerContext* call,
                                  const ScaleRequest* request,
                                  JobStatus* response) override;
  grpc::ServerUnaryReactor* SetMemberUse(
      grpc::CallbackServerContext* call, const SetMemberUseRequest* request,
      SetMemberUseResponse* response) override;
  grpc::ServerWriteReactor<FileChunk>* Download(
      grpc::CallbackServerContext* call,
      const DownloadRequest* request) override;
  grpc::ServerWriteReactor<FileChunk>* BackupState(
      grpc::CallbackServerContext* call,
      const BackupStateRequest* request) override;
  grpc::ServerWriteReactor<LogLines>* Logs(grpc::CallbackServerContext* call,
                                           const LogsRequest* request) override;
  grpc::ServerUnaryReactor* GetCluster(grpc::CallbackServerContext* call,
                                       const GetClusterRequest* request,
                                       ClusterStatus* response) override;

 private:
  const ServiceContext context_;
  Mutex mu_;
  std::string address_ ABSL_GUARDED_BY(mu_);
};

// A page of the jobs that `scope` has, as List answers it, which fits into a
// message. Newest first;
// of the spec only its name, without the workers' own progress. limit 0: 100. A
// page's token is the id of its last job: jobs that come later move no page.
// Errors: InvalidArgument: a page token that no answer gave.
absl::StatusOr<ListResponse> ListJobs(const ControlLoop& loop,
                                      const ListRequest& request,
                                      const JobScope& scope = JobScope());

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_JOBS_SERVICE_H_

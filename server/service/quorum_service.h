#ifndef SYNCLINE_SERVER_SERVICE_QUORUM_SERVICE_H_
#define SYNCLINE_SERVER_SERVICE_QUORUM_SERVICE_H_

#include <memory>

#include "grpcpp/impl/service_type.h"
#include "server/service/metrics.h"
#include "server/shard/job_registry.h"

namespace syncline::ps {

// The service of proto/quorum.proto for the jobs of a ps. Thread-safe; nothing
// blocks. The arguments outlive it.
std::unique_ptr<grpc::Service> MakeQuorumService(JobRegistry* jobs,
                                                 PsMetrics* metrics);

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_QUORUM_SERVICE_H_

#ifndef SYNCLINE_SERVER_SERVICE_PARAMETER_SERVICE_H_
#define SYNCLINE_SERVER_SERVICE_PARAMETER_SERVICE_H_

#include <memory>

#include "grpcpp/impl/codegen/service_type.h"
#include "server/memory/in_flight_budget.h"
#include "server/memory/shared_regions.h"
#include "server/service/metrics.h"
#include "server/shard/job_registry.h"

namespace syncline::ps {

// The gRPC face of the shards: reads frames, checks headers, answers when the
// shard does. Handlers never block. Calls with values bypass protobuf for their
// payload (common/wire/frame.h). All arguments outlive the gRPC server.
std::unique_ptr<grpc::Service> MakeParameterService(JobRegistry* jobs,
                                                    InFlightBudget* budget,
                                                    SharedRegions* shared,
                                                    PsMetrics* metrics);

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_PARAMETER_SERVICE_H_

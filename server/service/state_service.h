#ifndef SYNCLINE_SERVER_SERVICE_STATE_SERVICE_H_
#define SYNCLINE_SERVER_SERVICE_STATE_SERVICE_H_

#include <memory>

#include "grpcpp/impl/codegen/service_type.h"
#include "server/memory/in_flight_budget.h"
#include "server/shard/job_registry.h"

namespace syncline::ps {

// The calls by which the state of shards goes to workers and comes back
// (proto/state_transfer.proto), on threads of its own: they wait for lanes.
// Both arguments outlive the gRPC server.
std::unique_ptr<grpc::Service> MakeStateService(JobRegistry* jobs,
                                                InFlightBudget* budget);

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_STATE_SERVICE_H_

#ifndef SYNCLINE_SERVER_SERVICE_CONTROL_CALLS_H_
#define SYNCLINE_SERVER_SERVICE_CONTROL_CALLS_H_

#include "absl/status/status.h"
#include "proto/parameter_server.pb.h"
#include "server/memory/in_flight_budget.h"
#include "server/memory/shared_regions.h"
#include "server/shard/job_registry.h"

namespace syncline::ps {

// The calls that are answered at once and carry no values: cuts, reports,
// status, shared memory. Errors: as the rpc of the same name in
// proto/parameter_server.proto. Thread-safe; nothing blocks.
class ControlCalls {
 public:
  // All outlive it.
  ControlCalls(JobRegistry* jobs, InFlightBudget* budget, SharedRegions* shared)
      : jobs_(jobs), budget_(budget), shared_(shared) {}

  absl::Status BeginCut(const BeginCutRequest& request) const;
  absl::Status EndCut(const EndCutRequest& request) const;
  absl::Status ReportActivity(const ActivityRequest& request) const;
  absl::Status GetShardStatus(const ShardStatusRequest& request,
                              ShardStatus* response) const;
  absl::Status GetRegimes(const GetRegimesRequest& request,
                          GetRegimesResponse* response) const;
  absl::Status GetRouting(const GetRoutingRequest& request,
                          GetRoutingResponse* response) const;
  absl::Status OfferMemory(const OfferMemoryRequest& request,
                           OfferMemoryResponse* response) const;
  absl::Status AttachMemory(const AttachMemoryRequest& request,
                            AttachMemoryResponse* response) const;

 private:
  JobRegistry* const jobs_;
  InFlightBudget* const budget_;
  SharedRegions* const shared_;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_CONTROL_CALLS_H_

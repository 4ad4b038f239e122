#ifndef SYNCLINE_SCHEDULER_SERVICE_RPC_COUNTER_H_
#define SYNCLINE_SCHEDULER_SERVICE_RPC_COUNTER_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "common/daemon/metrics.h"
#include "grpcpp/support/server_interceptor.h"

namespace syncline::scheduler {

// "Submit" of "/syncline.Jobs/Submit"; empty if it is no method of the
// scheduler's services.
std::string SchedulerMethod(absl::string_view path);

// Counts the scheduler's calls by method and code, as they end. Other services
// of the process stay as they are. `registry` outlives the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeRpcCounter(MetricsRegistry* registry);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_RPC_COUNTER_H_

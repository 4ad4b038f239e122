#include "scheduler/service/rpc_counter.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/strip.h"
#include "google/protobuf/descriptor.h"
#include "proto/scheduler.pb.h"

namespace syncline::scheduler {
namespace {

using grpc::experimental::InterceptionHookPoints;

const google::protobuf::ServiceDescriptor* FindService(const char* name) {
  return SubmitRequest::descriptor()->file()->pool()->FindServiceByName(name);
}

// Of one call.
class Counting final : public grpc::experimental::Interceptor {
 public:
  Counting(std::string method, MetricsRegistry* registry)
      : method_(std::move(method)), registry_(registry) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    if (batch->QueryInterceptionHookPoint(
            InterceptionHookPoints::PRE_SEND_STATUS)) {
      const auto code =
          static_cast<absl::StatusCode>(batch->GetSendStatus().error_code());
      registry_
          ->AddCounter(
              "syncline_scheduler_rpcs_total",
              {{"code", absl::StatusCodeToString(code)}, {"rpc", method_}})
          .Add();
    }
    batch->Proceed();
  }

 private:
  const std::string method_;
  MetricsRegistry* const registry_;
};

class Factory final
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(MetricsRegistry* registry) : registry_(registry) {
    // The series that an alert reads begin with 0 here: of a counter that
    // begins with 1 Prometheus sees no increase.
    for (const char* rpc : {"Submit", "UploadArtifact"}) {
      for (const char* code : {"DATA_LOSS", "RESOURCE_EXHAUSTED"}) {
        registry->AddCounter("syncline_scheduler_rpcs_total",
                             {{"code", code}, {"rpc", rpc}});
      }
    }
  }

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    std::string method = SchedulerMethod(info->method());
    // gRPC owns what it is given; null: the call goes without.
    return method.empty() ? nullptr
                          : new Counting(std::move(method), registry_);
  }

 private:
  MetricsRegistry* const registry_;
};

}  // namespace

// A path that a caller makes up is no method: it would be a series.
std::string SchedulerMethod(absl::string_view path) {
  for (const google::protobuf::ServiceDescriptor* service :
       {FindService("syncline.Jobs"), FindService("syncline.Daemons")}) {
    absl::string_view method = path;
    if (service == nullptr || !absl::ConsumePrefix(&method, "/") ||
        !absl::ConsumePrefix(&method, service->full_name()) ||
        !absl::ConsumePrefix(&method, "/")) {
      continue;
    }
    if (service->FindMethodByName(std::string(method)) != nullptr) {
      return std::string(method);
    }
  }
  return "";
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeRpcCounter(MetricsRegistry* registry) {
  return std::make_unique<Factory>(registry);
}

}  // namespace syncline::scheduler

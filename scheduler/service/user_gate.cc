#include "scheduler/service/user_gate.h"

#include <atomic>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_status.h"
#include "proto/scheduler.pb.h"

namespace syncline::scheduler {
namespace {

using grpc::experimental::InterceptionHookPoints;

constexpr absl::string_view kUsersService = "/syncline.Jobs/";

template <typename Request>
std::string* JobId(void* request) {
  return static_cast<Request*>(request)->mutable_job_id();
}

template <typename Request>
void Empty(void* request) {
  // Clear() would keep the memory of its texts.
  *static_cast<Request*>(request) = Request();
}

template <typename Request>
void NoJob(void* request) {
  Empty<Request>(request);
  static_cast<Request*>(request)->set_job_id(kNoJob);
}

struct GatedMethod {
  absl::string_view path;
  JobIdOf job_id_of;  // null: its requests name no job
  EmptyRequest empty;
};
template <typename Request>
constexpr GatedMethod MethodWith(absl::string_view path) {
  return {path, &JobId<Request>, &NoJob<Request>};
}
// Its handler asks UserGate::IsRefused.
template <typename Request>
constexpr GatedMethod MethodWithoutJob(absl::string_view path) {
  return {path, nullptr, &Empty<Request>};
}

// Every method of Jobs: user_gate_test compares this with the descriptor.
constexpr GatedMethod kGatedMethods[] = {
    MethodWith<GetRequest>("/syncline.Jobs/Get"),
    MethodWith<WatchRequest>("/syncline.Jobs/Watch"),
    MethodWith<GetRequest>("/syncline.Jobs/GetTables"),
    MethodWith<CancelRequest>("/syncline.Jobs/Cancel"),
    MethodWith<DownloadRequest>("/syncline.Jobs/Download"),
    MethodWith<ProfileRequest>("/syncline.Jobs/Profile"),
    MethodWith<ChangeRegimeRequest>("/syncline.Jobs/ChangeRegime"),
    MethodWith<EventsRequest>("/syncline.Jobs/Events"),
    MethodWith<TakeCheckpointRequest>("/syncline.Jobs/TakeCheckpoint"),
    MethodWith<ScaleRequest>("/syncline.Jobs/Scale"),
    MethodWith<LogsRequest>("/syncline.Jobs/Logs"),
    MethodWithoutJob<SubmitRequest>("/syncline.Jobs/Submit"),
    MethodWithoutJob<ListRequest>("/syncline.Jobs/List"),
    MethodWithoutJob<GetClusterRequest>("/syncline.Jobs/GetCluster"),
    MethodWithoutJob<SetMemberUseRequest>("/syncline.Jobs/SetMemberUse"),
    MethodWithoutJob<BackupStateRequest>("/syncline.Jobs/BackupState"),
};

// Null: the gate does not check it.
const GatedMethod* FindMethod(absl::string_view path) {
  for (const GatedMethod& method : kGatedMethods) {
    if (path == method.path) return &method;
  }
  return nullptr;
}

// Of one call.
class Gating final : public grpc::experimental::Interceptor {
 public:
  Gating(grpc::experimental::ServerRpcInfo* info, UserGate* gate)
      : call_(info->server_context()),
        path_(info->method()),
        is_stream_(info->type() !=
                   grpc::experimental::ServerRpcInfo::Type::UNARY),
        method_(FindMethod(path_)),
        gate_(gate) {}
  // Goes with the context, when the handler has returned.
  ~Gating() override {
    Leave();
    if (is_listed_) gate_->RemoveRefused(call_);
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    if (batch->QueryInterceptionHookPoint(
            InterceptionHookPoints::POST_RECV_INITIAL_METADATA) &&
        is_stream_) {
      stream_ = gate_->AddStream(call_, path_);
    }
    if (batch->QueryInterceptionHookPoint(
            InterceptionHookPoints::POST_RECV_INITIAL_METADATA) &&
        method_ != nullptr && method_->job_id_of == nullptr) {
      LookAtCaller();
    }
    if (batch->QueryInterceptionHookPoint(
            InterceptionHookPoints::POST_RECV_MESSAGE) &&
        method_ != nullptr && batch->GetRecvMessage() != nullptr) {
      if (method_->job_id_of != nullptr) LookAt(batch->GetRecvMessage());
      if (!refused_.ok()) method_->empty(batch->GetRecvMessage());
    }
    if (batch->QueryInterceptionHookPoint(
            InterceptionHookPoints::PRE_SEND_STATUS)) {
      Leave();
      if (!refused_.ok()) batch->ModifySendStatus(ToGrpcStatus(refused_));
    }
    // The context is gone soon after this.
    if (batch->QueryInterceptionHookPoint(
            InterceptionHookPoints::POST_RECV_CLOSE)) {
      Leave();
    }
    batch->Proceed();
  }

 private:
  void LookAtCaller() {
    refused_ = CheckUser(path_, call_->client_metadata());
    if (refused_.ok()) return;
    gate_->AddRefused(call_);
    is_listed_ = true;
    gate_->TellRefused(*call_, path_, /*job_id=*/"", refused_);
  }
  void LookAt(void* request) {
    const std::string* const job_id = method_->job_id_of(request);
    refused_ = CheckUser(path_, call_->client_metadata());
    if (refused_.ok()) {
      refused_ = gate_->Check(call_->client_metadata(), *job_id);
    }
    if (refused_.ok()) {
      const uint64_t stream = stream_;
      if (stream != 0) gate_->SetJob(stream, *job_id);
      return;
    }
    gate_->TellRefused(*call_, path_, *job_id, refused_);
  }
  void Leave() {
    const uint64_t stream = stream_.exchange(0);
    if (stream != 0) gate_->RemoveStream(stream);
  }

  grpc::ServerContextBase* const call_;
  const std::string path_;
  const bool is_stream_;
  const GatedMethod* const method_;  // null: its token was checked before
  UserGate* const gate_;
  // 0: none. The last two hooks of a call may come at once.
  std::atomic<uint64_t> stream_{0};
  bool is_listed_ = false;  // as refused
  absl::Status refused_;
};

class Factory final
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(UserGate* gate) : gate_(gate) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    // gRPC owns what it is given; null: the call goes without.
    return absl::StartsWith(info->method(), kUsersService)
               ? new Gating(info, gate_)
               : nullptr;
  }

 private:
  UserGate* const gate_;
};

}  // namespace

JobIdOf FindJobIdOf(absl::string_view path) {
  const GatedMethod* const method = FindMethod(path);
  return method == nullptr ? nullptr : method->job_id_of;
}

EmptyRequest FindEmptyRequest(absl::string_view path) {
  const GatedMethod* const method = FindMethod(path);
  return method == nullptr ? nullptr : method->empty;
}

bool GateChecksTokens(absl::string_view path) {
  return FindMethod(path) != nullptr;
}

UserGate::UserGate(TenantOf tenant_of, OnRefused on_refused)
    : tenant_of_(std::move(tenant_of)), on_refused_(std::move(on_refused)) {
  // Without tokens nothing is revoked.
  if (!PeopleNeedTokens()) return;
  looking_.emplace("user-gate", kLookPeriod, [this] { Look(); });
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
UserGate::MakeInterceptors() {
  return std::make_unique<Factory>(this);
}

absl::Status UserGate::Check(const CallMetadata& metadata,
                             const std::string& job_id) const {
  return CheckScope(ScopeOf(metadata), job_id);
}

absl::Status UserGate::CheckScope(const absl::StatusOr<JobScope>& scope,
                                  const std::string& job_id) const {
  SYNCLINE_RETURN_IF_ERROR(scope.status());
  if (scope->all) return absl::OkStatus();
  const std::optional<std::string> tenant = tenant_of_(job_id);
  // The handler says that there is no such job, in the same words.
  if (!tenant.has_value() || scope->Sees(*tenant)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("no job \"", job_id, "\""));
}

uint64_t UserGate::AddStream(grpc::ServerContextBase* call,
                             absl::string_view path) {
  MutexLock lock(&mu_);
  Stream& stream = streams_[next_];
  stream.call = call;
  stream.path = std::string(path);
  return next_++;
}

void UserGate::SetJob(uint64_t number, const std::string& job_id) {
  MutexLock lock(&mu_);
  const auto found = streams_.find(number);
  if (found != streams_.end()) found->second.job_id = job_id;
}

void UserGate::RemoveStream(uint64_t number) {
  MutexLock lock(&mu_);
  streams_.erase(number);
}

void UserGate::TellRefused(const grpc::ServerContextBase& call,
                           absl::string_view path, const std::string& job_id,
                           const absl::Status& why) const {
  if (on_refused_ != nullptr) on_refused_(call, path, job_id, why);
}

void UserGate::AddRefused(const grpc::ServerContextBase* call) {
  MutexLock lock(&mu_);
  refused_.insert(call);
}

void UserGate::RemoveRefused(const grpc::ServerContextBase* call) {
  MutexLock lock(&mu_);
  refused_.erase(call);
}

bool UserGate::IsRefused(const grpc::ServerContextBase& call) const {
  MutexLock lock(&mu_);
  return refused_.contains(&call);
}

// At the first look that finds no good token the handler may still end the
// stream by itself, with the reason; at the second one it is cut off.
void UserGate::Look() {
  struct Seen {
    uint64_t number;
    std::string job_id;
    absl::StatusOr<JobScope> scope;
  };
  std::vector<Seen> seen;
  {
    MutexLock lock(&mu_);
    for (const auto& [number, stream] : streams_) {
      const auto& metadata = stream.call->client_metadata();
      const absl::Status may = CheckUser(stream.path, metadata);
      absl::StatusOr<JobScope> scope = ScopeOf(metadata);
      if (!may.ok()) scope = may;
      seen.push_back({number, stream.job_id, std::move(scope)});
    }
  }
  for (const Seen& one : seen) {
    // tenant_of_ takes the loop's lock, and whoever has that may end a stream.
    const bool good = one.job_id.empty()
                          ? one.scope.ok()
                          : CheckScope(one.scope, one.job_id).ok();
    MutexLock lock(&mu_);
    const auto found = streams_.find(one.number);
    if (found == streams_.end()) continue;
    Stream& stream = found->second;
    if (!good && stream.doubted) stream.call->TryCancel();
    stream.doubted = !good;
  }
}

}  // namespace syncline::scheduler

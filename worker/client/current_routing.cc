#include "worker/client/current_routing.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/backoff.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/system/log.h"
#include "common/wire/routing_version.h"
#include "proto/parameter_server.grpc.pb.h"

namespace syncline::worker {
namespace {

// GetRouting is answered at once.
constexpr absl::Duration kAskTimeout = absl::Seconds(2);
constexpr Backoff kBackoff = {.initial = absl::Milliseconds(10),
                              .max = absl::Seconds(1)};

bool IsTransient(const absl::Status& answer) {
  return absl::IsUnavailable(answer) || absl::IsDeadlineExceeded(answer);
}

FanoutCall::Peer PeerOf(const Participant& ps) {
  return {absl::StrCat("ps:", ps.member().task().index()),
          ps.member().address()};
}

// The part of an assignment that its routing is about.
JobAssignment RoutedPart(const JobAssignment& assignment) {
  JobAssignment part;
  part.set_job_id(assignment.job_id());
  // It says whether shards have the tensors.
  part.mutable_spec()->set_strategy(assignment.spec().strategy());
  *part.mutable_ps() = assignment.ps();
  *part.mutable_parameters() = assignment.parameters();
  *part.mutable_tables() = assignment.tables();
  if (assignment.has_routing()) *part.mutable_routing() = assignment.routing();
  return part;
}

absl::StatusOr<std::shared_ptr<const RoutedJob>> ReadRouting(
    const JobAssignment& assignment) {
  SYNCLINE_ASSIGN_OR_RETURN(RoutingTable table,
                            RoutingTable::Create(assignment));
  std::vector<Participant> shards;
  for (uint32_t shard = 0; shard < table.shard_count(); ++shard) {
    shards.push_back(assignment.ps(static_cast<int>(table.PsOf(shard))));
  }
  return std::make_shared<const RoutedJob>(
      RoutedJob{std::move(table), std::move(shards)});
}

}  // namespace

std::vector<FanoutCall::Peer> RoutedJob::Peers() const {
  std::vector<FanoutCall::Peer> peers;
  for (const Participant& ps : shards) peers.push_back(PeerOf(ps));
  return peers;
}

absl::StatusOr<std::unique_ptr<CurrentRouting>> CurrentRouting::Create(
    const JobAssignment& assignment, const Caller& caller,
    absl::Duration patience) {
  SYNCLINE_ASSIGN_OR_RETURN(auto job, ReadRouting(assignment));
  auto routing = absl::WrapUnique(
      new CurrentRouting(RoutedPart(assignment), caller, patience));
  MutexLock lock(&routing->mu_);
  routing->job_ = std::move(job);
  return routing;
}

CurrentRouting::CurrentRouting(JobAssignment assignment, const Caller& caller,
                               absl::Duration patience)
    : caller_(caller),
      patience_(patience),
      assignment_(std::move(assignment)) {}

std::shared_ptr<const RoutedJob> CurrentRouting::job() const {
  MutexLock lock(&mu_);
  return job_;
}

uint64_t CurrentRouting::version() const { return job()->table.version(); }

Caller CurrentRouting::caller() const {
  Caller caller = caller_;
  caller.set_routing_version(version());
  return caller;
}

absl::Status CurrentRouting::Follow(const absl::Status& refusal) {
  const std::optional<uint64_t> wanted = RoutingVersionOf(refusal);
  if (!wanted.has_value()) return refusal;
  MutexLock lock(&following_);
  const absl::Time deadline = MonotonicNow() + patience_;
  Random jitter(EntropySeed());
  for (int attempt = 0;; ++attempt) {
    const absl::Status there = AskAll(*wanted);
    if (there.ok() || !IsTransient(there)) return there;
    if (MonotonicNow() >= deadline) return there;
    SYNCLINE_RETURN_IF_ERROR(SleepUntil(
        MonotonicNow() + BackoffDelay(kBackoff, attempt, jitter.Uniform())));
  }
}

absl::Status CurrentRouting::AskAll(uint64_t wanted) {
  absl::Status not_there;
  absl::Status refusal;
  std::set<std::string> asked;
  const std::shared_ptr<const RoutedJob> before = job();
  for (const Participant& ps : before->shards) {
    if (!asked.insert(ps.member().address()).second) continue;
    SYNCLINE_RETURN_IF_ERROR(SleepUntil(MonotonicNow()));  // not cancelled
    const absl::Status answer = Ask(ps, wanted);
    if (job() != before) {
      return absl::UnavailableError("the job has just got another routing");
    }
    absl::Status& first = IsTransient(answer) ? not_there : refusal;
    if (first.ok()) first = answer;
  }
  // A ps that has left the job knows nothing of it. That is no answer while
  // another one is still to bring the routing that it has left by.
  return not_there.ok() ? refusal : not_there;
}

absl::Status CurrentRouting::Ask(const Participant& ps, uint64_t wanted) {
  const FanoutCall::Peer peer = PeerOf(ps);
  const std::string where =
      absl::StrCat(peer.name, " at ", peer.address, ", job ", caller_.job_id(),
                   ", GetRouting");
  GetRoutingRequest request;
  *request.mutable_caller() = caller();
  GetRoutingResponse response;
  const auto stub =
      ParameterServer::NewStub(MakeChannel(peer.address, ExpectedPeer::kPs));
  SYNCLINE_RETURN_IF_ERROR(Annotate(
      FromGrpcStatus(stub->GetRouting(
          MakeContext(MonotonicNow() + kAskTimeout).get(), request, &response)),
      where));
  return Annotate(Use(response, wanted), where);
}

absl::Status CurrentRouting::Use(const GetRoutingResponse& response,
                                 uint64_t wanted) {
  const uint64_t version = response.routing().version();
  MutexLock lock(&mu_);
  if (version < std::max(wanted, job_->table.version())) {
    return absl::UnavailableError(
        absl::StrCat("is at routing version ", version, " still"));
  }
  if (version == job_->table.version()) return absl::OkStatus();
  JobAssignment later = assignment_;
  *later.mutable_routing() = response.routing();
  *later.mutable_ps() = response.ps();
  SYNCLINE_ASSIGN_OR_RETURN(job_, ReadRouting(later));
  assignment_ = std::move(later);
  LogInfo("the job has another routing")
      .Job(caller_.job_id())
      .Field("version", version)
      .Field("shards", job_->table.shard_count());
  return absl::OkStatus();
}

void CurrentRouting::Cancel(const absl::Status& reason) {
  MutexLock lock(&mu_);
  if (status_.ok()) status_ = reason;
  cancelled_.SignalAll();
}

absl::Status CurrentRouting::SleepUntil(absl::Time time) {
  MutexLock lock(&mu_);
  while (status_.ok() && MonotonicNow() < time)
    cancelled_.WaitUntil(&mu_, time);
  return status_;
}

}  // namespace syncline::worker

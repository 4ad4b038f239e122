#include "worker/collectives/peer_rendezvous.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"

namespace syncline::worker {
namespace {

constexpr absl::Duration kCallPatience = absl::Seconds(2);
constexpr absl::Duration kRetry = absl::Milliseconds(20);

void ToProto(const PeerInvitation& invitation, Invitation* message) {
  message->set_boot_id(invitation.boot_id);
  message->set_port(invitation.port);
  message->set_local_name(invitation.local_name);
  message->set_token(invitation.token);
}

PeerInvitation FromProto(const Invitation& message) {
  return {message.boot_id(), message.port(), message.local_name(),
          message.token()};
}

bool IsWorthARetry(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// Asks until it is answered.
absl::StatusOr<PeerInvitation> Meet(const PeerGroupPlan& plan,
                                    const PeerMeeting& meeting, uint32_t peer,
                                    absl::Time deadline,
                                    const GoOnCheck& go_on) {
  const PeerGroup& group = plan.meeting.group;
  const auto stub = Peers::NewStub(MakeChannel(group.peers[peer].address));
  MeetRequest request;
  request.set_job_id(group.job);
  request.set_attempt(plan.pass.attempt);
  request.set_job_secret(plan.pass.secret);
  request.set_group_epoch(group.epoch);
  request.set_ranks(group.ranks());
  request.set_from_rank(group.rank);
  request.set_to_rank(peer);
  request.set_from_incarnation(plan.incarnations[group.rank]);
  request.set_to_incarnation(plan.incarnations[peer]);
  ToProto(meeting.InvitationFor(peer), request.mutable_invitation());
  absl::Status answer;  // the last one, which says more than that time is over
  while (true) {
    SYNCLINE_RETURN_IF_ERROR(go_on());
    const auto context =
        MakeContext(std::min(deadline, MonotonicNow() + kCallPatience));
    MeetResponse response;
    const absl::Status status =
        FromGrpcStatus(stub->Meet(context.get(), request, &response));
    if (status.ok()) return FromProto(response.invitation());
    if (answer.ok() || !absl::IsDeadlineExceeded(status)) answer = status;
    const bool is_late = MonotonicNow() + kRetry >= deadline;
    if (!IsWorthARetry(status) || is_late) {
      return absl::Status(
          is_late ? absl::StatusCode::kDeadlineExceeded : status.code(),
          absl::StrCat("group epoch ", group.epoch, " of job ", group.job, ": ",
                       group.NameOf(peer), " does not meet rank ", group.rank,
                       ": ", answer.message()));
    }
    Mutex mu;
    CondVar never;
    MutexLock lock(&mu);
    never.WaitUntil(&mu, MonotonicNow() + kRetry);
  }
}

}  // namespace

void PeersService::Add(const PeerGroupPlan* plan, PeerMeeting* meeting) {
  MutexLock lock(&mu_);
  groups_[plan->meeting.group.job] = {plan, meeting};
}

void PeersService::Remove(const PeerMeeting* meeting) {
  MutexLock lock(&mu_);
  for (auto at = groups_.begin(); at != groups_.end();) {
    at = at->second.meeting == meeting ? groups_.erase(at) : std::next(at);
  }
}

absl::Status PeersService::Answer(const MeetRequest& request,
                                  MeetResponse* response) {
  MutexLock lock(&mu_);
  const auto at = groups_.find(request.job_id());
  if (at == groups_.end()) {
    return absl::UnavailableError(absl::StrCat(
        "no group of job ", request.job_id(), " is being formed here"));
  }
  const PeerGroupPlan& plan = *at->second.plan;
  const PeerGroup& group = plan.meeting.group;
  SYNCLINE_RETURN_IF_ERROR(CheckPass(
      plan.pass,
      absl::StrCat("job ", group.job, " on ", group.NameOf(group.rank)),
      request.attempt(), request.job_secret()));
  if (request.group_epoch() != group.epoch) {
    const std::string text =
        absl::StrCat(group.NameOf(group.rank), " forms group epoch ",
                     group.epoch, ", not ", request.group_epoch());
    return request.group_epoch() < group.epoch ? absl::AbortedError(text)
                                               : absl::UnavailableError(text);
  }
  if (request.ranks() != group.ranks() || request.to_rank() != group.rank) {
    return absl::FailedPreconditionError(absl::StrCat(
        group.NameOf(group.rank), " of ", group.ranks(), " was taken for rank ",
        request.to_rank(), " of ", request.ranks()));
  }
  if (request.from_rank() >= group.rank) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", request.from_rank(),
                                                   " asks rank ", group.rank,
                                                   ", which asks it"));
  }
  if (request.to_incarnation() != plan.incarnations[group.rank] ||
      request.from_incarnation() != plan.incarnations[request.from_rank()]) {
    return absl::FailedPreconditionError(
        absl::StrCat("another incarnation of ", group.NameOf(group.rank),
                     " or of ", group.NameOf(request.from_rank())));
  }
  SYNCLINE_RETURN_IF_ERROR(at->second.meeting->OnInvitation(
      request.from_rank(), FromProto(request.invitation())));
  ToProto(at->second.meeting->InvitationFor(request.from_rank()),
          response->mutable_invitation());
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* PeersService::Meet(grpc::CallbackServerContext* call,
                                             const MeetRequest* request,
                                             MeetResponse* response) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  reactor->Finish(ToGrpcStatus(Answer(*request, response)));
  return reactor;
}

absl::StatusOr<std::unique_ptr<PeerTransport>> FormGroup(
    const PeerGroupPlan& plan, PeersService* service, absl::Time deadline,
    const GoOnCheck& go_on) {
  const PeerGroup& group = plan.meeting.group;
  if (plan.incarnations.size() != group.ranks() ||
      group.rank >= group.ranks()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group of ", group.ranks(), " ranks and ",
                     plan.incarnations.size(), " incarnations"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const auto meeting,
                            PeerMeeting::Create(plan.meeting));
  struct Listed {
    Listed(const PeerGroupPlan* plan, PeersService* service,
           PeerMeeting* meeting)
        : service_(service), meeting_(meeting) {
      service_->Add(plan, meeting);
    }
    ~Listed() { service_->Remove(meeting_); }
    PeersService* const service_;
    PeerMeeting* const meeting_;
  };
  const Listed listed(&plan, service, meeting.get());
  for (uint32_t peer = group.rank + 1; peer < group.ranks(); ++peer) {
    SYNCLINE_ASSIGN_OR_RETURN(const PeerInvitation invitation,
                              Meet(plan, *meeting, peer, deadline, go_on));
    SYNCLINE_ASSIGN_OR_RETURN(const HostPort address,
                              ParseHostPort(group.peers[peer].address));
    SYNCLINE_RETURN_IF_ERROR(
        meeting->Connect(peer, address.host, invitation, deadline, go_on));
  }
  while (true) {
    SYNCLINE_RETURN_IF_ERROR(go_on());
    auto transport = meeting->Finish(
        std::min(deadline, MonotonicNow() + absl::Milliseconds(500)));
    if (transport.ok()) return *std::move(transport);
    if (!absl::IsDeadlineExceeded(transport.status()) ||
        MonotonicNow() >= deadline) {
      return transport.status();
    }
  }
}

}  // namespace syncline::worker

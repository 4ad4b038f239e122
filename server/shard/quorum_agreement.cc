#include "server/shard/quorum_agreement.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/cluster/peer_unreachable.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/system/log.h"
#include "common/update/norm_blocks.h"
#include "common/update/reduction_root.h"
#include "grpcpp/client_context.h"
#include "server/shard/job_access.h"

namespace syncline::ps {
namespace {

// An answer to a cancelled call comes at once, unless gRPC hangs.
constexpr absl::Duration kCloseMax = absl::Seconds(5);

const Member& MemberOf(const JobAssignment& assignment,
                       const RoutingTable& routing, uint32_t shard) {
  return assignment.ps(static_cast<int>(routing.PsOf(shard))).member();
}

std::unique_ptr<QuorumArbiter> MakeArbiter(const JobAssignment& assignment,
                                           const RoutingTable& routing,
                                           const JobConfig& config) {
  if (config.shard != kRootShard) return nullptr;
  QuorumArbiter::Options options;
  options.needed = config.controller.quorum->needed;
  options.timeout = config.controller.quorum->timeout;
  options.loses_workers = config.controller.quorum->loses_workers;
  for (uint32_t shard = 0; shard < routing.shard_count(); ++shard) {
    const Member& member = MemberOf(assignment, routing, shard);
    options.shards.push_back(
        {.incarnation = member.incarnation(),
         .name = MemberName(member),
         .takes_part =
             !NormBlocksOf(routing.blocks(), routing.tables(), shard).empty()});
  }
  for (const auto& worker : config.controller.workers) {
    options.workers.push_back(worker.name);
  }
  options.label = config.label;
  return std::make_unique<QuorumArbiter>(std::move(options));
}

}  // namespace

// The state of one FixClock call while it is under way.
struct QuorumAgreement::Asking {
  std::unique_ptr<grpc::ClientContext> context;
  FixClockRequest request;
  FixClockResponse response;
  Done done;
};

QuorumAgreement::QuorumAgreement(const JobAssignment& assignment,
                                 const RoutingTable& routing,
                                 const JobConfig& config,
                                 OnUnreachable on_unreachable)
    : job_id_(assignment.job_id()),
      pass_(PassOf(assignment)),
      routing_version_(routing.version()),
      shard_(config.shard),
      incarnation_(MemberOf(assignment, routing, config.shard).incarnation()),
      loses_workers_(config.controller.quorum->loses_workers),
      workers_(config.controller.workers.size()),
      root_name_(MemberName(MemberOf(assignment, routing, kRootShard))),
      root_member_(MemberOf(assignment, routing, kRootShard)),
      wait_max_(config.wait_max),
      on_unreachable_(std::move(on_unreachable)),
      needed_(config.controller.quorum->needed),
      arbiter_(MakeArbiter(assignment, routing, config)) {}

void QuorumAgreement::OnCloses(int64_t clock, std::vector<uint32_t> ranks,
                               bool overdue, Done done) {
  if (arbiter_ != nullptr) {
    return Arbitrate(shard_, incarnation_, clock, ranks,
                     MonotonicNow() + wait_max_, std::move(done));
  }
  if (!overdue) {
    MutexLock lock(&mu_);
    if (ranks.size() < needed_) return;
  }
  Ask(clock, ranks, std::move(done));
}

absl::Status QuorumAgreement::Remove(uint32_t attempt, uint32_t rank) {
  if (arbiter_ == nullptr || attempt != pass_.attempt) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job_id_, ": rank ", rank, " of attempt ", attempt,
                     " cannot be taken out here, at shard ", shard_,
                     " of attempt ", pass_.attempt));
  }
  QuorumArbiter::Answers answers;
  {
    MutexLock lock(&mu_);
    SYNCLINE_RETURN_IF_ERROR(
        arbiter_->OnRemoved(rank, MonotonicNow(), &answers));
  }
  Answer(answers);
  return absl::OkStatus();
}

void QuorumAgreement::Fix(const FixClockRequest& request, absl::Time deadline,
                          Done done) {
  if (arbiter_ == nullptr) {
    return done(absl::FailedPreconditionError(absl::StrCat(
        "the sets of clocks of job ", job_id_, " are fixed at ", root_name_)));
  }
  Arbitrate(request.shard(), request.incarnation(), request.clock(),
            request.ranks(), deadline, std::move(done));
}

// --- Shard 0 -----------------------------------------------------------------

void QuorumAgreement::Arbitrate(uint32_t shard, uint64_t incarnation,
                                int64_t clock, absl::Span<const uint32_t> ranks,
                                absl::Time deadline, Done done) {
  QuorumArbiter::Answers answers;
  {
    MutexLock lock(&mu_);
    const uint64_t token = next_token_++;
    waiting_[token] = std::move(done);
    arbiter_->OnCloses(token, shard, incarnation, clock, ranks, deadline,
                       MonotonicNow(), &answers);
  }
  Answer(answers);
}

void QuorumAgreement::Answer(const QuorumArbiter::Answers& answers) {
  for (const QuorumArbiter::Answer& answer : answers) {
    Done done;
    {
      MutexLock lock(&mu_);
      const auto found = waiting_.find(answer.token);
      SYNCLINE_CHECK(found != waiting_.end());
      done = std::move(found->second);
      waiting_.erase(found);
      ++answering_;
    }
    if (answer.status.ok()) {
      done(ClockSet{answer.ranks, answer.removed});
    } else {
      done(answer.status);
    }
    // All that it holds goes before Close may return: what ends with a job must
    // not end on one of gRPC's threads.
    done = nullptr;
    MutexLock lock(&mu_);
    if (--answering_ == 0) changed_.SignalAll();
  }
}

void QuorumAgreement::Tick(absl::Time now, absl::Duration frozen) {
  if (arbiter_ == nullptr) return;
  QuorumArbiter::Answers answers;
  {
    MutexLock lock(&mu_);
    arbiter_->OnFrozen(frozen);
    arbiter_->OnTick(now, &answers);
  }
  Answer(answers);
}

// --- The other shards --------------------------------------------------------

void QuorumAgreement::Ask(int64_t clock, const std::vector<uint32_t>& ranks,
                          Done done) {
  auto asking = std::make_shared<Asking>();
  FixClockRequest& request = asking->request;
  request.set_job_id(job_id_);
  request.set_shard(shard_);
  request.set_incarnation(incarnation_);
  request.set_routing_version(routing_version_);
  request.set_attempt(pass_.attempt);
  request.set_job_secret(pass_.secret);
  request.set_clock(clock);
  request.mutable_ranks()->Add(ranks.begin(), ranks.end());
  asking->context = MakeContext(MonotonicNow() + wait_max_);
  std::shared_ptr<Quorum::Stub> stub;
  absl::Status closed;
  {
    MutexLock lock(&mu_);
    closed = closed_;
    if (closed.ok()) {
      if (stub_ == nullptr) {
        stub_ = Quorum::NewStub(
            MakeChannel(root_member_.address(), ExpectedPeer::kPs));
      }
      stub = stub_;
      asking_.insert(asking.get());
    }
  }
  if (!closed.ok()) return done(closed);
  asking->done = std::move(done);
  stub->async()->FixClock(
      asking->context.get(), &asking->request, &asking->response,
      [self = shared_from_this(), asking](const grpc::Status& status) {
        self->OnAnswer(asking.get(), status);
      });
}

void QuorumAgreement::OnAnswer(Asking* asking, const grpc::Status& status) {
  const absl::Status answered = FromGrpcStatus(status);
  NoteReach(answered);
  if (answered.ok()) {
    ClockSet set = {.ranks = {asking->response.ranks().begin(),
                              asking->response.ranks().end()},
                    .removed = {asking->response.removed().begin(),
                                asking->response.removed().end()}};
    if (loses_workers_) {
      MutexLock lock(&mu_);
      needed_ = workers_ - set.removed.size();
    }
    asking->done(std::move(set));
  } else {
    asking->done(Annotate(answered, root_name_));
  }
  asking->done = nullptr;
  std::unique_ptr<grpc::ClientContext> context;
  {
    MutexLock lock(&mu_);
    context = std::move(asking->context);
  }
  context.reset();
  MutexLock lock(&mu_);
  asking_.erase(asking);
  changed_.SignalAll();
}

void QuorumAgreement::NoteReach(const absl::Status& status) {
  // A call that ran out of time may have been parked at the shard.
  if (absl::IsDeadlineExceeded(status) || absl::IsCancelled(status)) return;
  std::optional<absl::Duration> out_of_reach;
  {
    MutexLock lock(&mu_);
    if (absl::IsUnavailable(status)) {
      out_of_reach = reach_.OnFailure(MonotonicNow());
    } else {
      reach_.OnAnswer(MonotonicNow());
    }
  }
  if (!out_of_reach.has_value() || on_unreachable_ == nullptr) return;
  PeerUnreachable report =
      MakePeerUnreachable(job_id_, root_member_, *out_of_reach, status);
  report.set_attempt(pass_.attempt);
  on_unreachable_(std::move(report));
}

void QuorumAgreement::Close(const absl::Status& status) {
  QuorumArbiter::Answers answers;
  {
    MutexLock lock(&mu_);
    closed_ = status;
    for (Asking* asking : asking_) {
      if (asking->context != nullptr) asking->context->TryCancel();
    }
    if (arbiter_ != nullptr) arbiter_->Close(status, &answers);
  }
  Answer(answers);
  const absl::Time until = MonotonicNow() + kCloseMax;
  std::shared_ptr<Quorum::Stub> stub;  // ends after the lock
  MutexLock lock(&mu_);
  while ((!asking_.empty() || answering_ > 0) && MonotonicNow() < until) {
    changed_.WaitUntil(&mu_, until);
  }
  if (asking_.empty() && answering_ == 0) {
    stub = std::move(stub_);
  } else {
    LogWarning("a call did not end").Job(job_id_).Field("peer", root_name_);
  }
}

}  // namespace syncline::ps

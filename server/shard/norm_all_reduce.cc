#include "server/shard/norm_all_reduce.h"

#include <optional>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/cluster/peer_unreachable.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/system/log.h"
#include "common/update/norm_blocks.h"
#include "common/update/norm_reducer.h"
#include "server/shard/job_access.h"

namespace syncline::ps {
namespace {

const Member& MemberOf(const JobAssignment& assignment,
                       const RoutingTable& routing, uint32_t shard) {
  return assignment.ps(static_cast<int>(routing.PsOf(shard))).member();
}

// By shard.
std::vector<NormReducer::Owner> Owners(const JobAssignment& assignment,
                                       const RoutingTable& routing) {
  std::vector<NormReducer::Owner> owners;
  for (uint32_t shard = 0; shard < routing.shard_count(); ++shard) {
    const Member& member = MemberOf(assignment, routing, shard);
    owners.push_back({member.incarnation(), MemberName(member),
                      NormBlocksOf(routing.blocks(), routing.tables(), shard)});
  }
  return owners;
}

size_t TensorCount(const BlockMap& map) {
  return map.blocks().empty() ? 0 : map.blocks().back().tensor + 1;
}

// An answer to a cancelled call comes at once, unless gRPC hangs.
constexpr absl::Duration kCloseMax = absl::Seconds(5);

}  // namespace

// The state of one FoldNorm call while it is under way.
struct NormAllReduce::Asking {
  std::unique_ptr<grpc::ClientContext> context;
  FoldNormRequest request;
  FoldNormResponse response;
  Done done;
};

NormAllReduce::NormAllReduce(const JobAssignment& assignment,
                             const RoutingTable& routing, uint32_t shard,
                             std::string label, absl::Duration wait_max,
                             OnUnreachable on_unreachable)
    : job_id_(assignment.job_id()),
      pass_(PassOf(assignment)),
      routing_version_(routing.version()),
      shard_(shard),
      incarnation_(MemberOf(assignment, routing, shard).incarnation()),
      blocks_(NormBlocksOf(routing.blocks(), routing.tables(), shard)),
      dense_blocks_(routing.blocks().shard_blocks(shard).size()),
      tensors_(TensorCount(routing.blocks())),
      root_name_(MemberName(MemberOf(assignment, routing, kRootShard))),
      root_member_(MemberOf(assignment, routing, kRootShard)),
      wait_max_(wait_max),
      on_unreachable_(std::move(on_unreachable)),
      hosted_(shard == kRootShard
                  ? std::make_unique<PendingNorms>(NormReducer(
                        RoleName(ReductionRoot::Role::kPs),
                        Owners(assignment, routing),
                        TensorsOfBlocks(routing.blocks()), std::move(label)))
                  : nullptr) {}

absl::Span<const uint32_t> NormAllReduce::PartIn(ReductionStage stage) const {
  const absl::Span<const uint32_t> blocks = blocks_;
  return stage == ReductionStage::kGradient ? blocks
                                            : blocks.first(dense_blocks_);
}

void NormAllReduce::AllReduce(const ReductionRound& round,
                              std::vector<double> squared_norms, Done done) {
  if (hosted_ == nullptr) return Ask(round, squared_norms, std::move(done));
  hosted_->Reduce(shard_, incarnation_, round, PartIn(round.stage),
                  squared_norms, MonotonicNow() + wait_max_, std::move(done));
}

void NormAllReduce::Reduce(const FoldNormRequest& request, absl::Time deadline,
                           Done done) {
  if (hosted_ == nullptr) {
    return done(absl::FailedPreconditionError(
        absl::StrCat("norms of job ", job_id_, " are folded at ", root_name_)));
  }
  ReductionRound round{.clock = request.clock()};
  if (request.stage() == FoldNormRequest::TRUST) {
    round.stage = ReductionStage::kTrust;
  } else if (request.stage() != FoldNormRequest::GRADIENT) {
    return done(absl::InvalidArgumentError(
        absl::StrCat("norms of job ", job_id_, ": stage ", request.stage(),
                     " is not known here")));
  }
  hosted_->Reduce(request.ps_rank(), request.incarnation(), round,
                  request.blocks(), request.squared_norms(), deadline,
                  std::move(done));
}

void NormAllReduce::Ask(const ReductionRound& round,
                        const std::vector<double>& squared_norms, Done done) {
  auto asking = std::make_shared<Asking>();
  asking->request.set_job_id(job_id_);
  asking->request.set_ps_rank(shard_);
  asking->request.set_routing_version(routing_version_);
  asking->request.set_incarnation(incarnation_);
  asking->request.set_attempt(pass_.attempt);
  asking->request.set_job_secret(pass_.secret);
  asking->request.set_clock(round.clock);
  asking->request.set_stage(round.stage == ReductionStage::kTrust
                                ? FoldNormRequest::TRUST
                                : FoldNormRequest::GRADIENT);
  const absl::Span<const uint32_t> blocks = PartIn(round.stage);
  asking->request.mutable_blocks()->Add(blocks.begin(), blocks.end());
  asking->request.mutable_squared_norms()->Add(squared_norms.begin(),
                                               squared_norms.end());
  asking->context = MakeContext(MonotonicNow() + wait_max_);
  std::shared_ptr<ParameterServer::Stub> stub;
  absl::Status closed;
  {
    MutexLock lock(&mu_);
    closed = closed_;
    if (closed.ok()) {
      if (stub_ == nullptr) {
        stub_ = ParameterServer::NewStub(
            MakeChannel(root_member_.address(), ExpectedPeer::kPs));
      }
      stub = stub_;
      asking_.insert(asking.get());
    }
  }
  if (!closed.ok()) return done(closed);
  asking->done = std::move(done);
  stub->async()->FoldNorm(
      asking->context.get(), &asking->request, &asking->response,
      [self = shared_from_this(), asking](const grpc::Status& status) {
        self->OnAnswer(asking.get(), status);
      });
}

NormAllReduce::Sums NormAllReduce::SumsOf(const Asking& asking) const {
  const bool by_tensor = asking.request.stage() == FoldNormRequest::TRUST;
  const size_t expected = by_tensor ? 2 * tensors_ : 1;
  const auto& sums = asking.response.sums();
  if (static_cast<size_t>(sums.size()) != expected) {
    return absl::InternalError(
        absl::StrCat("FoldNorm of clock ", asking.request.clock(),
                     by_tensor ? " by tensor" : "", " answered ", sums.size(),
                     " sums, expected ", expected));
  }
  return std::vector<double>(sums.begin(), sums.end());
}

void NormAllReduce::NoteReach(const absl::Status& status) {
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
  if (out_of_reach.has_value() && on_unreachable_ != nullptr) {
    PeerUnreachable report =
        MakePeerUnreachable(job_id_, root_member_, *out_of_reach, status);
    report.set_attempt(pass_.attempt);
    on_unreachable_(std::move(report));
  }
}

void NormAllReduce::OnAnswer(Asking* asking, const grpc::Status& status) {
  Sums sums = status.ok() ? SumsOf(*asking) : Sums(FromGrpcStatus(status));
  NoteReach(FromGrpcStatus(status));
  if (!sums.ok()) sums = Annotate(sums.status(), root_name_);
  asking->done(std::move(sums));
  // All that it holds goes before Close may return: what ends with a job must
  // not end on one of gRPC's threads.
  asking->done = nullptr;
  std::unique_ptr<grpc::ClientContext> context;
  {
    MutexLock lock(&mu_);
    context = std::move(asking->context);
  }
  context.reset();
  MutexLock lock(&mu_);
  asking_.erase(asking);
  answered_.SignalAll();
}

void NormAllReduce::Tick(absl::Time now, absl::Duration frozen) {
  if (hosted_ != nullptr) hosted_->Tick(now, frozen);
}

void NormAllReduce::Close(const absl::Status& status) {
  {
    MutexLock lock(&mu_);
    closed_ = status;
    for (Asking* asking : asking_) {
      if (asking->context != nullptr) asking->context->TryCancel();
    }
  }
  if (hosted_ != nullptr) hosted_->Close(status);
  const absl::Time until = MonotonicNow() + kCloseMax;
  bool ended = hosted_ == nullptr || hosted_->AwaitCallbacks(until);
  std::shared_ptr<ParameterServer::Stub> stub;  // ends after the lock
  MutexLock lock(&mu_);
  while (!asking_.empty() && MonotonicNow() < until) {
    answered_.WaitUntil(&mu_, until);
  }
  ended &= asking_.empty();
  if (ended) {
    stub = std::move(stub_);
  } else {
    LogWarning("a call did not end").Job(job_id_).Field("peer", root_name_);
  }
}

}  // namespace syncline::ps

#include "worker/job/switching_exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/fault_points.h"
#include "common/base/status_macros.h"
#include "common/system/log.h"
#include "worker/peers/switch_talk.h"

namespace syncline::worker {
namespace {

// An announcement reaches all ps within a round trip.
constexpr absl::Duration kAskAgain = absl::Milliseconds(2);

void WaitFor(absl::Duration time) {
  Mutex mu;
  CondVar never;
  MutexLock lock(&mu);
  never.WaitUntil(&mu, MonotonicNow() + time);
}

}  // namespace

SwitchingExchange::SwitchingExchange(Options options,
                                     std::unique_ptr<ParameterExchange> first,
                                     PeerExchange* peers)
    : options_(std::move(options)),
      regimes_(options_.regimes),
      active_(std::move(first)),
      peers_(peers) {
  ShowMembers();
}

void SwitchingExchange::ShowMembers() {
  std::vector<std::shared_ptr<ParameterExchange>> shown = {active_};
  for (const auto& other : {next_, former_}) {
    if (other != nullptr) shown.push_back(other);
  }
  absl::Status cancelled;
  {
    MutexLock lock(&mu_);
    shown_.swap(shown);
    shown_link_ = next_link_;
    cancelled = cancelled_;
  }
  if (!cancelled.ok()) Cancel(cancelled);
}

void SwitchingExchange::Cancel(const absl::Status& reason) {
  std::vector<std::shared_ptr<ParameterExchange>> shown;
  std::shared_ptr<PeerLink> link;
  {
    MutexLock lock(&mu_);
    if (cancelled_.ok()) cancelled_ = reason;
    shown = shown_;
    link = shown_link_;
  }
  for (const auto& exchange : shown) exchange->Cancel(reason);
  if (link != nullptr) link->Cancel(reason);
  if (options_.state != nullptr) options_.state->Cancel();
}

std::optional<ParameterExchange::LeftOut> SwitchingExchange::left_out() const {
  std::shared_ptr<ParameterExchange> active;
  {
    MutexLock lock(&mu_);
    active = shown_[0];
  }
  return active->left_out();
}

// --- A change of the strategy ------------------------------------------------

absl::StatusOr<SwitchingExchange::Change> SwitchingExchange::ChangeTo(
    uint64_t cut_id, TrainingRegime regime) const {
  Change change = {.cut_id = cut_id, .regime = regime, .regimes = regimes_};
  SYNCLINE_RETURN_IF_ERROR(change.regimes.Add(regime, /*begun=*/0));
  return change;
}

absl::StatusOr<std::vector<int64_t>> SwitchingExchange::BeginCut(
    const Cut& cut) {
  if (cut.use == CutUse::kRegime && cut.regime.has_value() &&
      peers_ != nullptr && !IsSwitch(*cut.regime)) {
    return absl::UnimplementedError(absl::StrCat(
        options_.label,
        ": without ps only the strategy and the wire type can change"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<int64_t> agreed,
                            active_->BeginCut(cut));
  if (cut.use == CutUse::kRegime && cut.regime.has_value()) {
    TrainingRegime regime = *cut.regime;
    regime.first_clock = agreed[0];
    SYNCLINE_ASSIGN_OR_RETURN(change_, ChangeTo(cut.id, regime));
  } else if (cut.use == CutUse::kEvaluation) {
    Cut announced = cut;
    announced.clocks = agreed;
    cuts_[cut.id] = std::move(announced);
  }
  return agreed;
}

absl::Status SwitchingExchange::EndCut(uint64_t cut_id, int64_t clock) {
  cuts_.erase(cut_id);
  if (change_.has_value() && change_->cut_id == cut_id) change_.reset();
  return active_->EndCut(cut_id, clock);
}

absl::Status SwitchingExchange::PrepareRegime(uint64_t cut_id, int64_t clock) {
  if (!change_.has_value() || change_->cut_id != cut_id ||
      !IsSwitch(change_->regime)) {
    return absl::OkStatus();
  }
  const absl::Status all = AwaitOthers(PreparePart(*change_, clock), clock);
  if (all.ok()) return all;
  GiveUp();
  if (peers_ != nullptr) {
    SYNCLINE_RETURN_IF_ERROR(
        SwitchTalk(peers_->link(), clock).SendVerdict(/*commits=*/false));
  }
  return all;
}

absl::Status SwitchingExchange::PreparePart(const Change& change,
                                            int64_t clock) {
  absl::Status status = AtFaultPoint(FaultPoint::kSwitchPrepare);
  if (status.ok()) {
    status = peers_ == nullptr ? PrepareFromPs(change, clock)
                               : PrepareFromPeers(change, clock);
  }
  if (status.ok()) status = AtFaultPoint(FaultPoint::kSwitchPrepared);
  status = Annotate(
      status, absl::StrCat(options_.label, ", a change of the regime at clock ",
                           clock));
  // The others may wait in the new group for this rank. From ps they hear it
  // from the chief.
  if (!status.ok() && peers_ != nullptr && next_link_ != nullptr) {
    next_link_->Cancel(status);
  }
  return status;
}

// An error is the old exchange's, whose next call returns it.
StateClient::Progress SwitchingExchange::ReportsOf(int64_t clock,
                                                   std::string what,
                                                   size_t blocks) {
  return [this, clock, what = std::move(what),
          total = uint64_t{blocks} * options_.arrays](uint64_t arrays) {
    active_->ReportActivity(clock, what, arrays, total).IgnoreError();
    // Ranks that have their parts wait for this one in the new group.
    if (next_link_ != nullptr) {
      next_link_->ReportActivity(clock, what, arrays, total).IgnoreError();
    }
  };
}

absl::Status SwitchingExchange::Join(const Change& change, int64_t clock) {
  SYNCLINE_ASSIGN_OR_RETURN(next_link_, options_.join(clock));
  ShowMembers();
  absl::StatusOr<std::unique_ptr<PeerExchange>> next =
      options_.make_peers(change.regimes, next_link_);
  if (!next.ok()) {
    // An exchange that was begun has closed the link, which nothing may use
    // then. The others see that this rank has left the group.
    if (!next_link_->status().ok()) {
      next_link_ = nullptr;
      ShowMembers();
    }
    return next.status();
  }
  next_peers_ = next->get();
  next_ = *std::move(next);
  ShowMembers();
  return absl::OkStatus();
}

absl::Status SwitchingExchange::PrepareFromPs(const Change& change,
                                              int64_t clock) {
  // The shards know the cut by another id where it was raised.
  SYNCLINE_ASSIGN_OR_RETURN(const std::optional<StateClient::Proposal> proposal,
                            AwaitProposal(clock));
  if (!proposal.has_value()) {
    return absl::FailedPreconditionError("the ps have announced no such one");
  }
  // The chief has the cut held, and joins then. Another rank must not wait for
  // it by the old exchange: where the chief has withdrawn the cut, that wait
  // would be an error that ends the job.
  if (is_chief()) {
    // It has left the values to a cut that it reads at this clock, too.
    SYNCLINE_RETURN_IF_ERROR(has_values_
                                 ? active_->AwaitCut(proposal->cut_id, clock)
                                 : active_->PullCut(proposal->cut_id, clock));
  } else if (!has_values_) {
    return absl::InternalError("the step before has read no values");
  }
  const auto header = JoinAndRead(change, proposal->cut_id, clock);
  if (next_link_ == nullptr) return header.status();
  if (change.regime.strategy == Strategy::kAllReduce) {
    // A rank that has no part of the state would be waited for in vain.
    SYNCLINE_RETURN_IF_ERROR(
        SwitchTalk(next_link_, clock).AwaitParts(header.status()));
  }
  SYNCLINE_RETURN_IF_ERROR(header.status());
  SYNCLINE_RETURN_IF_ERROR(next_peers_->RestoreRest(clock));
  next_peers_->BeginWith(*header, clock);
  return absl::OkStatus();
}

absl::StatusOr<ShardStateHeader> SwitchingExchange::JoinAndRead(
    const Change& change, uint64_t cut_id, int64_t clock) {
  SYNCLINE_RETURN_IF_ERROR(Join(change, clock));
  const absl::Span<const uint32_t> own =
      next_peers_->reduction().map().shard_blocks(options_.rank);
  return options_.state->Read(
      cut_id, clock,
      {.blocks = own,
       .first_array = next_peers_->first_array_of_ps(),
       .arrays = options_.arrays},
      [this](uint32_t block, uint32_t array, absl::string_view floats,
             int64_t updates) {
        next_peers_->RestorePiece(block, array, floats, updates);
      },
      ReportsOf(clock, "reading the state", own.size()));
}

absl::Status SwitchingExchange::PrepareFromPeers(const Change& change,
                                                 int64_t clock) {
  const StepReduction& reduction = peers_->reduction();
  if (!change.regime.has_ps()) {
    SYNCLINE_RETURN_IF_ERROR(Join(change, clock));
    SYNCLINE_RETURN_IF_ERROR(next_peers_->RestoreFrom(*peers_, clock));
    next_peers_->BeginWith(peers_->StateHeader(), clock);
    return absl::OkStatus();
  }
  if (options_.state == nullptr) {
    return absl::FailedPreconditionError("the job has reserved no ps");
  }
  const absl::Span<const uint32_t> blocks =
      reduction.map().shard_blocks(options_.rank);
  return options_.state->Write(
      change.cut_id, clock,
      {.blocks = blocks,
       .arrays = options_.arrays,
       .array_of =
           [&](uint32_t block, uint32_t array) {
             return reduction.updater().array(reduction.local(block),
                                              static_cast<int>(array));
           },
       .updates_of =
           [&](uint32_t block) {
             return reduction.updater().updates(reduction.local(block));
           },
       .owner = reduction.updater().memory()},
      ReportsOf(clock, "writing the state", blocks.size()));
}

absl::Status SwitchingExchange::AwaitOthers(const absl::Status& own,
                                            int64_t clock) {
  // From ps, the others hear of it when this rank leaves the new group, and
  // from the shards.
  if (peers_ == nullptr && !own.ok()) return own;
  const auto ready =
      SwitchTalk(peers_ != nullptr ? peers_->link() : next_link_, clock)
          .AwaitReady();
  if (!ready.ok()) return own.ok() ? ready.status() : own;
  found_ = 0;
  // That another rank has left the new group is not why it has.
  absl::Status why = own;
  for (const SwitchTalk::Ready& rank : *ready) {
    found_ += rank.found;
    if (rank.status.ok()) continue;
    if (why.ok() ||
        (absl::IsUnavailable(why) && !absl::IsUnavailable(rank.status))) {
      why = rank.status;
    }
  }
  SYNCLINE_RETURN_IF_ERROR(why);
  if (peers_ != nullptr && next_peers_ != nullptr) {
    ShardStateHeader header = peers_->StateHeader();
    header.set_non_finite(header.non_finite() + found_);
    next_peers_->BeginWith(header, clock);
  }
  return absl::OkStatus();
}

void SwitchingExchange::GiveUp() {
  next_.reset();
  next_peers_ = nullptr;
  next_link_.reset();
  ShowMembers();
}

absl::Status SwitchingExchange::CommitRegime(uint64_t cut_id, int64_t clock) {
  if (peers_ == nullptr) return active_->CommitRegime(cut_id, clock);
  SYNCLINE_CHECK(change_.has_value() && change_->cut_id == cut_id);
  if (change_->regime.has_ps()) SYNCLINE_RETURN_IF_ERROR(HandToPs(clock));
  return SwitchTalk(peers_->link(), clock).SendVerdict(/*commits=*/true);
}

absl::Status SwitchingExchange::HandToPs(int64_t clock) {
  ShardStateHeader header = peers_->StateHeader();
  header.set_non_finite(header.non_finite() + found_);
  // The shards count them in their totals, and by no worker.
  for (auto& worker : *header.mutable_workers()) worker.clear_non_finite();
  SYNCLINE_RETURN_IF_ERROR(options_.state->TakeBack(change_->cut_id, clock,
                                                    header, change_->regimes));
  next_ = options_.make_ps(change_->regimes);
  ShowMembers();
  // Before any rank can be past them.
  for (const auto& [id, cut] : cuts_) {
    SYNCLINE_RETURN_IF_ERROR(next_->BeginCut(cut).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<RegimeSchedule> SwitchingExchange::FollowRegimes(int64_t clock) {
  if (!is_chief()) return FollowChief(clock);
  RegimeSchedule regimes = regimes_;
  if (peers_ == nullptr) {
    SYNCLINE_ASSIGN_OR_RETURN(regimes, active_->FollowRegimes(clock));
  } else if (change_.has_value()) {
    regimes = change_->regimes;
  }
  change_.reset();
  if (IsSwitch(regimes.regimes().back())) {
    SYNCLINE_RETURN_IF_ERROR(Activate(regimes, clock));
  }
  regimes_ = regimes;
  return regimes_;
}

absl::StatusOr<std::optional<StateClient::Proposal>>
SwitchingExchange::AwaitProposal(int64_t clock) {
  if (options_.state == nullptr) return std::nullopt;
  const absl::Time deadline = MonotonicNow() + options_.step_timeout / 2;
  while (true) {
    auto proposal = options_.state->GetProposal(clock);
    if (proposal.ok()) {
      const bool is_change = proposal->has_value() &&
                             (*proposal)->regime.first_clock == clock &&
                             IsSwitch((*proposal)->regime);
      if (!is_change) return std::nullopt;
      return proposal;
    }
    if (!absl::IsUnavailable(proposal.status()) || MonotonicNow() >= deadline) {
      return proposal;
    }
    WaitFor(kAskAgain);
  }
}

absl::StatusOr<RegimeSchedule> SwitchingExchange::FollowChief(int64_t clock) {
  absl::Status own;
  if (peers_ != nullptr) {
    if (!peers_->announced_switch().has_value()) return regimes_;
    TrainingRegime regime = now();
    regime.strategy = peers_->announced_switch()->strategy;
    regime.wire_type = peers_->announced_switch()->wire_type;
    regime.first_clock = clock;
    SYNCLINE_ASSIGN_OR_RETURN(
        const Change change,
        ChangeTo(peers_->announced_switch()->cut_id, regime));
    own = PreparePart(change, clock);
    SwitchTalk talk(peers_->link(), clock);
    SYNCLINE_RETURN_IF_ERROR(
        talk.SendReady({own, peers_->reduction().found()}));
    SYNCLINE_ASSIGN_OR_RETURN(const bool commits, talk.AwaitVerdict());
    if (!commits) {
      GiveUp();
      return regimes_;
    }
    SYNCLINE_RETURN_IF_ERROR(Activate(change.regimes, clock));
    return regimes_;
  }
  const auto proposal = AwaitProposal(clock);
  if (absl::IsCancelled(proposal.status())) return proposal.status();
  if (!proposal.ok()) {
    // Most likely it is a change of the mode, which needs nothing of this rank.
    // One of the strategy is not made without it.
    own = proposal.status();
    LogWarning("this rank does not know what changes").Status(own);
  } else if (proposal->has_value()) {
    SYNCLINE_ASSIGN_OR_RETURN(
        const Change change,
        ChangeTo((*proposal)->cut_id, (*proposal)->regime));
    own = PreparePart(change, clock);
    if (next_link_ != nullptr) {
      const absl::Status told =
          SwitchTalk(next_link_, clock).SendReady({own, 0});
      if (own.ok()) own = told;
    }
    if (!own.ok()) {
      LogWarning("this rank cannot change the strategy").Status(own);
      GiveUp();
    }
  }
  SYNCLINE_ASSIGN_OR_RETURN(const RegimeSchedule regimes,
                            active_->FollowRegimes(clock));
  if (!IsSwitch(regimes.regimes().back())) {
    GiveUp();
    regimes_ = regimes;
    return regimes_;
  }
  if (next_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        options_.label, ": the strategy has changed at clock ", clock,
        ", and this rank has no part in it: ", own.message()));
  }
  SYNCLINE_RETURN_IF_ERROR(Activate(regimes, clock));
  return regimes_;
}

absl::Status SwitchingExchange::Activate(const RegimeSchedule& regimes,
                                         int64_t clock) {
  const bool had_ps = peers_ == nullptr;
  if (next_ == nullptr) next_ = options_.make_ps(regimes);
  if (next_peers_ != nullptr) {
    next_peers_->ShowValues(now().wire_type);
    for (const auto& [id, cut] : cuts_) {
      SYNCLINE_RETURN_IF_ERROR(next_->BeginCut(cut).status());
      // The shards held it for evaluations to come, and hold nobody any more.
      if (had_ps) SYNCLINE_RETURN_IF_ERROR(active_->EndCut(id, clock));
    }
    here_ = clock;
  }
  former_ = std::exchange(active_, std::exchange(next_, nullptr));
  peers_ = std::exchange(next_peers_, nullptr);
  next_link_.reset();
  // The tensors have the values that the owners have written to the ps. In 16
  // bits the ps round them.
  if (peers_ == nullptr && !had_ps &&
      regimes.regimes().back().wire_type == ElementType::kFloat32) {
    here_ = clock;
  }
  regimes_ = regimes;
  ShowMembers();
  return absl::OkStatus();
}

// --- The rest goes to the exchange of the present strategy -------------------

absl::Status SwitchingExchange::Init(int64_t total_clocks) {
  return active_->Init(total_clocks);
}

absl::Status SwitchingExchange::Pull(int64_t clock) {
  if (here_ == clock) return absl::OkStatus();
  return active_->Pull(clock);
}

absl::Status SwitchingExchange::PullRows(int64_t clock, uint64_t cut_id,
                                         absl::Span<RowBatch* const> rows) {
  return active_->PullRows(clock, cut_id, rows);
}

absl::Status SwitchingExchange::ReportActivity(int64_t clock,
                                               absl::string_view what,
                                               uint64_t done, uint64_t total) {
  return active_->ReportActivity(clock, what, done, total);
}

absl::Status SwitchingExchange::PullCut(uint64_t cut_id, int64_t clock) {
  return active_->PullCut(cut_id, clock);
}

absl::Status SwitchingExchange::ScanTable(uint32_t table, int64_t dim,
                                          uint64_t cut_id, int64_t clock,
                                          RowSink sink) {
  return active_->ScanTable(table, dim, cut_id, clock, sink);
}

absl::Status SwitchingExchange::AwaitCut(uint64_t cut_id, int64_t clock) {
  return active_->AwaitCut(cut_id, clock);
}

std::unique_ptr<CheckpointWriting> SwitchingExchange::OpenCheckpoint(
    uint64_t cut_id) {
  return active_->OpenCheckpoint(cut_id);
}

// While the strategy changes, nobody knows where the state is.
std::optional<int64_t> SwitchingExchange::OwnClock() const {
  return next_ == nullptr ? active_->OwnClock() : std::nullopt;
}

std::unique_ptr<CheckpointWriting> SwitchingExchange::SaveAlone(
    uint64_t cut_id) {
  return active_->SaveAlone(cut_id);
}

void SwitchingExchange::BeginStep(const Step& step) {
  has_values_ = step.pull;
  active_->BeginStep(step);
}

void SwitchingExchange::PullEarly(absl::Span<RowBatch* const> next_rows,
                                  int64_t min_clock) {
  active_->PullEarly(next_rows, min_clock);
}

void SwitchingExchange::AbandonStep(bool own_values) {
  active_->AbandonStep(own_values);
}

void SwitchingExchange::OnGradientReady(uint32_t tensor) {
  active_->OnGradientReady(tensor);
}

void SwitchingExchange::EndBackward(absl::Span<RowBatch* const> next_rows) {
  active_->EndBackward(next_rows);
}

absl::Status SwitchingExchange::Wait() {
  SYNCLINE_RETURN_IF_ERROR(active_->Wait());
  if (former_ != nullptr) {
    // All ranks have made this step, so none needs the exchange before.
    former_.reset();
    ShowMembers();
  }
  return absl::OkStatus();
}

absl::Status SwitchingExchange::Leave(int64_t clock) {
  return active_->Leave(clock);
}

}  // namespace syncline::worker

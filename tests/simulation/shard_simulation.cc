#include "tests/simulation/shard_simulation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/busy.h"
#include "tests/simulation/shard_history.h"
#include "tests/testing/fakes/payloads.h"

namespace syncline {
namespace {

constexpr int kEventsMax = 20000;
constexpr uint64_t kIncarnation = 1000;  // of rank r: kIncarnation + r

CutUse UseOf(uint64_t cut_id) {
  return cut_id % 2 == 0 ? CutUse::kEvaluation : CutUse::kCheckpoint;
}

}  // namespace

ShardHistory::ShardHistory(const SimulationOptions& options)
    : options_(options),
      script_(options),
      regimes_(script_.regimes()),
      live_regimes_(regimes_),
      random_(SeedFor(options.seed, 2)),
      workers_(script_.worker_count()),
      kept_(script_.block_count()),
      applied_(script_.block_count()) {
  ps::ConsistencyController::Options controller;
  controller.regimes = regimes_;
  controller.clip_norm = options.clip_norm;
  controller.block_count = script_.block_count();
  controller.slot_count = script_.slot_count();
  controller.label = "simulated shard";
  if (options.cuts && options.seed % 2 == 1) {
    cutter_ = script_.worker_count();
    controller.evaluator = {kIncarnation + cutter_, "evaluator"};
  }
  for (uint32_t rank = 0; rank < script_.worker_count(); ++rank) {
    controller.workers.push_back(
        {kIncarnation + rank, absl::StrCat("worker:", rank)});
    workers_[rank].step_time =
        0.5 + random_.Uniform() * (random_.Below(3) == 0 ? 20 : 2);
  }
  controller_ = std::make_unique<ps::ConsistencyController>(controller);
  DenseUpdater::Options updater;
  updater.rule.learning_rate.base =
      script_.FoldsInSync() ? ShardScript::kRate : 1;
  updater.rule.regimes = regimes_;
  updater.rule.clip_norm =
      script_.FoldsInSync() ? script_.clip_norm() : 1e30 * script_.clip_norm();
  const std::vector<size_t> counts(script_.block_count(),
                                   ShardScript::kElements);
  updater_ = std::make_unique<DenseUpdater>(updater, counts);
  updater_->UseRegimes(&live_regimes_);
  for (auto& ranks : kept_) ranks.resize(script_.worker_count());
  for (auto& ranks : applied_) ranks.resize(script_.worker_count());
}

std::string ShardHistory::Run() {
  if (options_.cuts) {
    AnnounceCut([this] { Initialise(); });
  } else {
    Initialise();
  }
  for (uint32_t rank = 0; rank < script_.worker_count(); ++rank) {
    agenda_.At(random_.Uniform() * 5, [this, rank] { StartWorker(rank); });
  }
  for (int i = 0; i < 4; ++i) {
    const uint32_t rank = random_.Below(script_.worker_count());
    agenda_.At(random_.Uniform() * 30, [this, rank] { ArriveZombie(rank); });
  }
  for (int i = 0; i < options_.changes; ++i) {
    agenda_.At(random_.Uniform() * 25, [this] { ChangeRegime(); });
  }
  if (options_.close_early) {
    agenda_.At(random_.Uniform() * 40, [this] { CloseJob(); });
  }
  agenda_.At(1, [this] { Tick(); });
  int events = 0;
  while (broken_.empty() && agenda_.RunNext()) {
    if (++events > kEventsMax) Broken("the job does not come to an end");
  }
  if (broken_.empty()) CheckEnd();
  return broken_;
}

// --- Regimes -----------------------------------------------------------------

// From the clock of the fastest worker on or soon after it, which may have
// begun it; sometimes too early.
void ShardHistory::ChangeRegime() {
  if (closed_) return;
  int64_t fastest = 0;
  for (uint32_t rank = 0; rank < script_.worker_count(); ++rank) {
    fastest = std::max(fastest, controller_->worker(rank).closed());
  }
  const TrainingRegime& last = regimes_.regimes().back();
  const int64_t from = std::max(
      last.first_clock + 1, fastest + static_cast<int64_t>(random_.Below(3)));
  const TrainingRegime regime =
      script_.Next(last, from - (random_.Below(8) == 0 ? 1 : 0), &random_);
  for (int i = random_.Below(3) == 0 ? 2 : 1; i > 0; --i) {
    ps::ShardActions actions;
    const absl::Status status =
        controller_->OnRegime(regime, agenda_.now(), &actions);
    if (absl::IsOutOfRange(status) || absl::IsInvalidArgument(status)) return;
    if (!status.ok()) return Broken(std::string(status.message()));
    // The lanes hear of it before they apply anything of it.
    const size_t known = regimes_.regimes().size();
    if (!regimes_.Add(regime, 0).ok()) return Broken("regimes contradict");
    if (regimes_.regimes().size() > known) live_regimes_.Add(regime);
    Execute(std::move(actions));
  }
}

// --- Workers -----------------------------------------------------------------

std::vector<ps::BlockIndex> ShardHistory::AllBlocks() const {
  std::vector<ps::BlockIndex> all(script_.block_count());
  for (ps::BlockIndex block = 0; block < all.size(); ++block)
    all[block] = block;
  return all;
}

void ShardHistory::StartWorker(uint32_t rank) {
  Send(
      rank, std::nullopt, ps::PullFacts{0, AllBlocks(), 0}, [this, rank](bool) {
        agenda_.At(workers_[rank].step_time, [this, rank] { StartStep(rank); });
      });
}

void ShardHistory::StartStep(uint32_t rank) {
  if (random_.Below(3) == 0) {
    SendPushesThenPull(rank);
  } else {
    SendPushPulls(rank);
  }
}

// The step's blocks in 1 to 3 messages, in random order of sending.
std::vector<ps::PushFacts> ShardHistory::CutIntoPushes(uint32_t rank) {
  const int64_t clock = workers_[rank].clock;
  const std::vector<ps::BlockIndex>& blocks = script_.blocks(rank, clock);
  ps::PushFacts facts;
  facts.clock = clock;
  facts.sample_count = script_.samples(rank, clock);
  facts.blocks_in_clock = static_cast<uint32_t>(blocks.size());
  facts.finished = clock + 1 == script_.clock_count(rank);
  facts.squared_norm =
      options_.clip_norm ? script_.squared_norm(rank, clock) : 0;
  std::vector<ps::PushFacts> pushes(
      std::max<size_t>(1,
                       std::min<size_t>(blocks.size(), 1 + random_.Below(3))),
      facts);
  for (size_t i = 0; i < blocks.size(); ++i) {
    pushes[i * pushes.size() / blocks.size()].blocks.push_back(blocks[i]);
  }
  return pushes;
}

void ShardHistory::SendPushPulls(uint32_t rank) {
  std::vector<ps::PushFacts> pushes = CutIntoPushes(rank);
  const int64_t next = workers_[rank].clock + 1;
  workers_[rank].pending = static_cast<int>(pushes.size());
  std::vector<ps::BlockIndex> unasked = AllBlocks();
  for (size_t i = 0; i < pushes.size(); ++i) {
    // Each message asks for what it sends, the last one for all the rest.
    ps::PullFacts pull{next, {}, 0};
    for (const ps::BlockIndex block : AllBlocks()) {
      const bool sent =
          std::count(pushes[i].blocks.begin(), pushes[i].blocks.end(), block);
      const auto left = std::find(unasked.begin(), unasked.end(), block);
      if ((!sent && i + 1 < pushes.size()) || left == unasked.end()) continue;
      unasked.erase(left);
      pull.blocks.push_back(block);
    }
    Send(rank, std::move(pushes[i]), std::move(pull), [this, rank](bool) {
      if (--workers_[rank].pending == 0) FinishStep(rank);
    });
  }
}

void ShardHistory::SendPushesThenPull(uint32_t rank) {
  std::vector<ps::PushFacts> pushes = CutIntoPushes(rank);
  workers_[rank].pending = static_cast<int>(pushes.size());
  for (ps::PushFacts& push : pushes) {
    Send(rank, std::move(push), std::nullopt, [this, rank](bool) {
      if (--workers_[rank].pending > 0) return;
      ps::PullFacts pull{workers_[rank].clock + 1, {}, 0};
      if (random_.Below(4) > 0) pull.blocks = AllBlocks();
      Send(rank, std::nullopt, std::move(pull),
           [this, rank](bool) { FinishStep(rank); });
    });
  }
}

void ShardHistory::FinishStep(uint32_t rank) {
  WorkerActor& worker = workers_[rank];
  if (++worker.clock == script_.clock_count(rank)) {
    worker.done = true;
    return;
  }
  agenda_.At(worker.step_time * (0.5 + random_.Uniform()),
             [this, rank] { StartStep(rank); });
}

// --- Network -----------------------------------------------------------------

void ShardHistory::Send(uint32_t rank, std::optional<ps::PushFacts> push,
                        std::optional<ps::PullFacts> pull,
                        std::function<void(bool)> done) {
  auto request = std::make_shared<Request>();
  request->rank = rank;
  request->push = std::move(push);
  request->pull = std::move(pull);
  request->done = std::move(done);
  Transmit(request);
}

void ShardHistory::Transmit(const RequestPtr& request) {
  if (request->is_done || closed_) return;
  const int copies = random_.Below(6) == 0 ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    // Some copies come very late, long after the worker has gone on.
    const double delay =
        random_.Uniform() * (random_.Below(12) == 0 ? 60 : 1.5);
    agenda_.At(delay, [this, request] { Arrive(request); });
  }
  agenda_.At(25 + random_.Uniform() * 10,
             [this, request] { Transmit(request); });
}

void ShardHistory::Arrive(const RequestPtr& request) {
  const ps::CallToken token = next_token_++;
  outstanding_[token] = {request, request->rank, request->push, request->pull,
                         false};
  ps::ShardCall call;
  call.token = token;
  call.rank = request->rank;
  call.incarnation = kIncarnation + request->rank;
  call.deadline = agenda_.now() + absl::Seconds(3 + random_.Uniform() * 40);
  call.push = request->push;
  call.pull = request->pull;
  ps::ShardActions actions;
  controller_->OnCall(std::move(call), agenda_.now(), &actions);
  Execute(std::move(actions));
  if (random_.Below(25) == 0) {
    agenda_.At(random_.Uniform() * 3, [this, token] {
      ps::ShardActions cancelled;
      controller_->OnCancel(token, &cancelled);
      Execute(std::move(cancelled));
    });
  }
}

void ShardHistory::ArriveZombie(uint32_t rank) {
  const ps::CallToken token = next_token_++;
  ps::ShardCall call;
  call.token = token;
  call.rank = rank;
  call.incarnation = kIncarnation - 1;
  call.deadline = agenda_.now() + absl::Seconds(10);
  call.push = ps::PushFacts{.clock = controller_->worker(rank).closed(),
                            .sample_count = 1,
                            .blocks_in_clock = 1,
                            .blocks = {0},
                            .finished = true,
                            .squared_norm = 1};
  outstanding_[token] = {nullptr, rank, call.push, std::nullopt, true};
  ps::ShardActions actions;
  controller_->OnCall(std::move(call), agenda_.now(), &actions);
  Execute(std::move(actions));
}

void ShardHistory::Answer(ps::CallToken token, const absl::Status& status) {
  const auto found = outstanding_.find(token);
  if (found == outstanding_.end()) {
    return Broken(absl::StrCat("call ", token, " ended twice"));
  }
  const Outstanding call = found->second;
  outstanding_.erase(found);
  if (call.zombie && status.ok()) return Broken("a zombie was served");
  if (absl::EndsWith(status.message(), "missing: ")) {
    return Broken(absl::StrCat("no worker is named: ", status.message()));
  }
  if (call.request == nullptr || call.request->is_done) return;
  const bool refused = absl::IsFailedPrecondition(status);
  if (status.ok() || refused) {
    // A late duplicate may be refused, an answer that counts may not.
    if (refused && !call.pull.has_value()) {
      return Broken(std::string(status.message()));
    }
    if (random_.Below(10) == 0) return;  // the answer is lost
    call.request->is_done = true;
    agenda_.At(random_.Uniform(),
               [request = call.request, refused] { request->done(refused); });
    return;
  }
  // Anything else is repeated by the timer that Transmit set.
  if (absl::IsInvalidArgument(status)) Broken(std::string(status.message()));
}

// --- Cuts --------------------------------------------------------------------

// Somewhat ahead of where the workers are, as far apart as the mode allows.
std::vector<int64_t> ShardHistory::ChooseCut(bool even) {
  std::vector<int64_t> clocks(script_.worker_count());
  int64_t highest = 0;
  for (uint32_t rank = 0; rank < clocks.size(); ++rank) {
    const ps::PushLedger& worker = controller_->worker(rank);
    clocks[rank] = worker.closed() + (worker.started() ? 1 : 0) +
                   static_cast<int64_t>(random_.Below(3));
    if (announced_ > 0) {
      clocks[rank] = std::max(clocks[rank], cut_clocks_[announced_][rank]);
    }
    highest = std::max(highest, clocks[rank]);
    // In SYNC a cut has one clock, that of who has finished included.
    even |= options_.mixed && worker.finished();
  }
  for (int64_t& clock : clocks) {
    if (even || script_.FoldsInSync()) clock = highest;
    if (options_.mode == ConsistencyMode::kBoundedStaleness) {
      clock = std::max(clock, highest - script_.staleness());
    }
  }
  return clocks;
}

void ShardHistory::AnnounceCut(std::function<void()> then, bool even) {
  const std::vector<int64_t> clocks = ChooseCut(even);
  const uint64_t id = announced_ + 1;
  ps::ShardActions actions;
  const absl::Status status = controller_->OnBeginCut(
      cutter_, kIncarnation + cutter_, id, clocks, absl::Seconds(40),
      agenda_.now(), &actions, UseOf(id));
  if (absl::IsFailedPrecondition(status) || closed_) {
    // One that was forgotten is still held.
    if (!AllDone()) agenda_.At(10, [this, then] { AnnounceCut(then); });
    return;
  }
  // Further apart than the regimes that hold now allow.
  if (absl::IsOutOfRange(status) && options_.changes > 0 && !even) {
    return AnnounceCut(then, /*even=*/true);
  }
  if (!status.ok()) return Broken(absl::StrCat("BeginCut: ", status.message()));
  announced_ = id;
  cut_clocks_[id] = clocks;
  Execute(std::move(actions));
  agenda_.At(random_.Uniform() * 5, [this, id] { ReadCut(id); });
  then();
}

void ShardHistory::ReadCut(uint64_t cut_id) {
  Send(cutter_, std::nullopt, ps::PullFacts{0, AllBlocks(), cut_id},
       [this, cut_id](bool refused) {
         const bool more = cut_id < 3 && !AllDone();
         const auto end = [this, cut_id] { EndCut(cut_id); };
         // Refused: it was held for so long that the shard gave it up.
         const bool forgets = random_.Below(6) == 0;
         if (more) {
           AnnounceCut([this, end, refused, forgets] {
             if (!refused && !forgets) agenda_.At(random_.Uniform() * 8, end);
           });
         } else if (!refused && !forgets) {
           agenda_.At(random_.Uniform() * 8, end);
         }
       });
}

void ShardHistory::EndCut(uint64_t cut_id) {
  for (int i = random_.Below(5) == 0 ? 2 : 1; i > 0; --i) {
    ps::ShardActions actions;
    const absl::Status status = controller_->OnEndCut(
        cutter_, kIncarnation + cutter_, cut_id, agenda_.now(), &actions);
    if (IsBusy(status)) {
      agenda_.At(1, [this, cut_id] { EndCut(cut_id); });
      return;
    }
    if (!status.ok() && !closed_ && !absl::IsFailedPrecondition(status)) {
      Broken(absl::StrCat("EndCut: ", status.message()));
    }
    Execute(std::move(actions));
  }
}

// --- Shell -------------------------------------------------------------------

void ShardHistory::Initialise() {
  std::vector<std::vector<ps::BlockIndex>> inits;
  for (const ps::BlockIndex block : AllBlocks()) {
    if (block >= script_.block_count() - script_.slot_count()) break;
    inits.push_back({block});
  }
  if (inits.empty()) inits.emplace_back();  // a shard of rows alone
  for (const std::vector<ps::BlockIndex>& blocks : inits) {
    for (int i = random_.Below(4) == 0 ? 2 : 1; i > 0; --i) {
      agenda_.At(random_.Uniform() * 8, [this, blocks] {
        const ps::CallToken token = next_token_++;
        outstanding_[token] = {nullptr, 0, std::nullopt, std::nullopt, false};
        ps::ShardActions actions;
        controller_->OnInit(token, 0, kIncarnation, blocks, agenda_.now(),
                            &actions);
        Execute(std::move(actions));
      });
    }
  }
}

void ShardHistory::Tick() {
  ps::ShardActions actions;
  controller_->OnTick(agenda_.now(), &actions);
  Execute(std::move(actions));
  if (!AllDone() || !outstanding_.empty()) {
    agenda_.At(1, [this] { Tick(); });
  }
}

void ShardHistory::CloseJob() {
  closed_ = true;
  ps::ShardActions actions;
  controller_->Close(absl::CancelledError("the job was closed"), &actions);
  Execute(std::move(actions));
  if (!outstanding_.empty()) Broken("a call survived the job");
}

void ShardHistory::Execute(ps::ShardActions actions) {
  for (const ps::ShardAction& action : actions) {
    if (!broken_.empty()) return;
    ExecuteOne(action);
  }
  CheckNobodyWaitsInVain();
}

void ShardHistory::ExecuteOne(const ps::ShardAction& action) {
  using Kind = ps::ShardAction::Kind;
  switch (action.kind) {
    case Kind::kInit:
      return updater_->Init(action.block,
                            VectorFloats(script_.initial(action.block)), 0);
    case Kind::kBufferGradient: {
      CheckDeliver(action);
      const Outstanding& call = outstanding_[action.token];
      return updater_->BufferGradient(action.block, action.rank,
                                      Gradient(call, action.block), 0);
    }
    case Kind::kAccept:
      return;
    case Kind::kReduceGradients:
      updater_->ReduceGradients(action.block, action.sample_count, &scratch_);
      return;
    case Kind::kComputeLambUpdate:
    case Kind::kDropGradients:
      return Broken("a trust ratio or a skipped clock, but the job has none");
    case Kind::kDropGradientOf:
    case Kind::kSendCloses:
      return Broken("a worker is left behind, but the job waits for all");
    case Kind::kSendNorms: {
      // Late, and sometimes again: the other shards are slow.
      for (int i = random_.Below(4) == 0 ? 2 : 1; i > 0; --i) {
        agenda_.At(random_.Uniform() * 4, [this, clock = action.clock] {
          ps::ShardActions actions;
          controller_->OnReduced(
              {clock},
              script_.FoldsInSync() ? script_.sync_squared_norm(clock) : 1,
              agenda_.now(), &actions);
          Execute(std::move(actions));
        });
      }
      return;
    }
    case Kind::kApply:
      CheckApply(action);
      return updater_->Apply(action.block, action.clock, action.sample_count,
                             action.squared_norm, &scratch_);
    case Kind::kSnapshot:
      return CheckSnapshot(action);
    case Kind::kRead:
      if (const auto call = outstanding_.find(action.token);
          call != outstanding_.end()) {
        CheckRead(call->second);
      }
      return Answer(action.token, absl::OkStatus());
    case Kind::kAck:
      return Answer(action.token, absl::OkStatus());
    case Kind::kFail:
      return Answer(action.token, action.status);
  }
}

std::shared_ptr<const FloatSource> ShardHistory::Gradient(
    const Outstanding& call, ps::BlockIndex block) const {
  return std::make_shared<VectorFloats>(
      script_.gradient(call.rank, call.push->clock, block));
}

std::string SimulateShard(const SimulationOptions& options) {
  return ShardHistory(options).Run();
}

}  // namespace syncline

#include "tests/simulation/shard_simulation.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/update/dense_updater.h"
#include "tests/simulation/shard_script.h"
#include "tests/testing/fakes/payloads.h"

namespace syncline {
namespace {

constexpr int kEventsMax = 20000;
constexpr uint64_t kIncarnation = 1000;  // of rank r: kIncarnation + r

// Virtual time: whatever is scheduled happens in order of its time.
class Agenda {
 public:
  void At(double delay, std::function<void()> what) {
    queue_.push({now_ + delay, next_++, std::move(what)});
  }
  bool RunNext() {
    if (queue_.empty()) return false;
    Event event = queue_.top();
    queue_.pop();
    now_ = event.time;
    event.what();
    return true;
  }
  absl::Time now() const { return absl::UnixEpoch() + absl::Seconds(now_); }

 private:
  struct Event {
    double time;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return std::pair(time, order) > std::pair(other.time, other.order);
    }
  };
  double now_ = 0;
  uint64_t next_ = 0;
  std::priority_queue<Event> queue_;
};

class Simulation {
 public:
  explicit Simulation(const SimulationOptions& options);
  std::string Run();

 private:
  // A request that a worker repeats until it has an answer.
  struct Request {
    uint32_t rank = 0;
    std::optional<ps::PushFacts> push;
    std::optional<ps::PullFacts> pull;
    std::function<void(bool refused)> done;
    bool is_done = false;
  };
  using RequestPtr = std::shared_ptr<Request>;
  struct Outstanding {
    RequestPtr request;  // null: a zombie's, or an Init
    uint32_t rank = 0;
    std::optional<ps::PushFacts> push;
    std::optional<ps::PullFacts> pull;
    bool zombie = false;
  };
  struct WorkerActor {
    int64_t clock = 0;
    double step_time = 1;
    int pending = 0;
    bool done = false;
  };

  // Workers.
  void StartWorker(uint32_t rank);
  void StartStep(uint32_t rank);
  void SendPushPulls(uint32_t rank);
  void SendPushesThenPull(uint32_t rank);
  std::vector<ps::PushFacts> CutIntoPushes(uint32_t rank);
  std::vector<ps::BlockIndex> AllBlocks() const;
  void FinishStep(uint32_t rank);

  // The network between workers and the shard.
  void Send(uint32_t rank, std::optional<ps::PushFacts> push,
            std::optional<ps::PullFacts> pull, std::function<void(bool)> done);
  void Transmit(const RequestPtr& request);
  void Arrive(const RequestPtr& request);
  void ArriveZombie(uint32_t rank);
  void Answer(ps::CallToken token, const absl::Status& status);

  // The chief's cuts, or the evaluator's.
  std::vector<int64_t> ChooseCut();
  void AnnounceCut(std::function<void()> then);
  void ReadCut(uint64_t cut_id);
  void EndCut(uint64_t cut_id);

  // The shard's shell.
  void Initialise();
  void Tick();
  void CloseJob();
  void Execute(ps::ShardActions actions);
  void ExecuteOne(const ps::ShardAction& action);
  std::shared_ptr<const FloatSource> Gradient(const Outstanding& call,
                                              ps::BlockIndex block) const;

  // Checks.
  void CheckDeliver(const ps::ShardAction& action);
  void CheckApply(const ps::ShardAction& action);
  void CheckRead(const Outstanding& call);
  void CheckBlockIsFresh(const Outstanding& call, ps::BlockIndex block);
  void CheckSyncValue(const ps::PullFacts& pull, ps::BlockIndex block);
  void CheckCutState(const ps::PullFacts& pull, ps::BlockIndex block);
  void CheckNobodyWaitsInVain();
  bool MayReadWholeShard(uint32_t rank, int64_t clock) const;
  void CheckEnd();
  bool AllDone() const;
  void Broken(const std::string& rule) {
    if (broken_.empty()) broken_ = rule;
  }

  const SimulationOptions options_;
  const ShardScript script_;
  Random random_;
  Agenda agenda_;
  std::unique_ptr<ps::ConsistencyController> controller_;
  std::unique_ptr<DenseUpdater> updater_;
  DenseUpdater::Scratch scratch_;
  std::vector<WorkerActor> workers_;
  std::map<ps::CallToken, Outstanding> outstanding_;
  ps::CallToken next_token_ = 1;
  uint32_t cutter_ = 0;  // rank of who announces and ends cuts
  uint64_t announced_ = 0;
  std::map<uint64_t, std::vector<int64_t>> cut_clocks_;
  // By block and rank: clocks kept but not applied, and clocks applied.
  std::vector<std::vector<std::set<int64_t>>> kept_;
  std::vector<std::vector<std::set<int64_t>>> applied_;
  bool closed_ = false;
  std::string broken_;
};

Simulation::Simulation(const SimulationOptions& options)
    : options_(options),
      script_(options),
      random_(SeedFor(options.seed, 2)),
      workers_(script_.worker_count()),
      kept_(script_.block_count()),
      applied_(script_.block_count()) {
  ps::ConsistencyController::Options controller;
  controller.mode = options.mode;
  controller.staleness_bound = script_.staleness();
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
      options.mode == ps::ConsistencyMode::kSync ? ShardScript::kRate : 1;
  updater.rule.clip_norm = options.mode == ps::ConsistencyMode::kSync
                               ? script_.clip_norm()
                               : 1e30 * script_.clip_norm();
  const std::vector<size_t> counts(script_.block_count(),
                                   ShardScript::kElements);
  updater_ = std::make_unique<DenseUpdater>(updater, counts);
  for (auto& ranks : kept_) ranks.resize(script_.worker_count());
  for (auto& ranks : applied_) ranks.resize(script_.worker_count());
}

std::string Simulation::Run() {
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

// --- Workers -----------------------------------------------------------------

std::vector<ps::BlockIndex> Simulation::AllBlocks() const {
  std::vector<ps::BlockIndex> all(script_.block_count());
  for (ps::BlockIndex block = 0; block < all.size(); ++block)
    all[block] = block;
  return all;
}

void Simulation::StartWorker(uint32_t rank) {
  Send(
      rank, std::nullopt, ps::PullFacts{0, AllBlocks(), 0}, [this, rank](bool) {
        agenda_.At(workers_[rank].step_time, [this, rank] { StartStep(rank); });
      });
}

void Simulation::StartStep(uint32_t rank) {
  if (random_.Below(3) == 0) {
    SendPushesThenPull(rank);
  } else {
    SendPushPulls(rank);
  }
}

// The step's blocks in 1 to 3 messages, in random order of sending.
std::vector<ps::PushFacts> Simulation::CutIntoPushes(uint32_t rank) {
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

void Simulation::SendPushPulls(uint32_t rank) {
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

void Simulation::SendPushesThenPull(uint32_t rank) {
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

void Simulation::FinishStep(uint32_t rank) {
  WorkerActor& worker = workers_[rank];
  if (++worker.clock == script_.clock_count(rank)) {
    worker.done = true;
    return;
  }
  agenda_.At(worker.step_time * (0.5 + random_.Uniform()),
             [this, rank] { StartStep(rank); });
}

// --- Network -----------------------------------------------------------------

void Simulation::Send(uint32_t rank, std::optional<ps::PushFacts> push,
                      std::optional<ps::PullFacts> pull,
                      std::function<void(bool)> done) {
  auto request = std::make_shared<Request>();
  request->rank = rank;
  request->push = std::move(push);
  request->pull = std::move(pull);
  request->done = std::move(done);
  Transmit(request);
}

void Simulation::Transmit(const RequestPtr& request) {
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

void Simulation::Arrive(const RequestPtr& request) {
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

void Simulation::ArriveZombie(uint32_t rank) {
  const ps::CallToken token = next_token_++;
  ps::ShardCall call;
  call.token = token;
  call.rank = rank;
  call.incarnation = kIncarnation - 1;
  call.deadline = agenda_.now() + absl::Seconds(10);
  call.push =
      ps::PushFacts{controller_->worker(rank).closed(), 1, 1, {0}, true, 1};
  outstanding_[token] = {nullptr, rank, call.push, std::nullopt, true};
  ps::ShardActions actions;
  controller_->OnCall(std::move(call), agenda_.now(), &actions);
  Execute(std::move(actions));
}

void Simulation::Answer(ps::CallToken token, const absl::Status& status) {
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
std::vector<int64_t> Simulation::ChooseCut() {
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
  }
  for (int64_t& clock : clocks) {
    if (options_.mode == ps::ConsistencyMode::kSync) clock = highest;
    if (options_.mode == ps::ConsistencyMode::kBoundedStaleness) {
      clock = std::max(clock, highest - script_.staleness() - 1);
    }
  }
  return clocks;
}

void Simulation::AnnounceCut(std::function<void()> then) {
  const std::vector<int64_t> clocks = ChooseCut();
  const uint64_t id = announced_ + 1;
  ps::ShardActions actions;
  const absl::Status status =
      controller_->OnBeginCut(cutter_, kIncarnation + cutter_, id, clocks,
                              absl::Seconds(40), agenda_.now(), &actions);
  if (absl::IsFailedPrecondition(status) || closed_) {
    // One that was forgotten is still held.
    if (!AllDone()) agenda_.At(10, [this, then] { AnnounceCut(then); });
    return;
  }
  if (!status.ok()) return Broken(absl::StrCat("BeginCut: ", status.message()));
  announced_ = id;
  cut_clocks_[id] = clocks;
  Execute(std::move(actions));
  agenda_.At(random_.Uniform() * 5, [this, id] { ReadCut(id); });
  then();
}

void Simulation::ReadCut(uint64_t cut_id) {
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

void Simulation::EndCut(uint64_t cut_id) {
  for (int i = random_.Below(5) == 0 ? 2 : 1; i > 0; --i) {
    ps::ShardActions actions;
    const absl::Status status = controller_->OnEndCut(
        cutter_, kIncarnation + cutter_, cut_id, agenda_.now(), &actions);
    if (!status.ok() && !closed_ && !absl::IsFailedPrecondition(status)) {
      Broken(absl::StrCat("EndCut: ", status.message()));
    }
    Execute(std::move(actions));
  }
}

// --- Shell -------------------------------------------------------------------

void Simulation::Initialise() {
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

void Simulation::Tick() {
  ps::ShardActions actions;
  controller_->OnTick(agenda_.now(), &actions);
  Execute(std::move(actions));
  if (!AllDone() || !outstanding_.empty()) {
    agenda_.At(1, [this] { Tick(); });
  }
}

void Simulation::CloseJob() {
  closed_ = true;
  ps::ShardActions actions;
  controller_->Close(absl::CancelledError("the job was closed"), &actions);
  Execute(std::move(actions));
  if (!outstanding_.empty()) Broken("a call survived the job");
}

void Simulation::Execute(ps::ShardActions actions) {
  for (const ps::ShardAction& action : actions) {
    if (!broken_.empty()) return;
    ExecuteOne(action);
  }
  CheckNobodyWaitsInVain();
}

void Simulation::ExecuteOne(const ps::ShardAction& action) {
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
    case Kind::kSendNorms: {
      // Late, and sometimes again: the other shards are slow.
      for (int i = random_.Below(4) == 0 ? 2 : 1; i > 0; --i) {
        agenda_.At(random_.Uniform() * 4, [this, clock = action.clock] {
          ps::ShardActions actions;
          controller_->OnReduced({clock}, script_.sync_squared_norm(clock),
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

std::shared_ptr<const FloatSource> Simulation::Gradient(
    const Outstanding& call, ps::BlockIndex block) const {
  return std::make_shared<VectorFloats>(
      script_.gradient(call.rank, call.push->clock, block));
}

// --- Checks ------------------------------------------------------------------

void Simulation::CheckDeliver(const ps::ShardAction& action) {
  const Outstanding& call = outstanding_[action.token];
  if (closed_) return Broken("delivered after the job was closed");
  if (call.zombie) return Broken("a zombie's gradient was delivered");
  if (call.push->blocks[action.position] != action.block ||
      call.push->clock != action.clock || call.rank != action.rank) {
    return Broken("an action contradicts its call");
  }
  if (!kept_[action.block][action.rank].insert(action.clock).second ||
      applied_[action.block][action.rank].count(action.clock) > 0) {
    Broken(absl::StrCat("delivered twice: rank ", action.rank, " clock ",
                        action.clock, " block ", action.block));
  }
}

void Simulation::CheckApply(const ps::ShardAction& action) {
  uint64_t samples = 0;
  for (uint32_t rank = 0; rank < script_.worker_count(); ++rank) {
    std::set<int64_t>& kept = kept_[action.block][rank];
    if (options_.mode == ps::ConsistencyMode::kSync) {
      samples += script_.samples(rank, action.clock);
      if (script_.sends(rank, action.clock, action.block) !=
          (kept.count(action.clock) > 0)) {
        Broken(absl::StrCat("clock ", action.clock, " of block ", action.block,
                            " was applied with the wrong workers"));
      }
    } else if (!kept.empty()) {
      samples += script_.samples(rank, action.clock);
    }
    for (const int64_t clock : kept) {
      if (clock != action.clock) Broken("applied with another clock's");
      applied_[action.block][rank].insert(clock);
    }
    kept.clear();
  }
  if (samples != action.sample_count) Broken("divided by a wrong count");
}

void Simulation::CheckRead(const Outstanding& call) {
  for (const ps::BlockIndex block : call.pull->blocks) {
    if (call.pull->cut_id != 0) {
      CheckCutState(*call.pull, block);
      continue;
    }
    CheckBlockIsFresh(call, block);
    if (options_.mode == ps::ConsistencyMode::kSync) {
      CheckSyncValue(*call.pull, block);
    }
  }
}

void Simulation::CheckBlockIsFresh(const Outstanding& call,
                                   ps::BlockIndex block) {
  for (uint32_t rank = 0; rank < script_.worker_count(); ++rank) {
    int64_t needed = call.pull->clock;
    if (rank != call.rank) {
      if (options_.mode == ps::ConsistencyMode::kAsync) needed = 0;
      if (options_.mode == ps::ConsistencyMode::kBoundedStaleness) {
        needed -= script_.staleness();
      }
    }
    needed = std::min(needed, script_.clock_count(rank));
    for (int64_t clock = 0; clock < needed; ++clock) {
      if (script_.sends(rank, clock, block) &&
          applied_[block][rank].count(clock) == 0) {
        Broken(absl::StrCat("rank ", call.rank, " read block ", block,
                            " at clock ", call.pull->clock, " without clock ",
                            clock, " of rank ", rank));
      }
    }
  }
}

void Simulation::CheckSyncValue(const ps::PullFacts& pull,
                                ps::BlockIndex block) {
  const absl::Span<const float> value = updater_->values(block);
  // Only a late duplicate, whose worker has gone on, may see a later version.
  for (int64_t version = pull.clock; version <= script_.clock_count(0);
       ++version) {
    const std::vector<float>& folded = script_.folded(block, version);
    if (std::equal(value.begin(), value.end(), folded.begin())) return;
  }
  Broken(absl::StrCat("block ", block, " read at clock ", pull.clock,
                      " is not the serial fold"));
}

void Simulation::CheckCutState(const ps::PullFacts& pull,
                               ps::BlockIndex block) {
  const std::vector<int64_t>& cut = cut_clocks_[pull.cut_id];
  for (uint32_t rank = 0; rank < script_.worker_count(); ++rank) {
    for (int64_t clock = 0; clock < script_.clock_count(rank); ++clock) {
      const bool expected =
          clock < cut[rank] && script_.sends(rank, clock, block);
      if (expected != (applied_[block][rank].count(clock) > 0)) {
        Broken(absl::StrCat("cut ", pull.cut_id, ": clock ", clock, " of rank ",
                            rank, " and block ", block,
                            expected ? " is missing" : " is too much"));
      }
    }
  }
}

bool Simulation::MayReadWholeShard(uint32_t rank, int64_t clock) const {
  for (uint32_t other = 0; other < script_.worker_count(); ++other) {
    const ps::PushLedger& worker = controller_->worker(other);
    if (worker.finished()) continue;
    int64_t needed = clock;
    if (other != rank) {
      if (options_.mode == ps::ConsistencyMode::kAsync) continue;
      if (options_.mode == ps::ConsistencyMode::kBoundedStaleness) {
        needed -= script_.staleness();
      }
    }
    if (worker.closed() < needed) return false;
  }
  return true;
}

void Simulation::CheckNobodyWaitsInVain() {
  if (closed_ || controller_->initialised_count() < script_.block_count() ||
      (options_.mode == ps::ConsistencyMode::kSync && options_.clip_norm)) {
    return;
  }
  for (const auto& [token, call] : outstanding_) {
    const ps::PushLedger& worker = controller_->worker(call.rank);
    const bool pushed =
        !call.push.has_value() || call.push->clock < worker.closed();
    if (pushed && call.pull.has_value() && call.pull->cut_id == 0 &&
        MayReadWholeShard(call.rank, call.pull->clock)) {
      Broken(absl::StrCat("rank ", call.rank, " waits in vain at clock ",
                          call.pull->clock));
    }
    if (!options_.cuts && call.push.has_value() && !call.pull.has_value() &&
        (options_.mode == ps::ConsistencyMode::kSync
             ? MayReadWholeShard(call.rank, call.push->clock)
             : call.push->clock <= worker.closed())) {
      Broken(
          absl::StrCat("a push of clock ", call.push->clock, " waits in vain"));
    }
  }
}

bool Simulation::AllDone() const {
  return closed_ || std::all_of(workers_.begin(), workers_.end(),
                                [](const WorkerActor& w) { return w.done; });
}

void Simulation::CheckEnd() {
  if (!outstanding_.empty()) return Broken("a call never ended");
  if (controller_->parked_pulls() + controller_->parked_pushes() > 0) {
    return Broken("a call is still parked");
  }
  if (closed_) return;
  if (!AllDone()) return Broken("a worker never got through its script");
  for (ps::BlockIndex block = 0; block < script_.block_count(); ++block) {
    std::vector<float> expected = script_.initial(block);
    for (uint32_t rank = 0; rank < script_.worker_count(); ++rank) {
      for (int64_t clock = 0; clock < script_.clock_count(rank); ++clock) {
        const bool sent = script_.sends(rank, clock, block);
        if (sent != (applied_[block][rank].count(clock) > 0)) {
          Broken(absl::StrCat(sent ? "lost" : "invented", ": rank ", rank,
                              " clock ", clock, " block ", block));
        }
        if (!sent) continue;
        const std::vector<float> g = script_.gradient(rank, clock, block);
        for (size_t i = 0; i < expected.size(); ++i) {
          expected[i] -=
              g[i] / static_cast<float>(script_.samples(rank, clock));
        }
      }
    }
    if (options_.mode == ps::ConsistencyMode::kSync) {
      expected = script_.folded(block, script_.clock_count(0));
    }
    const absl::Span<const float> value = updater_->values(block);
    if (!std::equal(value.begin(), value.end(), expected.begin())) {
      Broken(absl::StrCat("block ", block, " has a wrong final value"));
    }
  }
}

}  // namespace

std::string SimulateShard(const SimulationOptions& options) {
  return Simulation(options).Run();
}

}  // namespace syncline

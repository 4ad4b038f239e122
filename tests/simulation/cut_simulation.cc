#include "tests/simulation/cut_simulation.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/busy.h"
#include "common/base/random.h"
#include "common/cuts/cut_coordinator.h"
#include "server/consistency/consistency_controller.h"
#include "tests/simulation/shard_history.h"

namespace syncline {
namespace {

constexpr int kEventsMax = 200000;
constexpr uint64_t kIncarnation = 1000;  // of rank r: kIncarnation + r
constexpr absl::Duration kLongHold = absl::Hours(10);
constexpr absl::Duration kShortHold = absl::Seconds(8);

// The gradients that a shard has applied: (rank, clock). It has one block, to
// which each worker sends a gradient in each of its steps.
using State = std::set<std::pair<uint32_t, int64_t>>;

class CutHistory {
 public:
  explicit CutHistory(const CutSimulationOptions& options);
  CutSimulationResult Run();

 private:
  struct Cut {
    std::vector<int64_t> clocks;  // as the shard was told
    bool has_snapshot = false;
  };
  struct Shard {
    std::unique_ptr<ps::ConsistencyController> controller;
    State buffered;
    State applied;
    std::map<uint64_t, Cut> cuts;
  };
  // A call to a shard, repeated until it has an answer.
  struct Request {
    uint32_t shard = 0;
    uint32_t rank = 0;
    std::optional<ps::PushFacts> push = {};
    std::optional<ps::PullFacts> pull = {};
    std::function<void(const absl::Status&)> done = {};
    bool is_done = false;
  };
  using RequestPtr = std::shared_ptr<Request>;
  struct Worker {
    int64_t clock = 0;
    uint32_t pending = 0;
    double step_time = 1;
  };
  struct Wish {
    CutRequest request;
    uint64_t first_id = 0;
    uint64_t id = 0;              // once agreed upon
    std::vector<int64_t> clocks;  // likewise
    uint32_t unread = 0;
    bool lingers = false;    // longer than it is held
    bool is_ending = false;  // let go, perhaps before it was passed
    bool is_over = false;
  };
  struct Member {
    uint32_t rank = 0;
    std::unique_ptr<CutCoordinator> coordinator;
    std::map<uint64_t, Wish> wishes;  // by name
    uint64_t last_id = 0;
  };

  double Delay() {
    return random_.Uniform() * (random_.Below(12) == 0 ? 40 : 1.5);
  }
  // Carries `deliver` over the network: late, twice, or not at all.
  void Carry(const std::function<void()>& deliver);

  // Workers.
  void Send(Request request);
  void Transmit(const RequestPtr& request);
  void Arrive(const RequestPtr& request);
  void Answer(ps::CallToken token, const absl::Status& status);
  void StartWorker(uint32_t rank);
  void StartStep(uint32_t rank);

  // Members that want cuts.
  void Ask(uint32_t member, uint64_t name);
  void CarryOut(uint32_t member);
  void Begin(uint32_t member, const CutAction& action);
  void End(uint32_t member, const CutAction& action);
  void OnAgreed(uint32_t member, const CutAction& action);
  void Read(uint32_t member, uint64_t name, uint32_t shard);
  void OnRead(uint32_t member, uint64_t name, const absl::Status& status);
  void OnGone(uint32_t member, const CutAction& action);

  // Shards.
  void Execute(uint32_t shard, const ps::ShardActions& actions);
  void CheckState(uint32_t shard, uint64_t cut_id);
  void Tick();
  bool AllDone() const;
  void CheckEnd();
  void Broken(const std::string& rule) {
    if (result_.broken.empty()) result_.broken = rule;
  }

  const CutSimulationOptions options_;
  Random random_;
  Agenda agenda_;
  int64_t staleness_ = 0;
  int64_t steps_ = 0;  // of each worker
  std::vector<Shard> shards_;
  std::vector<Worker> workers_;
  std::vector<Member> members_;
  std::map<ps::CallToken, RequestPtr> calls_;
  ps::CallToken next_token_ = 1;
  std::vector<CutActions> actions_;  // by member
  CutSimulationResult result_;
};

CutHistory::CutHistory(const CutSimulationOptions& options)
    : options_(options), random_(SeedFor(options.seed, 3)) {
  workers_.resize(1 + random_.Below(4));
  shards_.resize(1 + random_.Below(3));
  members_.resize(1 + random_.Below(2));
  actions_.resize(members_.size());
  staleness_ = random_.Below(4);
  steps_ = 5 + random_.Below(25);
  ps::ConsistencyController::Options controller;
  TrainingRegime regime = {.mode = options.mode};
  if (options.mode == ConsistencyMode::kBoundedStaleness) {
    regime.staleness_bound = staleness_;
  }
  controller.regimes = RegimeSchedule(regime);
  controller.clip_norm = regime.sync() && random_.Below(2) == 0;
  controller.block_count = 1;
  controller.label = "simulated shard";
  const auto workers = static_cast<uint32_t>(workers_.size());
  for (uint32_t rank = 0; rank < workers; ++rank) {
    controller.workers.push_back(
        {kIncarnation + rank, absl::StrCat("worker:", rank)});
    workers_[rank].step_time =
        0.2 + random_.Uniform() * (random_.Below(3) == 0 ? 6 : 1);
  }
  controller.evaluator = {kIncarnation + workers, "evaluator"};
  CutCoordinator::Options coordinator;
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    shards_[shard].controller =
        std::make_unique<ps::ConsistencyController>(controller);
    coordinator.shards.push_back(absl::StrCat("ps:", shard));
  }
  coordinator.spread = controller.regimes.CutSpread();
  coordinator.resend_after = absl::Seconds(5);
  for (size_t m = 0; m < members_.size(); ++m) {
    members_[m].rank = m == 0 ? 0 : workers;  // the chief, the evaluator
    coordinator.series = m == 0 ? CutSeries::kChief : CutSeries::kEvaluator;
    members_[m].coordinator = std::make_unique<CutCoordinator>(coordinator);
  }
}

CutSimulationResult CutHistory::Run() {
  for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
    agenda_.At(random_.Uniform() * 5, [this, shard] {
      ps::ShardActions actions;
      shards_[shard].controller->OnInit(next_token_++, 0, kIncarnation, {0},
                                        agenda_.now(), &actions);
      Execute(shard, actions);
    });
  }
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) StartWorker(rank);
  for (uint32_t m = 0; m < members_.size(); ++m) {
    const uint64_t wishes = 1 + random_.Below(4);
    for (uint64_t name = 1; name <= wishes; ++name) {
      members_[m].wishes[name] = {};
      agenda_.At(random_.Uniform() * 60, [this, m, name] { Ask(m, name); });
    }
  }
  agenda_.At(1, [this] { Tick(); });
  int events = 0;
  while (result_.broken.empty() && agenda_.RunNext()) {
    if (++events > kEventsMax) Broken("the job does not come to an end");
  }
  if (result_.broken.empty()) CheckEnd();
  return result_;
}

void CutHistory::Carry(const std::function<void()>& deliver) {
  if (random_.Below(8) == 0) return;
  for (int copies = random_.Below(6) == 0 ? 2 : 1; copies > 0; --copies) {
    agenda_.At(Delay(), deliver);
  }
}

// --- Workers -----------------------------------------------------------------

void CutHistory::Send(Request request) {
  Transmit(std::make_shared<Request>(std::move(request)));
}

void CutHistory::Transmit(const RequestPtr& request) {
  if (request->is_done) return;
  Carry([this, request] { Arrive(request); });
  agenda_.At(10 + random_.Uniform() * 10,
             [this, request] { Transmit(request); });
}

void CutHistory::Arrive(const RequestPtr& request) {
  ps::ShardCall call;
  call.token = next_token_++;
  call.rank = request->rank;
  call.incarnation = kIncarnation + request->rank;
  call.deadline = agenda_.now() + absl::Seconds(3 + random_.Uniform() * 30);
  call.push = request->push;
  call.pull = request->pull;
  calls_[call.token] = request;
  ps::ShardActions actions;
  shards_[request->shard].controller->OnCall(std::move(call), agenda_.now(),
                                             &actions);
  Execute(request->shard, actions);
}

void CutHistory::Answer(ps::CallToken token, const absl::Status& status) {
  const auto found = calls_.find(token);
  if (found == calls_.end()) return;  // an Init
  const RequestPtr request = found->second;
  calls_.erase(found);
  if (absl::IsDeadlineExceeded(status)) return;  // Transmit repeats it
  Carry([request, status] {
    if (!std::exchange(request->is_done, true)) request->done(status);
  });
}

void CutHistory::StartWorker(uint32_t rank) {
  workers_[rank].pending = static_cast<uint32_t>(shards_.size());
  for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
    Send({.shard = shard,
          .rank = rank,
          .pull = ps::PullFacts{0, {0}, 0},
          .done = [this, rank](const absl::Status& status) {
            if (!status.ok()) return Broken(std::string(status.message()));
            if (--workers_[rank].pending == 0) StartStep(rank);
          }});
  }
}

void CutHistory::StartStep(uint32_t rank) {
  Worker& worker = workers_[rank];
  worker.pending = static_cast<uint32_t>(shards_.size());
  ps::PushFacts push;
  push.clock = worker.clock;
  push.sample_count = 1;
  push.blocks_in_clock = 1;
  push.blocks = {0};
  push.finished = worker.clock + 1 == steps_;
  for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
    Send({.shard = shard,
          .rank = rank,
          .push = push,
          .pull = ps::PullFacts{push.clock + 1, {0}, 0},
          .done = [this, rank](const absl::Status& status) {
            if (!status.ok()) return Broken(std::string(status.message()));
            Worker& worker = workers_[rank];
            if (--worker.pending > 0 || ++worker.clock == steps_) return;
            agenda_.At(worker.step_time * (0.5 + random_.Uniform()),
                       [this, rank] { StartStep(rank); });
          }});
  }
}

// --- Members -----------------------------------------------------------------

void CutHistory::Ask(uint32_t m, uint64_t name) {
  Wish& wish = members_[m].wishes[name];
  CutRequest& request = wish.request;
  request.name = name;
  // Changes of the regime are in regime_switch_simulation.h.
  constexpr CutUse kUses[] = {CutUse::kEvaluation, CutUse::kCheckpoint,
                              CutUse::kRouting};
  request.use = kUses[random_.Below(std::size(kUses))];
  request.clocks.resize(workers_.size(), 0);
  if (random_.Below(3) > 0) {
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
      request.clocks[rank] = std::max<int64_t>(
          0, workers_[rank].clock + static_cast<int64_t>(random_.Below(9)) - 4);
    }
  }
  if (random_.Below(4) == 0) request.period = 1 + random_.Below(4);
  wish.lingers = random_.Below(6) == 0;
  request.hold = wish.lingers ? kShortHold : kLongHold;
  request.deadline = agenda_.now() + absl::Hours(1);
  const absl::Status taken =
      members_[m].coordinator->Request(request, agenda_.now(), &actions_[m]);
  if (!taken.ok()) return Broken(std::string(taken.message()));
  CarryOut(m);
}

void CutHistory::CarryOut(uint32_t m) {
  const CutActions actions = std::exchange(actions_[m], {});
  for (const CutAction& action : actions) {
    switch (action.kind) {
      case CutAction::Kind::kBegin: {
        uint64_t& first = members_[m].wishes[action.name].first_id;
        if (first == 0) first = action.cut_id;
        Carry([this, m, action] { Begin(m, action); });
        break;
      }
      case CutAction::Kind::kEnd:
        Carry([this, m, action] { End(m, action); });
        break;
      case CutAction::Kind::kAgreed:
        OnAgreed(m, action);
        break;
      case CutAction::Kind::kFailed:
        Broken(std::string(action.status.message()));
        break;
      case CutAction::Kind::kEnded:
        OnGone(m, action);
        break;
    }
  }
}

void CutHistory::Begin(uint32_t m, const CutAction& action) {
  Shard& shard = shards_[action.shard];
  const auto [cut, is_new] =
      shard.cuts.try_emplace(action.cut_id, Cut{action.clocks});
  if (cut->second.clocks != action.clocks) Broken("an id has two cuts");
  const uint32_t rank = members_[m].rank;
  CutAnswer answer;
  ps::ShardActions actions;
  answer.status = shard.controller->OnBeginCut(
      rank, kIncarnation + rank, action.cut_id, action.clocks, action.hold,
      agenda_.now(), &actions, action.use);
  const absl::Span<const int64_t> smallest = shard.controller->smallest_cut();
  if (!answer.status.ok() && !smallest.empty()) {
    answer.smallest.emplace(smallest.begin(), smallest.end());
  }
  Execute(action.shard, actions);
  Carry([this, m, action, answer] {
    members_[m].coordinator->OnBegun(action.shard, action.cut_id, answer,
                                     agenda_.now(), &actions_[m]);
    CarryOut(m);
  });
}

void CutHistory::End(uint32_t m, const CutAction& action) {
  const uint32_t rank = members_[m].rank;
  ps::ShardActions actions;
  const absl::Status status = shards_[action.shard].controller->OnEndCut(
      rank, kIncarnation + rank, action.cut_id, agenda_.now(), &actions);
  Execute(action.shard, actions);
  // A client repeats what a shard is too busy for.
  if (IsBusy(status)) {
    agenda_.At(random_.Uniform() * 5, [this, m, action] { End(m, action); });
    return;
  }
  Carry([this, m, action, status] {
    members_[m].coordinator->OnEnded(action.shard, action.cut_id, status,
                                     agenda_.now(), &actions_[m]);
    CarryOut(m);
  });
}

void CutHistory::OnAgreed(uint32_t m, const CutAction& action) {
  Member& member = members_[m];
  Wish& wish = member.wishes[action.name];
  wish.id = action.cut_id;
  wish.clocks = action.clocks;
  ++result_.agreed;
  if (wish.id != wish.first_id) ++result_.raised;
  if (wish.id <= member.last_id) Broken("ids are not in order");
  for (const auto& [name, other_wish] : member.wishes) {
    const std::vector<int64_t>& other = other_wish.clocks;
    if (other.empty() || other_wish.is_ending) continue;
    bool before = false;
    bool behind = false;
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
      before |= wish.clocks[rank] < other[rank];
      behind |= wish.clocks[rank] > other[rank];
    }
    if (before && behind) Broken("cuts cross");
  }
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    if (wish.clocks[rank] < wish.request.clocks[rank]) {
      Broken("a cut is before the clocks that were asked for");
    }
    if (wish.clocks[rank] % wish.request.period != 0) {
      Broken("a cut is not at an epoch's end");
    }
  }
  member.last_id = wish.id;
  wish.unread = static_cast<uint32_t>(shards_.size());
  for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
    if (shards_[shard].cuts[wish.id].clocks != wish.clocks) {
      Broken("shards are cut at different clocks");
    }
    Read(m, action.name, shard);
  }
}

void CutHistory::Read(uint32_t m, uint64_t name, uint32_t shard) {
  Send({.shard = shard,
        .rank = members_[m].rank,
        .pull = ps::PullFacts{0, {0}, members_[m].wishes[name].id},
        .done = [this, m, name](const absl::Status& status) {
          OnRead(m, name, status);
        }});
}

void CutHistory::OnRead(uint32_t m, uint64_t name, const absl::Status& status) {
  Wish& wish = members_[m].wishes[name];
  if (wish.is_over) return;
  if (!status.ok()) {
    // Given up by the shard, or ended by the member, for another shard's sake.
    wish.is_ending = true;
    members_[m].coordinator->OnLost(name, status, agenda_.now(), &actions_[m]);
    return CarryOut(m);
  }
  if (--wish.unread > 0) return;
  const double hold = wish.lingers ? 20 : random_.Uniform() * 5;
  agenda_.At(hold, [this, m, name] {
    members_[m].wishes[name].is_ending = true;
    members_[m].coordinator->End(name, agenda_.now(), &actions_[m]);
    CarryOut(m);
  });
}

void CutHistory::OnGone(uint32_t m, const CutAction& action) {
  Wish& wish = members_[m].wishes[action.name];
  wish.is_over = true;
  if (!action.status.ok()) {
    ++result_.given_up;
    if (!wish.lingers) Broken(std::string(action.status.message()));
    return;
  }
  if (!TakesSnapshot(wish.request.use)) return;
  for (Shard& shard : shards_) {
    if (!shard.cuts[wish.id].has_snapshot) Broken("a shard took no snapshot");
  }
}

// --- Shards ------------------------------------------------------------------

void CutHistory::Execute(uint32_t s, const ps::ShardActions& actions) {
  using Kind = ps::ShardAction::Kind;
  Shard& shard = shards_[s];
  for (const ps::ShardAction& action : actions) {
    switch (action.kind) {
      case Kind::kBufferGradient:
        if (!shard.buffered.insert({action.rank, action.clock}).second ||
            shard.applied.count({action.rank, action.clock}) > 0) {
          Broken("a gradient counts twice");
        }
        break;
      case Kind::kApply:
        shard.applied.merge(shard.buffered);
        shard.buffered.clear();
        break;
      case Kind::kSendNorms:
        agenda_.At(random_.Uniform() * 2, [this, s, clock = action.clock] {
          ps::ShardActions reduced;
          shards_[s].controller->OnReduced({clock}, 1, agenda_.now(), &reduced);
          Execute(s, reduced);
        });
        break;
      case Kind::kSnapshot: {
        Cut& cut = shard.cuts[action.cut_id];
        if (std::exchange(cut.has_snapshot, true)) Broken("two snapshots");
        if (cut.clocks != action.cut_clocks) Broken("a snapshot elsewhere");
        CheckState(s, action.cut_id);
        break;
      }
      case Kind::kRead:
        if (const auto call = calls_.find(action.token);
            call != calls_.end() && call->second->pull->cut_id != 0) {
          CheckState(s, call->second->pull->cut_id);
        }
        Answer(action.token, absl::OkStatus());
        break;
      case Kind::kAck:
        Answer(action.token, absl::OkStatus());
        break;
      case Kind::kFail:
        Answer(action.token, action.status);
        break;
      default:
        break;
    }
  }
}

void CutHistory::CheckState(uint32_t s, uint64_t cut_id) {
  const Shard& shard = shards_[s];
  const std::vector<int64_t>& clocks = shard.cuts.at(cut_id).clocks;
  State expected;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    for (int64_t clock = 0; clock < std::min(clocks[rank], steps_); ++clock) {
      expected.insert({rank, clock});
    }
  }
  if (shard.applied == expected) return;
  Broken(absl::StrCat("ps:", s, " at the cut of clocks ",
                      absl::StrJoin(clocks, ","), " has ", shard.applied.size(),
                      " pushes of ", expected.size()));
}

void CutHistory::Tick() {
  for (uint32_t s = 0; s < shards_.size(); ++s) {
    ps::ShardActions actions;
    shards_[s].controller->OnTick(agenda_.now(), &actions);
    Execute(s, actions);
  }
  for (uint32_t m = 0; m < members_.size(); ++m) {
    members_[m].coordinator->OnTick(agenda_.now(), &actions_[m]);
    CarryOut(m);
  }
  if (!AllDone() || !calls_.empty()) agenda_.At(1, [this] { Tick(); });
}

bool CutHistory::AllDone() const {
  for (const Worker& worker : workers_) {
    if (worker.clock < steps_) return false;
  }
  for (const Member& member : members_) {
    if (!member.coordinator->idle()) return false;
    for (const auto& [name, wish] : member.wishes) {
      if (!wish.is_over) return false;
    }
  }
  return true;
}

void CutHistory::CheckEnd() {
  if (!AllDone()) return Broken("a worker or a member never came to its end");
  for (Shard& shard : shards_) {
    if (shard.applied.size() != workers_.size() * steps_) {
      Broken("pushes are missing at the end");
    }
    // Nothing is left announced: there is room for two.
    for (const uint64_t id : {~uint64_t{1}, ~uint64_t{0}}) {
      ps::ShardActions actions;
      const absl::Status status = shard.controller->OnBeginCut(
          0, kIncarnation, id, std::vector<int64_t>(workers_.size(), 1000),
          kShortHold, agenda_.now(), &actions);
      if (!status.ok()) Broken(std::string(status.message()));
    }
  }
}

}  // namespace

CutSimulationResult SimulateCuts(const CutSimulationOptions& options) {
  return CutHistory(options).Run();
}

}  // namespace syncline

#include "tests/simulation/regime_switch_simulation.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/random.h"
#include "common/cuts/cut_coordinator.h"
#include "common/regime/regime_schedule.h"
#include "server/consistency/consistency_controller.h"
#include "tests/simulation/shard_history.h"

namespace syncline {
namespace {

constexpr int kEventsMax = 200000;
constexpr uint64_t kIncarnation = 1000;  // of rank r: kIncarnation + r
constexpr absl::Duration kHold = absl::Hours(10);
constexpr uint64_t kFirstName = 1;

class SwitchHistory {
 public:
  explicit SwitchHistory(uint64_t seed);
  RegimeSwitchResult Run();

 private:
  using Done = std::function<void()>;
  struct Shard {
    std::unique_ptr<ps::ConsistencyController> controller;
    std::vector<std::pair<uint32_t, int64_t>> buffered;
    std::set<std::pair<uint32_t, int64_t>> applied;
    std::vector<int64_t> counts;  // by rank: clocks applied
    // By cut: the regime that it was announced with.
  };
  // A call to a shard, repeated until it has an answer.
  struct Request {
    uint32_t shard = 0;
    uint32_t rank = 0;
    std::optional<ps::PushFacts> push = {};
    std::optional<ps::PullFacts> pull = {};
    TrainingRegime regime = {};  // by which the push was computed
    Done done = {};
    bool is_done = false;
    // Of the answer.
    std::vector<int64_t> counts = {};
    uint32_t regimes = 0;
  };
  using RequestPtr = std::shared_ptr<Request>;
  struct Worker {
    int64_t clock = 0;
    double step_time = 1;
    uint32_t pending = 0;
    RegimeSchedule regimes;
    uint32_t told = 0;  // regimes, by the shards
    // By shard: what the values of its next step have.
    std::vector<std::vector<int64_t>> values;
    bool finished = false;
  };
  // A cut that the chief or the evaluator wants, one at a time for each.
  struct Wish {
    uint64_t name = 0;
    TrainingRegime regime;
    bool agreed = false;
    std::vector<int64_t> clocks;
    bool gives_up = false;
    bool committing = false;
    Done then;  // what goes on when it is agreed upon, or over
  };

  void Carry(const std::function<void()>& deliver);
  void Send(Request request);
  void Transmit(const RequestPtr& request);
  void Arrive(const RequestPtr& request);
  void Answer(ps::CallToken token, bool is_read);
  // One call to each shard, then `done`.
  void CallAll(uint32_t rank, const std::function<void(Request*)>& fill,
               Done done);
  void Execute(uint32_t shard, const ps::ShardActions& actions);
  void Apply(uint32_t shard, uint32_t rank, int64_t clock);

  // Workers.
  void Read(uint32_t rank, int64_t clock, Done done);
  void BeforeStep(uint32_t rank);
  void Step(uint32_t rank);
  void AfterStep(uint32_t rank);
  void Follow(uint32_t rank, Done done);
  void CheckValues(uint32_t rank);

  // Cuts. `member`: 0: the chief, 1: the evaluator.
  void CarryOut(int member);
  void Begin(int member, const CutAction& action);
  void End(int member, const CutAction& action);
  TrainingRegime NextRegime();
  void ChiefBegins();
  void EvaluatorBegins();
  void Tick();
  void CheckEnd();
  void Broken(const std::string& rule) {
    if (result_.broken.empty()) result_.broken = rule;
  }
  uint32_t worker_count() const {
    return static_cast<uint32_t>(workers_.size());
  }

  Random random_;
  Agenda agenda_;
  int64_t steps_ = 0;
  int wishes_left_ = 0;
  int cuts_left_ = 0;
  uint64_t next_name_ = kFirstName;
  std::vector<Shard> shards_;
  std::vector<Worker> workers_;
  std::unique_ptr<CutCoordinator> coordinators_[2];
  CutActions actions_[2];
  std::optional<Wish> wish_[2];
  std::map<ps::CallToken, RequestPtr> calls_;
  ps::CallToken next_token_ = 1;
  RegimeSwitchResult result_;
};

TrainingRegime RandomMode(Random* random) {
  TrainingRegime regime;
  regime.mode = static_cast<ConsistencyMode>(random->Below(3));
  if (regime.mode == ConsistencyMode::kBoundedStaleness) {
    regime.staleness_bound = static_cast<int64_t>(random->Below(4));
  }
  return regime;
}

SwitchHistory::SwitchHistory(uint64_t seed) : random_(SeedFor(seed, 7)) {
  workers_.resize(1 + random_.Below(4));
  shards_.resize(1 + random_.Below(3));
  steps_ = 6 + static_cast<int64_t>(random_.Below(30));
  wishes_left_ = 1 + static_cast<int>(random_.Below(5));
  cuts_left_ = static_cast<int>(random_.Below(4));
  ps::ConsistencyController::Options options;
  options.regimes = RegimeSchedule(RandomMode(&random_));
  options.block_count = 1;
  options.label = "simulated shard";
  for (uint32_t rank = 0; rank < worker_count(); ++rank) {
    options.workers.push_back(
        {kIncarnation + rank, absl::StrCat("worker:", rank)});
    workers_[rank].step_time =
        0.2 + random_.Uniform() * (random_.Below(3) == 0 ? 8 : 1);
    workers_[rank].regimes = options.regimes;
    workers_[rank].values.resize(shards_.size());
  }
  options.evaluator = {kIncarnation + worker_count(), "evaluator"};
  CutCoordinator::Options coordinator;
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    shards_[shard].controller =
        std::make_unique<ps::ConsistencyController>(options);
    shards_[shard].counts.assign(workers_.size(), 0);
    coordinator.shards.push_back(absl::StrCat("ps:", shard));
  }
  coordinator.spread = options.regimes.CutSpread();
  coordinator.resend_after = absl::Seconds(5);
  for (int member = 0; member < 2; ++member) {
    coordinator.series =
        member == 0 ? CutSeries::kChief : CutSeries::kEvaluator;
    coordinators_[member] = std::make_unique<CutCoordinator>(coordinator);
  }
}

RegimeSwitchResult SwitchHistory::Run() {
  for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
    ps::ShardActions actions;
    shards_[shard].controller->OnInit(next_token_++, 0, kIncarnation, {0},
                                      agenda_.now(), &actions);
  }
  for (uint32_t rank = 0; rank < worker_count(); ++rank) {
    Read(rank, 0, [this, rank] { BeforeStep(rank); });
  }
  agenda_.At(random_.Uniform() * 20, [this] { EvaluatorBegins(); });
  agenda_.At(1, [this] { Tick(); });
  int events = 0;
  while (result_.broken.empty() && agenda_.RunNext()) {
    if (++events > kEventsMax) Broken("the job does not come to an end");
  }
  if (result_.broken.empty()) CheckEnd();
  return result_;
}

// --- The network -------------------------------------------------------------

void SwitchHistory::Carry(const std::function<void()>& deliver) {
  if (random_.Below(10) == 0) return;
  for (int copies = random_.Below(6) == 0 ? 2 : 1; copies > 0; --copies) {
    agenda_.At(random_.Uniform() * (random_.Below(12) == 0 ? 30 : 1), deliver);
  }
}

void SwitchHistory::Send(Request request) {
  Transmit(std::make_shared<Request>(std::move(request)));
}

void SwitchHistory::Transmit(const RequestPtr& request) {
  if (request->is_done) return;
  Carry([this, request] { Arrive(request); });
  agenda_.At(8 + random_.Uniform() * 8, [this, request] { Transmit(request); });
}

void SwitchHistory::Arrive(const RequestPtr& request) {
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

void SwitchHistory::Answer(ps::CallToken token, bool is_read) {
  const auto found = calls_.find(token);
  if (found == calls_.end()) return;
  const RequestPtr request = found->second;
  calls_.erase(found);
  const Shard& shard = shards_[request->shard];
  std::vector<int64_t> counts = shard.counts;
  const uint32_t regimes =
      is_read && request->pull.has_value()
          ? shard.controller->RegimesAt(request->rank, request->pull->clock)
          : 0;
  Carry([this, request, counts, regimes] {
    if (std::exchange(request->is_done, true)) return;
    request->counts = counts;
    if (request->rank < worker_count()) {
      Worker& worker = workers_[request->rank];
      worker.told = std::max(worker.told, regimes);
      if (request->pull.has_value() && !request->pull->blocks.empty()) {
        worker.values[request->shard] = counts;
      }
    }
    request->done();
  });
}

void SwitchHistory::CallAll(uint32_t rank,
                            const std::function<void(Request*)>& fill,
                            Done done) {
  const auto left = std::make_shared<size_t>(shards_.size());
  for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
    Request request = {.shard = shard, .rank = rank};
    fill(&request);
    request.done = [left, done] {
      if (--*left == 0) done();
    };
    Send(std::move(request));
  }
}

// --- Shards ------------------------------------------------------------------

void SwitchHistory::Execute(uint32_t s, const ps::ShardActions& actions) {
  using Kind = ps::ShardAction::Kind;
  Shard& shard = shards_[s];
  for (const ps::ShardAction& action : actions) {
    switch (action.kind) {
      case Kind::kBufferGradient: {
        shard.buffered.push_back({action.rank, action.clock});
        const auto call = calls_.find(action.token);
        if (call == calls_.end()) break;
        const TrainingRegime& here =
            shard.controller->regimes().At(action.clock);
        if (!(call->second->regime == here)) {
          Broken(absl::StrCat("ps:", s, " applies clock ", action.clock,
                              " of rank ", action.rank, " by the regime from ",
                              here.first_clock,
                              ", which was computed by that "
                              "from ",
                              call->second->regime.first_clock));
        }
        break;
      }
      case Kind::kApply:
        if (shard.controller->regimes().At(action.clock).sync() &&
            shard.buffered.size() != workers_.size()) {
          Broken("SYNC applies a clock without a worker");
        }
        for (const auto& [rank, clock] : shard.buffered) Apply(s, rank, clock);
        shard.buffered.clear();
        break;
      case Kind::kRead:
        Answer(action.token, /*is_read=*/true);
        break;
      case Kind::kAck:
        Answer(action.token, /*is_read=*/false);
        break;
      case Kind::kFail:
        if (!absl::IsDeadlineExceeded(action.status)) {
          // A pull of a cut that has ended: a late copy.
          const auto call = calls_.find(action.token);
          if (call != calls_.end() && !call->second->is_done &&
              call->second->rank < worker_count()) {
            Broken(std::string(action.status.message()));
          }
        }
        calls_.erase(action.token);
        break;
      default:
        break;
    }
  }
}

void SwitchHistory::Apply(uint32_t s, uint32_t rank, int64_t clock) {
  Shard& shard = shards_[s];
  if (!shard.applied.insert({rank, clock}).second) {
    Broken(absl::StrCat("clock ", clock, " of rank ", rank, " counts twice"));
  }
  if (shard.counts[rank]++ != clock) Broken("a clock is left out");
}

// --- Workers -----------------------------------------------------------------

void SwitchHistory::Read(uint32_t rank, int64_t clock, Done done) {
  CallAll(
      rank,
      [clock](Request* request) {
        request->pull = ps::PullFacts{clock, {0}, 0};
      },
      std::move(done));
}

void SwitchHistory::BeforeStep(uint32_t rank) {
  if (rank == 0 && !wish_[0].has_value() && wishes_left_ > 0 &&
      random_.Below(3) == 0) {
    return ChiefBegins();
  }
  agenda_.At(workers_[rank].step_time * (0.5 + random_.Uniform()),
             [this, rank] { Step(rank); });
}

void SwitchHistory::CheckValues(uint32_t rank) {
  const Worker& worker = workers_[rank];
  const TrainingRegime& regime = worker.regimes.At(worker.clock);
  for (const std::vector<int64_t>& counts : worker.values) {
    for (uint32_t other = 0; other < worker_count(); ++other) {
      const bool own = other == rank;
      if (own && counts[other] < worker.clock) Broken("own steps are missing");
      if (regime.bound().has_value() &&
          counts[other] < std::min(worker.clock - *regime.bound(), steps_)) {
        Broken(absl::StrCat("step ", worker.clock, " of rank ", rank,
                            " reads clock ", counts[other], " of rank ", other,
                            ", its bound is ", *regime.bound()));
      }
      if (regime.sync() && counts[other] > worker.clock) {
        Broken("a step of SYNC reads a later one");
      }
    }
  }
}

void SwitchHistory::Step(uint32_t rank) {
  Worker& worker = workers_[rank];
  CheckValues(rank);
  const bool is_last = worker.clock + 1 == steps_;
  CallAll(
      rank,
      [&](Request* request) {
        ps::PushFacts push;
        push.clock = worker.clock;
        push.sample_count = 1;
        push.blocks_in_clock = 1;
        push.blocks = {0};
        push.finished = is_last;
        request->push = push;
        request->regime = worker.regimes.At(worker.clock);
        if (!is_last) {
          request->pull = ps::PullFacts{worker.clock + 1, {0}, 0};
        }
      },
      [this, rank] {
        ++workers_[rank].clock;
        AfterStep(rank);
      });
}

void SwitchHistory::AfterStep(uint32_t rank) {
  Worker& worker = workers_[rank];
  if (rank == 0 && wish_[0].has_value() && wish_[0]->agreed &&
      wish_[0]->clocks[0] == worker.clock) {
    Wish& wish = *wish_[0];
    const uint64_t id = coordinators_[0]->IdOf(wish.name);
    const auto end = [this] {
      Wish& at = *wish_[0];
      at.committing = !at.gives_up;
      at.then = [this] { Follow(0, [this] { BeforeStep(0); }); };
      coordinators_[0]->End(at.name, agenda_.now(), &actions_[0]);
      CarryOut(0);
    };
    // Before the others have come, or when they have.
    if (wish.gives_up && random_.Below(2) == 0) return end();
    return CallAll(
        0,
        [&](Request* request) {
          request->pull = ps::PullFacts{worker.clock, {}, id};
        },
        end);
  }
  if (worker.clock == steps_) {
    worker.finished = true;
    return;
  }
  if (rank != 0 && worker.told > worker.regimes.regimes().size()) {
    return Follow(rank, [this, rank] { BeforeStep(rank); });
  }
  BeforeStep(rank);
}

void SwitchHistory::Follow(uint32_t rank, Done done) {
  const int64_t clock = workers_[rank].clock;
  CallAll(
      rank,
      [clock](Request* request) {
        request->pull = ps::PullFacts{clock, {}, 0};
      },
      [this, rank, clock, done = std::move(done)] {
        Worker& worker = workers_[rank];
        const RegimeSchedule regimes = shards_[0].controller->regimes();
        for (const Shard& shard : shards_) {
          if (!(shard.controller->regimes() == regimes)) {
            return Broken("shards have different regimes");
          }
        }
        worker.told = 0;
        if (regimes == worker.regimes) return done();
        worker.regimes = regimes;
        if (rank == 0) coordinators_[0]->UseSpread(regimes.CutSpread());
        Read(rank, clock, done);
      });
}

// --- Cuts --------------------------------------------------------------------

TrainingRegime SwitchHistory::NextRegime() {
  TrainingRegime next = RandomMode(&random_);
  next.learning_rate_factor = 1 + random_.Uniform();  // always another one
  return next;
}

void SwitchHistory::ChiefBegins() {
  --wishes_left_;
  const Worker& chief = workers_[0];
  const bool sync = chief.regimes.At(chief.clock).sync();
  const int64_t first = chief.clock + (sync ? 2 : 1);
  const auto go_on = [this] {
    agenda_.At(workers_[0].step_time, [this] { Step(0); });
  };
  if (first >= steps_) return go_on();
  Wish& wish = *(wish_[0] = Wish());
  wish.name = next_name_++;
  wish.regime = NextRegime();
  wish.gives_up = random_.Below(4) == 0;
  wish.then = go_on;
  CutRequest request;
  request.name = wish.name;
  request.use = CutUse::kRegime;
  request.clocks.assign(workers_.size(), first);
  request.equal_clocks = true;
  request.hold = kHold;
  request.deadline = agenda_.now() + absl::Seconds(500);
  const absl::Status taken = coordinators_[0]->Request(
      std::move(request), agenda_.now(), &actions_[0]);
  if (!taken.ok()) return Broken(std::string(taken.message()));
  CarryOut(0);
}

void SwitchHistory::EvaluatorBegins() {
  if (cuts_left_-- <= 0) return;
  Wish& wish = *(wish_[1] = Wish());
  wish.name = next_name_++;
  wish.then = [this] {
    agenda_.At(random_.Uniform() * 5, [this] {
      if (!wish_[1].has_value()) return;
      wish_[1]->then = [this] {
        agenda_.At(random_.Uniform() * 30, [this] { EvaluatorBegins(); });
      };
      coordinators_[1]->End(wish_[1]->name, agenda_.now(), &actions_[1]);
      CarryOut(1);
    });
  };
  CutRequest request;
  request.name = wish.name;
  request.clocks.assign(workers_.size(), 0);
  request.hold = kHold;
  request.deadline = agenda_.now() + absl::Seconds(500);
  const absl::Status taken = coordinators_[1]->Request(
      std::move(request), agenda_.now(), &actions_[1]);
  if (!taken.ok()) return Broken(std::string(taken.message()));
  CarryOut(1);
}

void SwitchHistory::CarryOut(int member) {
  using Kind = CutAction::Kind;
  CutActions actions;
  std::swap(actions, actions_[member]);
  for (const CutAction& action : actions) {
    switch (action.kind) {
      case Kind::kBegin:
        Begin(member, action);
        break;
      case Kind::kEnd:
        End(member, action);
        break;
      case Kind::kAgreed: {
        if (!wish_[member].has_value()) break;
        Wish& wish = *wish_[member];
        wish.clocks = action.clocks;
        if (member == 0) {
          wish.regime.first_clock = action.clocks[0];
          if (action.clocks[0] >= steps_) {
            coordinators_[0]->End(wish.name, agenda_.now(), &actions_[0]);
            break;
          }
          for (const Shard& shard : shards_) {
            if (shard.counts !=
                std::vector<int64_t>(shard.counts.size(), shard.counts[0])) {
              ++result_.unequal;
              break;
            }
          }
        }
        wish.agreed = true;
        const Done then = std::move(wish.then);
        then();
        break;
      }
      case Kind::kFailed:
      case Kind::kEnded: {
        if (!wish_[member].has_value()) break;
        if (!action.status.ok() && wish_[member]->committing) {
          Broken(std::string(action.status.message()));
        }
        if (member == 0) {
          ++(wish_[0]->committing ? result_.made : result_.given_up);
        }
        const Done then = std::move(wish_[member]->then);
        wish_[member].reset();
        then();
        break;
      }
    }
  }
  if (!actions_[member].empty()) CarryOut(member);
}

void SwitchHistory::Begin(int member, const CutAction& action) {
  Carry([this, member, action] {
    std::optional<TrainingRegime> regime;
    if (action.use == CutUse::kRegime) {
      // A copy that comes after the wish is over is refused, or known.
      if (!wish_[0].has_value()) return;
      regime = wish_[0]->regime;
      regime->first_clock = action.clocks[0];
    }
    ps::ConsistencyController& controller = *shards_[action.shard].controller;
    const uint32_t rank = member == 0 ? 0 : worker_count();
    ps::ShardActions actions;
    CutAnswer answer;
    answer.status = controller.OnBeginCut(
        rank, kIncarnation + rank, action.cut_id, action.clocks, action.hold,
        agenda_.now(), &actions, action.use, regime);
    if (!answer.status.ok() && !controller.smallest_cut().empty()) {
      answer.smallest.emplace(controller.smallest_cut().begin(),
                              controller.smallest_cut().end());
    }
    Execute(action.shard, actions);
    Carry([this, member, action, answer] {
      coordinators_[member]->OnBegun(action.shard, action.cut_id, answer,
                                     agenda_.now(), &actions_[member]);
      CarryOut(member);
    });
  });
}

void SwitchHistory::End(int member, const CutAction& action) {
  const bool commit = member == 0 && wish_[0].has_value() &&
                      wish_[0]->name == action.name && wish_[0]->committing;
  Carry([this, member, action, commit] {
    Shard& shard = shards_[action.shard];
    const size_t known = shard.controller->regimes().regimes().size();
    const uint32_t rank = member == 0 ? 0 : worker_count();
    ps::ShardActions actions;
    const absl::Status status =
        shard.controller->OnEndCut(rank, kIncarnation + rank, action.cut_id,
                                   agenda_.now(), &actions, commit);
    if (!commit && shard.controller->regimes().regimes().size() != known) {
      Broken("a change that was given up is in force");
    }
    Execute(action.shard, actions);
    Carry([this, member, action, status] {
      coordinators_[member]->OnEnded(action.shard, action.cut_id, status,
                                     agenda_.now(), &actions_[member]);
      CarryOut(member);
    });
  });
}

void SwitchHistory::Tick() {
  for (uint32_t s = 0; s < shards_.size(); ++s) {
    ps::ShardActions actions;
    shards_[s].controller->OnTick(agenda_.now(), &actions);
    Execute(s, actions);
  }
  for (int member = 0; member < 2; ++member) {
    coordinators_[member]->OnTick(agenda_.now(), &actions_[member]);
    CarryOut(member);
  }
  const bool done =
      std::all_of(workers_.begin(), workers_.end(),
                  [](const Worker& worker) { return worker.finished; }) &&
      coordinators_[0]->idle() && coordinators_[1]->idle();
  if (!done) agenda_.At(1, [this] { Tick(); });
}

void SwitchHistory::CheckEnd() {
  for (const Worker& worker : workers_) {
    if (!worker.finished) return Broken("a worker never came to its end");
  }
  for (const Shard& shard : shards_) {
    if (shard.applied.size() != workers_.size() * steps_) {
      Broken("gradients are missing at the end");
    }
    if (!(shard.controller->regimes() == shards_[0].controller->regimes())) {
      Broken("shards end with different regimes");
    }
    if (static_cast<int>(shard.controller->regimes().regimes().size()) !=
        1 + result_.made) {
      Broken("a shard has a regime that was not made, or lacks one");
    }
  }
}

}  // namespace

RegimeSwitchResult SimulateRegimeSwitches(uint64_t seed) {
  return SwitchHistory(seed).Run();
}

}  // namespace syncline

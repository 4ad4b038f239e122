// Goal: with leased data each clock of a job is made by one worker, once,
// however workers come and go, and nobody waits for ever. Method: seeded
// histories of whole attempts, with real controllers of 1 to 3 shards and 1 to
// 5 workers that behave as worker/training does, of which some are slow. The
// network delays, reorders and repeats messages. The chief reads epochs' cuts,
// and announces checkpoints, and changes of the bound, where it is. An attempt
// may end at any moment; the next one begins at the latest checkpoint with
// another number of workers. In others workers are lost one after the other,
// and the chief makes their clocks: each is made once then too, but for one
// that was on its way to the shards, of which each has what had come there.

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/regime/leased_clock.h"
#include "gtest/gtest.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/job/lost_leases.h"
#include "server/consistency/consistency_controller.h"
#include "tests/testing/seed_count.h"

namespace syncline::ps {
namespace {

using Kind = ShardAction::Kind;

constexpr BlockIndex kBlocks = 2;  // of each shard
constexpr int kEventsMax = 100'000;

// What the histories have come to, over all of them.
struct Counts {
  int lost_attempts = 0;
  int uneven = 0;  // attempts in which one worker made twice another's
  int raised = 0;  // checkpoints
  int tiny = 0;    // attempts in which a worker had no clock
  int waits = 0;   // pulls that the bound held
  int checkpoints = 0;
  int regimes = 0;   // changes
  int followed = 0;  // by a worker that had come to one
  int lost_workers = 0;
  int returned = 0;  // clocks of theirs
  int torn = 0;
  int made_at_cuts = 0;  // for a cut that the chief waited at
};

// By shard and block: the clocks whose gradients are in it.
using Applied = std::vector<std::vector<std::set<int64_t>>>;

struct Checkpoint {
  int64_t clock = 0;
  Applied applied;
  std::set<int64_t> torn = {};  // clocks that some shards have in part
  bool is_state = false;        // false: the job's start
};

// One attempt.
class Attempt {
 public:
  Attempt(uint64_t seed, int64_t clocks, size_t shards,
          std::optional<int64_t> bound, Checkpoint from, Counts* counts)
      : random_(seed),
        clocks_(clocks),
        regimes_(Bounded(bound)),
        epoch_(Draw(1, static_cast<int>(clocks))),
        start_(from.clock),
        saved_(std::move(from)),
        counts_(*counts) {
    workers_.resize(Draw(1, 5));
    for (Worker& worker : workers_) {
      worker.step = absl::Milliseconds(Draw(2, 6));
    }
    if (Chance(0.5)) workers_[Draw(0, LastRank())].step *= 10;
    if (Chance(0.5)) ends_at_ = Draw(1, 400);
    one_at_a_time_ = Chance(0.3);
    if (Chance(0.5)) loss_chance_ = Draw(1, 20) / 1000.0;
    shards_.resize(shards);
    Open();
  }

  // Empty: all promises held. `complete`: all clocks are made.
  std::string Run(bool* complete) {
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
      Worker& worker = workers_[rank];
      worker.clock = FirstLeasedClock(start_, rank, clocks_);
      if (worker.clock == clocks_) {
        worker.done = true;
        ++counts_.tiny;
        continue;
      }
      After(Delay(), [this, rank] {
        PullAll(rank, workers_[rank].clock, [this, rank] {
          workers_[rank].next = workers_[rank].told;
          Compute(rank);
        });
      });
    }
    for (int events = 0; !queue_.empty() && broken_.empty(); ++events) {
      if (ends_at_ == events) {
        ++counts_.lost_attempts;
        *complete = false;
        return broken_;
      }
      if (events == kEventsMax) return "the history does not end";
      const Event event = queue_.top();
      queue_.pop();
      now_ = event.at;
      event.run();
      if (loss_chance_ > 0 && Chance(loss_chance_)) LoseOne();
    }
    *complete = true;
    if (broken_.empty()) CheckEnd();
    return broken_;
  }

  const Checkpoint& saved() const { return saved_; }

 private:
  struct Event {
    absl::Time at;
    int64_t number;
    std::function<void()> run;
    bool operator<(const Event& other) const {
      return std::pair(at, number) > std::pair(other.at, other.number);
    }
  };
  struct Worker {
    absl::Duration step;
    int64_t clock = 0;  // of the step that it makes
    int64_t next = 0;
    int64_t told = 0;  // the latest answer's lease
    int made = 0;
    bool done = false;
    bool lost = false;
    int waits_for = 0;  // answers
    std::function<void()> then;
    // By shard: pushes that leave when those before them are accepted.
    std::map<size_t, std::queue<std::function<void()>>> window;
  };
  struct Cut {
    uint64_t id = 0;
    int64_t clock = 0;
    CutUse use = CutUse::kEvaluation;
    std::optional<TrainingRegime> regime = {};
  };
  struct Shard {
    std::unique_ptr<ConsistencyController> controller;
    std::map<std::pair<BlockIndex, uint32_t>, int64_t> buffered;
  };
  using Done = std::function<void(const ShardAction&)>;

  int Draw(int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random_);
  }
  bool Chance(double probability) {
    return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
  }
  int LastRank() const { return static_cast<int>(workers_.size()) - 1; }
  absl::Duration Delay() {
    return absl::Microseconds(Chance(0.1) ? Draw(1000, 20000) : Draw(50, 900));
  }
  void After(absl::Duration delay, std::function<void()> run) {
    queue_.push({now_ + delay, ++events_, std::move(run)});
  }
  void Expect(bool holds, const std::string& what) {
    if (!holds && broken_.empty()) broken_ = what;
  }
  // The clock's samples have a gradient of this block, whoever makes it.
  static bool HasGradient(int64_t clock, size_t shard, BlockIndex block) {
    return (clock * 7 + static_cast<int64_t>(shard) * 3 + block) % 10 > 0;
  }

  // --- Shards ---

  static TrainingRegime Bounded(std::optional<int64_t> bound) {
    TrainingRegime regime;
    regime.mode = bound.has_value() ? ConsistencyMode::kBoundedStaleness
                                    : ConsistencyMode::kAsync;
    regime.staleness_bound = bound.value_or(0);
    return regime;
  }

  void Open() {
    ConsistencyController::Options options;
    options.regimes = regimes_;
    options.leases = true;
    options.block_count = kBlocks;
    options.label = "job";
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      options.workers.push_back({rank, absl::StrCat("worker:", rank)});
    }
    torn_ = saved_.torn;
    if (saved_.applied.empty()) {
      saved_.applied.assign(shards_.size(), std::vector<std::set<int64_t>>(2));
    }
    applied_ = saved_.applied;
    for (size_t shard = 0; shard < shards_.size(); ++shard) {
      options.deals_clocks = shard == 0;
      auto& controller = shards_[shard].controller;
      controller = std::make_unique<ConsistencyController>(options);
      if (saved_.is_state) {
        ControllerState state;
        state.workers.assign(workers_.size(), {.closed = start_});
        const absl::Status imported =
            controller->Import(state, /*begins_attempt=*/true, now_);
        Expect(imported.ok(), imported.ToString());
      }
    }
    AnnounceEpoch(start_);
    for (Shard& shard : shards_) {
      shard.controller->GoOnTo(clocks_);
      ShardActions actions;
      shard.controller->OnInit(++token_, 0, 0, {0, 1}, now_, &actions);
    }
  }

  // Announces a cut at one clock, raised until all shards have it there.
  bool Announce(Cut cut, int64_t most) {
    const int64_t asked = cut.clock;
    for (size_t shard = 0; shard < shards_.size();) {
      ConsistencyController& controller = *shards_[shard].controller;
      ShardActions actions;
      const absl::Status status = controller.OnBeginCut(
          0, 0, cut.id, std::vector<int64_t>(workers_.size(), cut.clock),
          absl::Hours(1), now_, &actions, cut.use, cut.regime);
      Take(shard, actions);
      if (status.ok()) {
        ++shard;
        continue;
      }
      // Shards that have it at a lower clock give that one up.
      for (size_t given = 0; given < shard; ++given) {
        ShardActions ended;
        shards_[given]
            .controller->OnEndCut(0, 0, cut.id, now_, &ended)
            .IgnoreError();
        Take(given, ended);
      }
      if (!absl::IsOutOfRange(status)) return false;
      const auto smallest = controller.smallest_cut();
      const int64_t raised =
          *std::max_element(smallest.begin(), smallest.end());
      Expect(raised > cut.clock, "a cut is refused where it is possible");
      if (raised > most) {
        // A worker that is there must be the reason.
        bool is_behind = false;
        for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
          is_behind |= !workers_[rank].lost &&
                       controller.worker(rank).readable() + 1 > most;
        }
        Expect(
            is_behind || cut.use != CutUse::kRegime || !AllLossesAreSettled(),
            "a lost worker keeps the regime from changing");
      }
      if (raised > most || !broken_.empty()) return false;
      cut.clock = raised;
      if (cut.regime.has_value()) cut.regime->first_clock = raised;
      cut.id += 1'000'000;
      shard = 0;
    }
    if (cut.clock != asked) ++counts_.raised;
    cuts_.push_back(cut);
    return true;
  }

  // Nobody is past the end of the epoch before: it is not raised.
  void AnnounceEpoch(int64_t from) {
    const int64_t end = std::min((from / epoch_ + 1) * epoch_, clocks_);
    Expect(
        Announce({.id = static_cast<uint64_t>(end) * 2 + 2, .clock = end}, end),
        absl::StrCat("no cut at the end of the epoch of clock ", from));
  }

  void Take(size_t shard, const ShardActions& actions) {
    for (const ShardAction& action : actions) TakeOne(shard, action);
  }

  void TakeOne(size_t number, const ShardAction& action) {
    Shard& shard = shards_[number];
    switch (action.kind) {
      case Kind::kBufferGradient:
        shard.buffered[{action.block, action.rank}] = action.clock;
        return;
      case Kind::kApply: {
        // Modes without SYNC apply at once what they have just buffered.
        Expect(shard.buffered.size() == 1, "more than one gradient waits");
        Expect(shard.buffered.begin()->second == action.clock,
               "a gradient of another clock is applied");
        shard.buffered.clear();
        Expect(applied_[number][action.block].insert(action.clock).second,
               absl::StrCat("clock ", action.clock, " is applied twice"));
        return;
      }
      case Kind::kSnapshot:
        return Snapshot(number, action);
      case Kind::kAccept:
        return OnAccepted(number, action.token);
      case Kind::kRead:
      case Kind::kAck:
      case Kind::kFail: {
        const auto call = calls_.find(action.token);
        if (call == calls_.end()) return;  // a repeat
        const Done done = std::move(call->second);
        calls_.erase(call);
        if (action.kind == Kind::kAck) OnAccepted(number, action.token);
        if (action.kind != Kind::kFail) return done(action);
        return Expect(workers_[callers_[action.token]].lost,
                      action.status.ToString());
      }
      default:
        return;
    }
  }

  void OnAccepted(size_t shard, CallToken token) {
    const auto pusher = pushers_.find(token);
    if (pusher == pushers_.end()) return;  // a repeat
    auto& window = workers_[pusher->second].window[shard];
    if (window.empty()) return;
    const std::function<void()> send = std::move(window.front());
    window.pop();
    send();
  }

  void Snapshot(size_t number, const ShardAction& action) {
    const int64_t cut = action.cut_clocks[0];
    CheckCut(number, cut);
    auto& parts = snapshots_[action.cut_id];
    parts[number] = applied_[number];
    const auto state = shards_[number].controller->Export(action.cut_id);
    Expect(state.ok(), state.status().ToString());
    for (const ControllerState::Worker& worker : state->workers) {
      Expect(worker.closed == cut && !worker.finished,
             "the state of a cut is at another clock");
    }
    if (parts.size() < shards_.size()) return;
    saved_.clock = cut;
    saved_.is_state = true;
    for (const auto& [shard, part] : parts) saved_.applied[shard] = part;
    saved_.torn = torn_;
    ++counts_.checkpoints;
  }

  // Each clock below the cut is in the shard, and none behind it.
  void CheckCut(size_t shard, int64_t cut) {
    for (BlockIndex block = 0; block < kBlocks; ++block) {
      std::set<int64_t> all;
      for (int64_t clock = 0; clock < cut; ++clock) {
        const bool has = torn_.count(clock) > 0
                             ? applied_[shard][block].count(clock) > 0
                             : HasGradient(clock, shard, block);
        if (has) all.insert(clock);
      }
      Expect(applied_[shard][block] == all,
             absl::StrCat("shard ", shard,
                          " has other clocks than those below ", cut));
    }
  }

  // --- Lost workers ---

  void LoseOne() {
    if (workers_.size() < 2) return;
    const auto rank = static_cast<uint32_t>(Draw(1, LastRank()));
    Worker& worker = workers_[rank];
    if (worker.lost || worker.done) return;
    worker.lost = true;
    worker.then = nullptr;
    ++counts_.lost_workers;
    // The scheduler notices it later, and tells the ps, which answer.
    for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
      After(5 * Delay(), [this, rank, shard] { TakeOut(rank, shard); });
    }
  }

  void TakeOut(uint32_t rank, uint32_t shard) {
    ShardActions actions;
    const auto leases =
        shards_[shard].controller->OnWorkerLost(rank, now_, &actions);
    Expect(leases.ok(), leases.status().ToString());
    if (leases->whole_until < leases->begun_until) {
      torn_.insert(leases->begun_until - 1);
    }
    Take(shard, actions);
    WorkerTakenOut answer;
    WorkerTakenOut::Shard* const of = answer.add_shards();
    of->set_begun_until(leases->begun_until);
    of->set_whole_until(leases->whole_until);
    of->mutable_leased()->Add(leases->leased.begin(), leases->leased.end());
    After(Delay(), [this, rank, shard, answer] {
      const auto& settled =
          lost_leases_[rank].OnTakenOut(shard, answer, shards_.size());
      if (settled.has_value()) ReturnLeases(rank, *settled);
    });
  }

  void ReturnLeases(uint32_t rank,
                    const scheduler::LostLeases::Settled& leases) {
    counts_.returned += static_cast<int>(leases.returned.size());
    for (const int64_t clock : leases.returned) taken_.erase(clock);
    if (leases.torn.has_value()) {
      ++counts_.torn;
      torn_.insert(*leases.torn);
    }
    for (size_t shard = 0; shard < shards_.size(); ++shard) {
      After(Delay(), [this, rank, shard, clocks = leases.returned] {
        ShardActions actions;
        const absl::Status returned =
            shards_[shard].controller->OnReturned(rank, clocks, now_, &actions);
        Expect(returned.ok(), returned.ToString());
        Take(shard, actions);
      });
    }
  }

  bool AllLossesAreSettled() const {
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
      if (!workers_[rank].lost) continue;
      for (const Shard& shard : shards_) {
        if (!shard.controller->worker(rank).finished()) return false;
      }
    }
    return true;
  }

  // As Trainer::MakeReturned.
  void MakeReturned(std::function<void()> then) {
    MakeNext(std::exchange(returned_, {}), 0, std::move(then));
  }
  void MakeNext(std::vector<ReturnedLease> leases, size_t next,
                std::function<void()> then) {
    if (next == leases.size()) {
      returned_.clear();
      return then();
    }
    const ReturnedLease lease = leases[next];
    PullAll(
        0, lease.clock, [this, lease, leases, next, then = std::move(then)] {
          Expect(taken_.insert(lease.clock).second,
                 absl::StrCat("clock ", lease.clock, " is made twice"));
          const bool is_last = lease.next_clock == 0;
          After(workers_[0].step, [this, lease, leases, next, is_last, then] {
            PushClock(0, lease.clock, is_last ? clocks_ : lease.next_clock,
                      is_last,
                      /*pulls=*/false, lease.rank, [this, leases, next, then] {
                        MakeNext(leases, next + 1, then);
                      });
          });
        });
  }

  // --- Workers ---

  void Send(uint32_t rank, size_t shard, std::optional<PushFacts> push,
            std::optional<PullFacts> pull, Done done,
            std::optional<uint32_t> for_rank = std::nullopt) {
    const int copies = push.has_value() && Chance(0.1) ? 2 : 1;
    for (int copy = 0; copy < copies; ++copy) {
      const CallToken token = ++token_;
      if (copy == 0) calls_[token] = done;
      callers_[token] = rank;
      if (copy == 0 && push.has_value()) pushers_[token] = rank;
      ShardCall call = {.token = token,
                        .rank = for_rank.value_or(rank),
                        .incarnation = rank,
                        .for_lost = for_rank.has_value(),
                        .deadline = absl::InfiniteFuture(),
                        .push = push,
                        .pull = copy == 0 ? pull : std::nullopt};
      After(Delay(), [this, shard, call = std::move(call)] {
        ShardActions actions;
        shards_[shard].controller->OnCall(call, now_, &actions);
        if (actions.empty()) ++counts_.waits;
        Take(shard, actions);
      });
    }
  }

  void Heard(uint32_t rank, const ShardAction& answer) {
    After(Delay(),
          [this, rank, lease = answer.open_clock, returned = answer.returned] {
            Worker& worker = workers_[rank];
            if (worker.lost) return;
            for (const ReturnedLease& clock : returned) {
              Expect(rank == 0, "another than the chief is to make a clock");
              if (std::find(returned_.begin(), returned_.end(), clock) ==
                  returned_.end()) {
                returned_.push_back(clock);
              }
            }
            worker.told = std::max(worker.told, lease);
            if (--worker.waits_for == 0) std::exchange(worker.then, nullptr)();
          });
  }

  // False for a clock that a lost worker had: nobody waits for that.
  bool IsWaitedFor(int64_t clock) const {
    if (torn_.count(clock) > 0) return false;
    if (std::none_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.lost; })) {
      return true;
    }
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
      const Worker& worker = workers_[rank];
      if (worker.lost) continue;
      const auto made = made_.find(rank);
      if (made != made_.end() && made->second.count(clock) > 0) return true;
      if (clock == worker.clock || clock == worker.next) return true;
    }
    return false;
  }

  // The values of `clock` are fresh enough.
  void CheckValues(uint32_t rank, size_t shard, BlockIndex block,
                   int64_t clock) {
    const std::set<int64_t>& has = applied_[shard][block];
    for (const int64_t own : made_[rank]) {
      Expect(!HasGradient(own, shard, block) || has.count(own) > 0,
             "a worker does not read its own writes");
    }
    // Such values are read again.
    if (HasRegimeCutUpTo(clock)) return;
    const std::optional<int64_t> bound = regimes_.At(clock).bound();
    if (!bound.has_value()) return;
    for (int64_t old = 0; old < clock - *bound; ++old) {
      if (!IsWaitedFor(old)) continue;
      Expect(!HasGradient(old, shard, block) || has.count(old) > 0,
             absl::StrCat("the values of clock ", clock, " lack clock ", old));
    }
  }

  void Pull(uint32_t rank, size_t shard, int64_t clock, uint64_t cut,
            std::vector<BlockIndex> blocks) {
    Send(rank, shard, std::nullopt, PullFacts{clock, blocks, cut},
         [this, rank, shard, clock, cut, blocks](const ShardAction& answer) {
           for (const BlockIndex block : blocks) {
             if (cut == 0) CheckValues(rank, shard, block, clock);
           }
           if (cut != 0 && answer.returned.empty()) CheckCut(shard, clock);
           Heard(rank, answer);
         });
  }

  void PullAll(uint32_t rank, int64_t clock, std::function<void()> then,
               uint64_t cut = 0) {
    Worker& worker = workers_[rank];
    worker.waits_for = static_cast<int>(shards_.size());
    worker.then = std::move(then);
    for (size_t shard = 0; shard < shards_.size(); ++shard) {
      Pull(rank, shard, clock, cut, {0, 1});
    }
  }

  void Compute(uint32_t rank) {
    Worker& worker = workers_[rank];
    if (worker.lost) return;
    Expect(taken_.insert(worker.clock).second,
           absl::StrCat("clock ", worker.clock, " is leased twice"));
    if (rank == 0 && Chance(0.2) && cuts_.size() < 2) AnnounceMore();
    After(worker.step * (0.5 + Draw(0, 100) / 100.0),
          [this, rank] { PushAll(rank); });
  }

  // As BeforeStep of Trainer: a checkpoint, or a change of the bound.
  void AnnounceMore() {
    const int64_t clock = workers_[0].clock + 1;
    Cut cut = {.id = static_cast<uint64_t>(clock) * 2 + 1,
               .clock = clock,
               .use = CutUse::kCheckpoint};
    if (Chance(0.3)) {
      cut.use = CutUse::kRegime;
      cut.regime = Bounded(Chance(0.7) ? std::optional<int64_t>(Draw(0, 12))
                                       : std::nullopt);
      cut.regime->learning_rate_factor = Draw(1, 1'000'000);  // a change
      cut.regime->first_clock = clock;
    }
    Announce(cut, cut.use == CutUse::kRegime ? clocks_ - 1 : clocks_);
  }

  void PushAll(uint32_t rank) {
    Worker& worker = workers_[rank];
    if (worker.lost) return;
    const bool is_last = worker.next == clocks_;
    const bool pulls = !is_last && !(rank == 0 && HasCutUpTo(worker.next));
    ++worker.made;
    PushClock(rank, worker.clock, worker.next, is_last, pulls, std::nullopt,
              [this, rank, pulls] { EndStep(rank, pulls); });
  }

  void PushClock(uint32_t rank, int64_t clock, int64_t next, bool is_last,
                 bool pulls, std::optional<uint32_t> for_rank,
                 std::function<void()> then) {
    Worker& worker = workers_[rank];
    if (!for_rank.has_value()) made_[rank].insert(clock);
    worker.waits_for = 0;
    worker.then = std::move(then);
    for (size_t shard = 0; shard < shards_.size(); ++shard) {
      PushFacts facts;
      facts.clock = clock;
      facts.close_until = next;
      facts.finished = is_last;
      std::vector<BlockIndex> with;
      std::vector<BlockIndex> without;
      for (BlockIndex block = 0; block < kBlocks; ++block) {
        (HasGradient(clock, shard, block) ? with : without).push_back(block);
      }
      facts.blocks_in_clock = static_cast<uint32_t>(with.size());
      facts.sample_count = with.empty() ? 0 : 8;
      if (with.empty()) {
        ++worker.waits_for;
        PushOne(rank, shard, facts, std::nullopt, for_rank);
      }
      for (const BlockIndex block : with) {
        facts.blocks = {block};
        ++worker.waits_for;
        const auto send = [this, rank, shard, facts, pulls, next, for_rank] {
          if (workers_[rank].lost) return;
          PushOne(rank, shard, facts,
                  pulls ? std::optional(PullFacts{next, facts.blocks})
                        : std::nullopt,
                  for_rank);
        };
        // With a full window the second leaves when the first is accepted.
        if (one_at_a_time_ && block != with.front()) {
          worker.window[shard].push(send);
        } else {
          send();
        }
      }
      if (pulls && !without.empty()) {
        ++worker.waits_for;
        Pull(rank, shard, next, 0, without);
      }
    }
  }

  void PushOne(uint32_t rank, size_t shard, const PushFacts& facts,
               std::optional<PullFacts> pull,
               std::optional<uint32_t> for_rank) {
    Send(
        rank, shard, facts, pull,
        [this, rank, shard, pull](const ShardAction& answer) {
          if (pull.has_value()) {
            CheckValues(rank, shard, pull->blocks[0], pull->clock);
          }
          Heard(rank, answer);
        },
        for_rank);
  }

  bool HasCutUpTo(int64_t clock) const {
    return std::any_of(cuts_.begin(), cuts_.end(),
                       [&](const Cut& cut) { return cut.clock <= clock; });
  }

  bool HasRegimeCutUpTo(int64_t clock) const {
    return std::any_of(cuts_.begin(), cuts_.end(), [&](const Cut& cut) {
      return cut.use == CutUse::kRegime && cut.clock <= clock;
    });
  }

  // As Trainer::EndLeasedStep.
  void EndStep(uint32_t rank, bool has_values) {
    Worker& worker = workers_[rank];
    if (worker.lost) return;
    if (rank == 0 && HasCutUpTo(worker.next)) return ReadCut();
    // As FollowRegimes: a pull of nothing is answered when it is decided on.
    if (rank > 0 && worker.next < clocks_ && HasRegimeCutUpTo(worker.next)) {
      ++counts_.followed;
      worker.waits_for = static_cast<int>(shards_.size());
      worker.then = [this, rank] { EndStep(rank, /*has_values=*/false); };
      for (size_t shard = 0; shard < shards_.size(); ++shard) {
        Pull(rank, shard, worker.next, 0, {});
      }
      return;
    }
    if (rank == 0 && !returned_.empty()) {
      return MakeReturned([this] { EndStep(0, /*has_values=*/false); });
    }
    if (worker.next == clocks_) {
      worker.done = true;
      return;
    }
    const auto go_on = [this, rank] {
      workers_[rank].clock =
          std::exchange(workers_[rank].next, workers_[rank].told);
      Compute(rank);
    };
    if (has_values) return go_on();
    PullAll(rank, worker.next, go_on);
  }

  void ReadCut() {
    const auto first = std::min_element(
        cuts_.begin(), cuts_.end(), [](const Cut& a, const Cut& b) {
          return std::pair(a.clock, a.id) < std::pair(b.clock, b.id);
        });
    const Cut cut = *first;
    const bool is_epoch = cut.use == CutUse::kEvaluation;
    returned_.clear();
    PullAll(
        0, cut.clock,
        [this, cut, is_epoch] {
          if (!returned_.empty()) {
            ++counts_.made_at_cuts;
            return MakeReturned([this] { ReadCut(); });
          }
          std::erase_if(cuts_, [&](const Cut& c) { return c.id == cut.id; });
          if (is_epoch && cut.clock < clocks_) AnnounceEpoch(cut.clock);
          const bool commits = cut.use == CutUse::kRegime;
          if (commits) {
            ++counts_.regimes;
            Expect(regimes_.Add(*cut.regime, cut.clock).ok(), "a regime");
            // All at once, or a worker would have to ask which shards have it.
            for (size_t shard = 0; shard < shards_.size(); ++shard) {
              End(shard, cut.id, /*commit=*/true);
            }
            return EndStep(0, /*has_values=*/false);
          }
          for (size_t shard = 0; shard < shards_.size(); ++shard) {
            After(Delay(),
                  [this, shard, cut] { End(shard, cut.id, /*commit=*/false); });
          }
          EndStep(0, /*has_values=*/false);
        },
        cut.id);
  }

  void End(size_t shard, uint64_t cut, bool commit) {
    ShardActions actions;
    const absl::Status ended =
        shards_[shard].controller->OnEndCut(0, 0, cut, now_, &actions, commit);
    Expect(ended.ok(), ended.ToString());
    Take(shard, actions);
  }

  // --- The end ---

  void CheckEnd() {
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
      Expect(workers_[rank].done || workers_[rank].lost,
             absl::StrCat("worker ", rank, " waits at clock ",
                          workers_[rank].clock));
    }
    for (size_t shard = 0; shard < shards_.size(); ++shard) {
      const ConsistencyController& controller = *shards_[shard].controller;
      Expect(controller.parked_pulls() + controller.parked_pushes() == 0,
             "a call is parked");
      CheckCut(shard, clocks_);
    }
    Expect(static_cast<int64_t>(taken_.size()) == clocks_ - start_,
           "a clock was not leased");
    int most = 0;
    int least = workers_[0].made;
    for (const Worker& worker : workers_) {
      most = std::max(most, worker.made);
      least = std::min(least, worker.made);
    }
    counts_.uneven += most >= 2 * least + 2 ? 1 : 0;
  }

  std::mt19937_64 random_;
  const int64_t clocks_;
  RegimeSchedule regimes_;
  const int64_t epoch_;
  const int64_t start_;
  Checkpoint saved_;
  Counts& counts_;
  int ends_at_ = -1;
  bool one_at_a_time_ = false;  // pushes of a step, to each shard
  double loss_chance_ = 0;      // of a worker, after each event
  std::vector<Worker> workers_;
  std::vector<Shard> shards_;
  Applied applied_;
  std::vector<Cut> cuts_;  // announced, and not read
  std::map<uint64_t, std::map<size_t, std::vector<std::set<int64_t>>>>
      snapshots_;
  std::set<int64_t> taken_;
  std::set<int64_t> torn_;
  std::map<uint32_t, scheduler::LostLeases> lost_leases_;  // by rank
  std::vector<ReturnedLease> returned_;  // of the chief's answers
  std::map<uint32_t, std::set<int64_t>> made_;
  std::map<CallToken, Done> calls_;
  std::map<CallToken, uint32_t> callers_;  // ranks
  std::map<CallToken, uint32_t> pushers_;  // likewise
  CallToken token_ = 0;
  absl::Time now_ = absl::UnixEpoch();
  int64_t events_ = 0;
  std::priority_queue<Event> queue_;
  std::string broken_;
};

void SimulateJob(uint64_t seed, Counts* counts) {
  std::mt19937_64 random(seed);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  const int64_t clocks = draw(1, 60);
  const size_t shards = draw(1, 3);
  std::optional<int64_t> bound;
  if (draw(0, 1) == 1) bound = draw(0, 12);
  Checkpoint saved;
  for (int attempt = 0;; ++attempt) {
    ASSERT_LT(attempt, 200) << "seed " << seed;
    Attempt run(seed * 1000 + attempt, clocks, shards, bound, saved, counts);
    bool complete = false;
    const std::string broken = run.Run(&complete);
    ASSERT_EQ(broken, "") << "seed " << seed << ", attempt " << attempt;
    saved = run.saved();
    if (complete) return;
    if (saved.clock == clocks) return;  // its result is saved
  }
}

TEST(LeasedClocksTest, EachClockIsMadeOnceHoweverWorkersComeAndGo) {
  Counts counts;
  constexpr int kJobs = SeedCount(10'000);
  for (int seed = 1; seed <= kJobs && !HasFatalFailure(); ++seed) {
    SimulateJob(static_cast<uint64_t>(seed), &counts);
  }
  EXPECT_GT(counts.lost_attempts, kJobs / 10);
  EXPECT_GT(counts.uneven, kJobs / 50) << "slow workers make fewer clocks";
  EXPECT_GT(counts.raised, kJobs / 10);
  EXPECT_GT(counts.tiny, kJobs / 100);
  EXPECT_GT(counts.waits, kJobs);
  EXPECT_GT(counts.checkpoints, kJobs / 2);
  EXPECT_GT(counts.regimes, kJobs / 10);
  EXPECT_GT(counts.followed, kJobs / 10);
  EXPECT_GT(counts.lost_workers, kJobs / 5);
  EXPECT_GT(counts.returned, kJobs / 5);
  EXPECT_GT(counts.torn, kJobs / 100);
  EXPECT_GT(counts.made_at_cuts, kJobs / 20);
}

}  // namespace
}  // namespace syncline::ps

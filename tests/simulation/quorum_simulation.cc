#include "tests/simulation/quorum_simulation.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "server/consistency/consistency_controller.h"
#include "server/consistency/quorum_arbiter.h"

namespace syncline::ps {
namespace {

using Kind = ShardAction::Kind;

constexpr BlockIndex kBlocks = 2;  // of each shard
constexpr uint64_t kIncarnation = 100;
constexpr int kEventsMax = 200'000;
constexpr absl::Duration kTimeout = absl::Milliseconds(30);
constexpr absl::Duration kTick = absl::Milliseconds(10);

class World {
 public:
  explicit World(const QuorumHistory& history)
      : history_(history), random_(history.seed) {
    workers_.resize(Draw(2, 5));
    needed_ = history_.loses_workers
                  ? static_cast<int>(workers_.size())
                  : Draw(1, static_cast<int>(workers_.size()));
    clocks_ = Draw(3, 9);
    pulls_max_ = 1 + static_cast<int>(history.seed % 4);
    shards_.resize(Draw(1, 3));
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      workers_[rank].step = absl::Milliseconds(Draw(2, 12));
    }
    if (Chance(0.6)) {
      workers_[Draw(0, static_cast<int>(workers_.size()) - 1)].step *= 8;
    }
    for (size_t rank = 1; history_.loses_workers && rank < workers_.size();
         ++rank) {
      if (!Chance(0.5)) continue;
      workers_[rank].stops_at = Draw(0, static_cast<int>(clocks_) - 1);
    }
    // Without it the others can go on, and it is not the chief.
    if (!history_.loses_workers && Chance(0.3) && needed_ < workers_.size()) {
      workers_.back().stops_at = Draw(0, static_cast<int>(clocks_) - 1);
    }
    const int64_t first_cut = Draw(1, static_cast<int>(clocks_));
    cuts_ = first_cut < clocks_ ? std::vector<int64_t>{first_cut, clocks_}
                                : std::vector<int64_t>{clocks_};
    Open();
  }

  QuorumResult Run() {
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
      After(Delay(), [this, rank] { PullAll(rank, 0); });
    }
    if (history_.with_timeout) Tick();
    for (int events = 0; !queue_.empty() && result_.broken.empty(); ++events) {
      if (events == kEventsMax) {
        Break("the history does not end");
        break;
      }
      const Event event = queue_.top();
      queue_.pop();
      now_ = event.at;
      event.run();
    }
    if (result_.broken.empty()) CheckEnd();
    return result_;
  }

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
    int pulls = 0;      // since its latest step
    bool done = false;
    int waits_for = 0;  // answers
    int64_t open_clock = 0;
    int64_t applied = 0;
    std::function<void()> then;
    std::optional<int64_t> stops_at;  // none: it does not
    bool has_stopped = false;
    bool has_woken = false;
    int life = 0;  // answers to what an earlier one has sent do not count
    bool pushes = false;      // its calls under way are those of a step
    bool sent_again = false;  // all of the step, to other shards
    // As answers have told: the first clock without each, by rank.
    std::map<uint32_t, int64_t> lost;
    // By shard and block: how many updates the values have that it has read.
    std::map<std::pair<size_t, BlockIndex>, size_t> read;
  };
  // The push of a worker for a clock.
  struct Push {
    uint64_t samples = 0;
    std::set<BlockIndex> blocks;
    std::map<std::pair<size_t, BlockIndex>, size_t> read;
    std::set<uint32_t> without;  // the workers that its maker knew as lost
  };
  struct Shard {
    std::unique_ptr<ConsistencyController> controller;
    std::map<BlockIndex, std::map<uint32_t, int64_t>>
        buffered;                                        // clock by rank
    std::map<BlockIndex, std::vector<int64_t>> applied;  // clocks
    std::set<uint64_t> snapshots;
  };
  using Done = std::function<void(const ShardAction&)>;

  // --- Chance and time ---

  int Draw(int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random_);
  }
  bool Chance(double probability) {
    return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
  }
  absl::Duration Delay() {
    return absl::Microseconds(Chance(0.1) ? Draw(1000, 20000) : Draw(50, 900));
  }
  void After(absl::Duration delay, std::function<void()> run) {
    queue_.push({now_ + delay, ++events_, std::move(run)});
  }
  void Break(const std::string& what) {
    if (result_.broken.empty()) result_.broken = what;
  }
  void Expect(bool holds, const std::string& what) {
    if (!holds) Break(what);
  }

  // --- Shards ---

  void Open() {
    QuorumArbiter::Options& arbiter = arbiter_options_;
    arbiter.needed = static_cast<uint32_t>(needed_);
    if (history_.with_timeout) arbiter.timeout = kTimeout;
    arbiter.label = "job";
    ConsistencyController::Options& options = shard_options_;
    arbiter.loses_workers = history_.loses_workers;
    options.quorum = {.needed = arbiter.needed,
                      .timeout = arbiter.timeout,
                      .loses_workers = history_.loses_workers};
    options.clip_norm = history_.reduces;
    options.block_count = kBlocks;
    options.label = "job";
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      options.workers.push_back({rank, absl::StrCat("worker:", rank)});
      arbiter.workers.push_back(absl::StrCat("worker:", rank));
    }
    for (size_t shard = 0; shard < shards_.size(); ++shard) {
      arbiter.shards.push_back({kIncarnation + shard, "ps", true});
      shards_[shard].controller =
          std::make_unique<ConsistencyController>(options);
      ShardActions actions;
      shards_[shard].controller->OnInit(++token_, 0, 0, {0, 1}, now_, &actions);
      Announce(shard, 0);
    }
    arbiter_ = std::make_unique<QuorumArbiter>(arbiter);
  }

  // From a cut that all shards have passed, which ends so.
  void Move(uint64_t cut_id) {
    ++result_.moves;
    for (Shard& shard : shards_) {
      const auto state = shard.controller->Export(cut_id);
      Expect(state.ok(), state.status().ToString());
      if (!state.ok()) return;
      shard.controller =
          std::make_unique<ConsistencyController>(shard_options_);
      const absl::Status status =
          shard.controller->Import(*state, /*begins_attempt=*/false, now_);
      Expect(status.ok(), status.ToString());
    }
    arbiter_ = std::make_unique<QuorumArbiter>(arbiter_options_);
    for (uint32_t rank = 1; rank < workers_.size(); ++rank) {
      Worker& worker = workers_[rank];
      if (worker.waits_for == 0 || worker.has_stopped) continue;
      ++worker.life;
      if (worker.pushes) {
        worker.sent_again = true;
        PushAll(rank);
      } else {
        --worker.pulls;
        PullAll(rank, worker.clock);
      }
    }
  }

  void Announce(size_t shard, size_t cut) {
    ShardActions actions;
    const absl::Status status = shards_[shard].controller->OnBeginCut(
        0, 0, cut + 1, std::vector<int64_t>(workers_.size(), cuts_[cut]),
        absl::Hours(1), now_, &actions, CutUse::kCheckpoint);
    Expect(status.ok(), absl::StrCat("a cut: ", status.ToString()));
    Take(shard, actions);
  }

  void Take(size_t shard, const ShardActions& actions) {
    for (const ShardAction& action : actions) TakeOne(shard, action);
  }

  void TakeOne(size_t number, const ShardAction& action) {
    Shard& shard = shards_[number];
    std::map<uint32_t, int64_t>& buffered = shard.buffered[action.block];
    switch (action.kind) {
      case Kind::kBufferGradient:
        Expect(buffered.emplace(action.rank, action.clock).second,
               "a gradient is buffered twice");
        return;
      case Kind::kDropGradientOf:
        Expect(buffered.erase(action.rank) == 1, "nothing to drop");
        Expect(sets_[action.clock].count(action.rank) == 0,
               "a gradient of the set is dropped");
        return;
      case Kind::kApply:
        return Apply(number, action, &buffered);
      case Kind::kSendNorms:
        return SendNorms(action.clock);
      case Kind::kSendCloses:
        return SendCloses(number, action.clock, action.ranks);
      case Kind::kSnapshot:
        return Snapshot(number, action);
      case Kind::kRead:
      case Kind::kAck:
      case Kind::kFail: {
        const auto call = calls_.find(action.token);
        if (call == calls_.end()) return;  // a repeat
        const Call done = std::move(call->second);
        calls_.erase(call);
        if (action.kind == Kind::kFail) {
          if (absl::IsFailedPrecondition(action.status) &&
              removed_.count(done.rank) > 0) {
            return;  // it ends there
          }
          return Break(action.status.ToString());
        }
        // The values are those of now, whenever the answer comes.
        if (done.life != workers_[done.rank].life) return;
        if (action.kind == Kind::kRead) Learn(done.rank, shard);
        return done.done(action);
      }
      default:
        return;
    }
  }

  // As the shell does, with each answer that has values.
  void Learn(uint32_t rank, const Shard& shard) {
    const auto lost = shard.controller->lost_workers();
    if (lost == nullptr) return;
    for (const auto& worker : *lost) {
      const auto [known, is_new] =
          workers_[rank].lost.emplace(worker.rank, worker.first_clock);
      Expect(known->second == worker.first_clock,
             "a worker is lost at two clocks");
      lost_.emplace(worker.rank, worker.first_clock);
    }
  }

  void Apply(size_t number, const ShardAction& action,
             std::map<uint32_t, int64_t>* buffered) {
    const std::set<uint32_t>& set = sets_[action.clock];
    std::set<uint32_t> expected;
    uint64_t samples = 0;
    for (const uint32_t rank : set) {
      const Push& push = pushes_[{rank, action.clock}];
      samples += push.samples;
      if (push.blocks.count(action.block) > 0) expected.insert(rank);
    }
    std::set<uint32_t> ranks;
    for (const auto& [rank, clock] : *buffered) {
      Expect(clock == action.clock, "a gradient of another clock is applied");
      ranks.insert(rank);
    }
    Expect(ranks == expected,
           absl::StrCat("clock ", action.clock, " is applied with ",
                        absl::StrJoin(ranks, ","), " on shard ", number,
                        ", expected ", absl::StrJoin(expected, ",")));
    Expect(samples == action.sample_count, "other samples");
    std::vector<int64_t>& applied = shards_[number].applied[action.block];
    Expect(applied.empty() || applied.back() < action.clock,
           "a clock is applied twice, or late");
    applied.push_back(action.clock);
    buffered->clear();
  }

  void Snapshot(size_t number, const ShardAction& action) {
    const int64_t cut = action.cut_clocks[0];
    Expect(shards_[number].snapshots.insert(action.cut_id).second,
           "a second snapshot");
    for (BlockIndex block = 0; block < kBlocks; ++block) {
      Expect(shards_[number].buffered[block].empty(),
             "gradients are buffered at a cut");
      snapshots_.push_back(
          {number, block, cut, shards_[number].applied[block].size()});
    }
  }

  // --- Between shards ---

  void SendNorms(int64_t clock) {
    if (++norms_[clock] < shards_.size()) return;
    for (size_t shard = 0; shard < shards_.size(); ++shard) {
      After(Delay(), [this, shard, clock] {
        ShardActions actions;
        shards_[shard].controller->OnReduced({clock, ReductionStage::kGradient},
                                             1.0, now_, &actions);
        Take(shard, actions);
      });
    }
  }

  void SendCloses(size_t shard, int64_t clock, std::vector<uint32_t> ranks) {
    // A shard tells later of those that it has, if some are missing.
    if (shard > 0 && ranks.size() < needed_) {
      if (history_.loses_workers) Retry(shard, clock);
      return;
    }
    Report(shard, clock, std::move(ranks));
  }

  void Report(size_t shard, int64_t clock, std::vector<uint32_t> ranks) {
    const bool lost = shard > 0 && Chance(0.05);
    if (lost) return Retry(shard);
    After(
        shard == 0 ? absl::ZeroDuration() : Delay(),
        [this, shard, clock, moves = result_.moves, ranks = std::move(ranks)] {
          if (moves != result_.moves) return;
          const uint64_t token = ++token_;
          asking_[token] = {shard, clock};
          QuorumArbiter::Answers answers;
          arbiter_->OnCloses(token, static_cast<uint32_t>(shard),
                             kIncarnation + shard, clock, ranks,
                             absl::InfiniteFuture(), now_, &answers);
          Tell(answers);
        });
  }

  void Tell(const QuorumArbiter::Answers& answers) {
    for (const QuorumArbiter::Answer& answer : answers) {
      const auto [shard, clock] = asking_[answer.token];
      asking_.erase(answer.token);
      if (!answer.status.ok()) {
        // A report that has come late, behind the clock's set and the next one.
        Expect(absl::IsInvalidArgument(answer.status) &&
                   arbiter_->clock() > clock + 1,
               answer.status.ToString());
        continue;
      }
      if (shard > 0 && Chance(0.05)) {
        Retry(shard);
        continue;
      }
      After(shard == 0 ? absl::ZeroDuration() : Delay(),
            [this, shard = shard, clock = clock, answer] {
              Fix(shard, clock, answer);
            });
    }
  }

  void Retry(size_t shard, int64_t clock = -1) {
    ++result_.retries;
    After(absl::Milliseconds(5), [this, shard, clock] {
      auto closes = shards_[shard].controller->OpenCloses();
      if (!closes.has_value() || (clock >= 0 && closes->clock != clock)) return;
      Report(shard, closes->clock, std::move(closes->ranks));
    });
  }

  // The scheduler has noticed that the worker is lost.
  void Remove(uint32_t rank) {
    removed_.insert(rank);
    QuorumArbiter::Answers answers;
    const absl::Status status = arbiter_->OnRemoved(rank, now_, &answers);
    Expect(status.ok(), status.ToString());
    Tell(answers);
  }

  void Fix(size_t shard, int64_t clock, const QuorumArbiter::Answer& answer) {
    const std::set<uint32_t> set(answer.ranks.begin(), answer.ranks.end());
    Expect(history_.loses_workers || set.size() >= needed_,
           "a set is too small");
    for (uint32_t rank = 0; history_.loses_workers && rank < workers_.size();
         ++rank) {
      Expect(set.count(rank) > 0 || removed_.count(rank) > 0,
             "a clock lacks a worker that is there");
    }
    const auto [known, is_new] = sets_.emplace(clock, set);
    Expect(known->second == set,
           absl::StrCat("two sets of clock ", clock, " on shard ", shard));
    ShardActions actions;
    const absl::Status status = shards_[shard].controller->OnQuorum(
        clock, answer.ranks, now_, &actions, answer.removed);
    Expect(status.ok(), status.ToString());
    Take(shard, actions);
  }

  void Tick() {
    if (std::all_of(workers_.begin(), workers_.end(), [this](const Worker& w) {
          return w.done || IsStopped(w);
        })) {
      return;
    }
    QuorumArbiter::Answers answers;
    arbiter_->OnTick(now_, &answers);
    Tell(answers);
    After(kTick, [this] { Tick(); });
  }

  // --- Workers ---

  bool IsStopped(const Worker& worker) const {
    return worker.stops_at.has_value();
  }
  void Stop(uint32_t rank) {
    if (std::exchange(workers_[rank].has_stopped, true)) return;
    if (!history_.loses_workers) return;
    ++result_.lost;
    const absl::Duration noticed = absl::Milliseconds(Draw(1, 60));
    for (int times = Chance(0.3) ? 2 : 1; times > 0; --times) {
      After(times * noticed, [this, rank] { Remove(rank); });
    }
    // It wakes up, before or behind that, and knows nothing of it.
    if (!Chance(0.5)) return;
    After(absl::Milliseconds(Draw(0, 100)), [this, rank] {
      Worker& worker = workers_[rank];
      worker.has_woken = true;
      ++worker.life;
      PushAll(rank);
    });
  }

  // Sends a call, perhaps twice; `done` hears the first answer.
  void Send(uint32_t rank, size_t shard, std::optional<PushFacts> push,
            std::optional<PullFacts> pull, Done done) {
    const int copies = Chance(0.1) ? 2 : 1;
    for (int copy = 0; copy < copies; ++copy) {
      const CallToken token = ++token_;
      if (copy == 0) calls_[token] = {rank, workers_[rank].life, done};
      // The repeat of a pull that waits would wait as well.
      if (copy == 1 && !push.has_value()) continue;
      ShardCall call = {.token = token,
                        .rank = rank,
                        .incarnation = rank,
                        .deadline = absl::InfiniteFuture(),
                        .push = push,
                        .pull = copy == 0 ? pull : std::nullopt};
      After(Delay(),
            [this, shard, moves = result_.moves, call = std::move(call)] {
              if (moves != result_.moves) return;
              ShardActions actions;
              shards_[shard].controller->OnCall(call, now_, &actions);
              Take(shard, actions);
            });
    }
  }

  // Answers are there after a while; `then` runs with the last one.
  void Heard(uint32_t rank, const ShardAction& answer) {
    if (answer.kind == Kind::kRead) {
      Expect(answer.open_clock > 0 || answer.clock == 0, "no open clock");
    }
    After(Delay(),
          [this, rank, life = workers_[rank].life, open = answer.open_clock,
           applied = answer.min_clock, kind = answer.kind] {
            Worker& worker = workers_[rank];
            // Its calls are made again since.
            if (worker.life != life) return;
            if (kind == Kind::kRead) {
              worker.open_clock = std::max(worker.open_clock, open);
              worker.applied = std::max(worker.applied, applied);
            }
            if (--worker.waits_for == 0) std::exchange(worker.then, nullptr)();
          });
  }

  void Pull(uint32_t rank, size_t shard, int64_t clock, uint64_t cut) {
    Send(rank, shard, std::nullopt, PullFacts{clock, {0, 1}, cut},
         [this, rank, shard, clock, cut](const ShardAction& answer) {
           for (BlockIndex block = 0; block < kBlocks; ++block) {
             const size_t updates = shards_[shard].applied[block].size();
             workers_[rank].read[{shard, block}] = updates;
             if (cut != 0) snapshots_.push_back({shard, block, clock, updates});
           }
           Heard(rank, answer);
         });
  }

  void PullAll(uint32_t rank, int64_t clock) {
    Worker& worker = workers_[rank];
    worker.clock = clock;
    worker.pushes = false;
    ++worker.pulls;
    worker.waits_for = static_cast<int>(shards_.size());
    worker.then = [this, rank] { GoOn(rank); };
    for (size_t shard = 0; shard < shards_.size(); ++shard) {
      Pull(rank, shard, clock, 0);
    }
  }

  // Values of worker.clock have come.
  void GoOn(uint32_t rank) {
    Worker& worker = workers_[rank];
    // The last step is made in any case.
    const int64_t open = std::min(worker.open_clock, clocks_ - 1);
    if (rank == 0 && cut_ < cuts_.size()) {
      Expect(worker.open_clock <= cuts_[cut_],
             "the chief's cut is behind the open clock");
    }
    if (open > worker.clock && worker.pulls < pulls_max_) {
      result_.jumps += removed_.count(rank) == 0;
      if (ReadsCutAt(rank, open)) return ReadCut(open);
      return PullAll(rank, open);
    }
    if (open > worker.clock) result_.late_steps += removed_.count(rank) == 0;
    if (ReadsCutAt(rank, worker.clock)) return ReadCut(worker.clock);
    const bool stops = IsStopped(worker) && !worker.has_woken &&
                       worker.clock >= *worker.stops_at;
    if (stops && (worker.has_stopped || Chance(0.5))) return Stop(rank);
    After(worker.step * (0.5 + Draw(0, 100) / 100.0),
          [this, rank] { PushAll(rank); });
  }

  bool ReadsCutAt(uint32_t rank, int64_t clock) const {
    return rank == 0 && cut_ < cuts_.size() && cuts_[cut_] == clock;
  }

  void PushAll(uint32_t rank) {
    Worker& worker = workers_[rank];
    const int64_t clock = worker.clock;
    const bool is_last = clock + 1 == clocks_;
    const bool pulls = !is_last && !ReadsCutAt(rank, clock + 1);
    // A worker that wakes up sends again what it had begun to send.
    const auto [push, is_new] = pushes_.try_emplace({rank, clock});
    Push& pushed = push->second;
    if (is_new) {
      pushed.read = worker.read;
      for (const auto& [lost, first_clock] : worker.lost) {
        if (first_clock <= clock) pushed.without.insert(lost);
      }
      for (BlockIndex block = 0; block < kBlocks; ++block) {
        if (Chance(0.9)) pushed.blocks.insert(block);
      }
      pushed.samples = pushed.blocks.empty() ? 0 : 8;
    }
    const auto messages = std::max<size_t>(1, pushed.blocks.size());
    const bool stops =
        IsStopped(worker) && !worker.has_woken && clock >= *worker.stops_at;
    worker.waits_for = static_cast<int>(
        shards_.size() * (messages + (pulls && messages < 2 ? 1 : 0)));
    worker.pushes = true;
    worker.then = [this, rank, clock, pulls] { EndStep(rank, clock, pulls); };
    for (size_t shard = 0; shard < shards_.size(); ++shard) {
      PushFacts facts;
      facts.clock = clock;
      facts.sample_count = pushed.samples;
      facts.blocks_in_clock = static_cast<uint32_t>(pushed.blocks.size());
      facts.finished = is_last;
      // A worker that stops has sent a part.
      if (stops && Chance(0.5)) continue;
      if (pushed.blocks.size() < kBlocks && pulls) {
        Pull(rank, shard, clock + 1, 0);
      }
      if (pushed.blocks.empty()) {
        PushOne(rank, shard, facts, std::nullopt);
        continue;
      }
      for (const BlockIndex block : pushed.blocks) {
        facts.blocks = {block};
        PushOne(rank, shard, facts,
                pulls && pushed.blocks.size() == kBlocks
                    ? std::optional(PullFacts{clock + 1, {block}})
                    : std::nullopt);
      }
    }
    if (!stops) return;
    worker.then = [] {};
    Stop(rank);
  }

  void PushOne(uint32_t rank, size_t shard, const PushFacts& facts,
               std::optional<PullFacts> pull) {
    Send(rank, shard, facts, pull,
         [this, rank, shard, pull](const ShardAction& answer) {
           if (pull.has_value()) {
             const BlockIndex block = pull->blocks[0];
             workers_[rank].read[{shard, block}] =
                 shards_[shard].applied[block].size();
           }
           Heard(rank, answer);
         });
  }

  // As Trainer: it may have been left behind, and goes on at the open clock.
  void EndStep(uint32_t rank, int64_t clock, bool pulled) {
    Worker& worker = workers_[rank];
    worker.pulls = 0;
    const bool sent_again = std::exchange(worker.sent_again, false);
    if (pulled) {
      const bool told = worker.open_clock > clock && worker.applied <= clock;
      const auto set = sets_.find(clock);
      Expect(set != sets_.end(), "an answer before the set is fixed");
      if (set != sets_.end()) {
        Expect(told == (set->second.count(rank) == 0),
               absl::StrCat("worker ", rank, " was told the contrary of clock ",
                            clock));
      }
      result_.told_again += told && sent_again;
      result_.left_behind += told && removed_.count(rank) == 0;
    }
    if (clock + 1 == clocks_) {
      if (ReadsCutAt(rank, clocks_)) return ReadCut(clocks_);
      return Finish(rank);
    }
    worker.clock = clock + 1;
    if (!pulled) return ReadCut(clock + 1);
    GoOn(rank);
  }

  void ReadCut(int64_t clock) {
    Worker& worker = workers_[0];
    worker.waits_for = static_cast<int>(shards_.size());
    worker.clock = clock;
    worker.then = [this, clock] {
      const size_t cut = cut_++;
      for (size_t shard = 0; shard < shards_.size(); ++shard) {
        if (cut_ < cuts_.size()) Announce(shard, cut_);
      }
      const bool moves = history_.moves && clock < clocks_ && Chance(0.5);
      if (moves) Move(cut + 1);
      for (size_t shard = 0; !moves && shard < shards_.size(); ++shard) {
        After(Delay(), [this, shard, cut] {
          ShardActions actions;
          const absl::Status ended = shards_[shard].controller->OnEndCut(
              0, 0, cut + 1, now_, &actions);
          Expect(ended.ok(), ended.ToString());
          Take(shard, actions);
        });
      }
      if (clock == clocks_) return Finish(0);
      PullAll(0, clock);
    };
    for (size_t shard = 0; shard < shards_.size(); ++shard) {
      Pull(0, shard, clock, cut_ + 1);
    }
  }

  void Finish(uint32_t rank) {
    Worker& worker = workers_[rank];
    if (ReadsCutAt(rank, clocks_)) return ReadCut(clocks_);
    worker.done = true;
  }

  // --- The end ---

  // How many updates a block has before `clock`, as the sets say.
  size_t UpdatesBefore(BlockIndex block, int64_t clock) {
    size_t updates = 0;
    for (const auto& [of, set] : sets_) {
      if (of >= clock) break;
      updates += std::any_of(set.begin(), set.end(), [&, of = of](uint32_t r) {
        return pushes_[{r, of}].blocks.count(block) > 0;
      });
    }
    return updates;
  }

  void CheckEnd() {
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
      Expect(workers_[rank].done || IsStopped(workers_[rank]),
             absl::StrCat("worker ", rank, " waits at clock ",
                          workers_[rank].clock));
    }
    Expect(arbiter_->waiting() == 0, "a shard waits for a set");
    Expect(sets_.size() == static_cast<size_t>(clocks_), "a clock has no set");
    for (size_t shard = 0; shard < shards_.size(); ++shard) {
      const ConsistencyController& controller = *shards_[shard].controller;
      Expect(controller.parked_pulls() + controller.parked_pushes() == 0,
             "a call is parked");
      Expect(shards_[shard].snapshots.size() == cuts_.size(),
             "a cut is missing");
      for (const auto& [rank, first_clock] : lost_) {
        Expect(controller.worker(rank).finished() &&
                   controller.worker(rank).closed() == first_clock &&
                   controller.behind(rank).clocks == 0,
               "a lost worker goes on at a shard");
      }
      for (BlockIndex block = 0; block < kBlocks; ++block) {
        Expect(shards_[shard].buffered[block].empty(), "a gradient is left");
        Expect(shards_[shard].applied[block].size() ==
                   UpdatesBefore(block, clocks_),
               "a clock is not applied");
      }
    }
    for (const auto& [clock, set] : sets_) {
      std::set<uint32_t> lost;
      for (const auto& [rank, first_clock] : lost_) {
        if (first_clock <= clock) lost.insert(rank);
        result_.lost_parts += first_clock == clock + 1 && set.count(rank) > 0;
      }
      for (const uint32_t rank : set) {
        Expect(pushes_[{rank, clock}].without == lost,
               absl::StrCat("worker ", rank, " shares clock ", clock,
                            " with other workers than there are"));
        Expect(lost.count(rank) == 0, "a lost worker counts");
        for (const auto& [where, updates] : pushes_[{rank, clock}].read) {
          Expect(updates == UpdatesBefore(where.second, clock),
                 absl::StrCat("worker ", rank, " computed clock ", clock,
                              " from other values"));
        }
      }
    }
    for (const auto& [shard, block, clock, updates] : snapshots_) {
      Expect(updates == UpdatesBefore(block, clock),
             absl::StrCat("the cut at clock ", clock, " is torn on shard ",
                          shard));
    }
  }

  struct CutRead {
    size_t shard;
    BlockIndex block;
    int64_t clock;
    size_t updates;
  };

  const QuorumHistory history_;
  std::mt19937_64 random_;
  absl::Time now_ = absl::UnixEpoch();
  int64_t events_ = 0;
  uint64_t token_ = 0;
  std::priority_queue<Event> queue_;
  size_t needed_ = 0;
  int64_t clocks_ = 0;
  std::vector<int64_t> cuts_;
  size_t cut_ = 0;     // that the chief reads next
  int pulls_max_ = 1;  // after a step, before a worker makes the next one
  std::vector<Worker> workers_;
  std::set<uint32_t> removed_;        // that the arbiter was told of
  std::map<uint32_t, int64_t> lost_;  // as a shard has said: the first clock
  std::vector<Shard> shards_;
  ConsistencyController::Options shard_options_;
  QuorumArbiter::Options arbiter_options_;
  std::unique_ptr<QuorumArbiter> arbiter_;
  struct Call {
    uint32_t rank = 0;
    int life = 0;
    Done done;
  };
  std::map<CallToken, Call> calls_;
  std::map<uint64_t, std::pair<size_t, int64_t>> asking_;
  std::map<int64_t, size_t> norms_;
  std::map<int64_t, std::set<uint32_t>> sets_;
  std::map<std::pair<uint32_t, int64_t>, Push> pushes_;
  std::vector<CutRead> snapshots_;
  QuorumResult result_;
};

}  // namespace

QuorumResult SimulateQuorum(const QuorumHistory& history) {
  return World(history).Run();
}

}  // namespace syncline::ps

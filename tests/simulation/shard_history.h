#ifndef SYNCLINE_TESTS_SIMULATION_SHARD_HISTORY_H_
#define SYNCLINE_TESTS_SIMULATION_SHARD_HISTORY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/random.h"
#include "common/regime/live_regimes.h"
#include "common/update/dense_updater.h"
#include "server/consistency/consistency_controller.h"
#include "tests/simulation/shard_script.h"
#include "tests/simulation/shard_simulation.h"

namespace syncline {

// Virtual time: events happen in order of their times.
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

// One history in virtual time: the workers, the network and the shard's shell,
// each an actor of the agenda, and the rules that are checked throughout.
class ShardHistory {
 public:
  explicit ShardHistory(const SimulationOptions& options);
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

  void ChangeRegime();

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
  std::vector<int64_t> ChooseCut(bool even);
  void AnnounceCut(std::function<void()> then, bool even = false);
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
  void CheckSnapshot(const ps::ShardAction& action);
  void CheckCutState(const ps::PullFacts& pull, ps::BlockIndex block);
  void CheckNobodyWaitsInVain();
  bool MayReadWholeShard(uint32_t rank, int64_t clock) const;
  // Clocks of another worker that a value of `clock` must have.
  int64_t NeededOfOthers(int64_t clock) const;
  // The clock that all must have closed before a push of `clock` is accepted.
  int64_t NeededBeforePush(int64_t clock) const;
  bool AllHaveClosed(int64_t clocks) const;
  void CheckEnd();
  std::vector<float> ExpectedOfRegimes(ps::BlockIndex block) const;
  bool AllDone() const;
  void Broken(const std::string& rule) {
    if (broken_.empty()) broken_ = rule;
  }

  const SimulationOptions options_;
  const ShardScript script_;
  RegimeSchedule regimes_;  // as the controller knows them
  LiveRegimes live_regimes_;
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

}  // namespace syncline

#endif  // SYNCLINE_TESTS_SIMULATION_SHARD_HISTORY_H_

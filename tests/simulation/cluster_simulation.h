#ifndef SYNCLINE_TESTS_SIMULATION_CLUSTER_SIMULATION_H_
#define SYNCLINE_TESTS_SIMULATION_CLUSTER_SIMULATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/random.h"
#include "scheduler/cluster_core.h"

namespace syncline {

// A cluster in simulated time around a real ClusterCore: daemons that join,
// die, fall silent, lose their stream, answer late, twice or never; users who
// submit and cancel; a scheduler that is killed and starts again from what it
// had made durable. Everything follows from the seed.
class ClusterSimulation {
 public:
  explicit ClusterSimulation(uint64_t seed);

  // Chaos for a while, then peace: enough daemons, all of them behaving, until
  // nothing more can happen.
  void Run();

  // The rules that were broken, with the time; empty if none was.
  const std::vector<std::string>& violations() const { return violations_; }
  // That the history was worth it.
  int submitted() const { return static_cast<int>(seen_.size()); }
  int ended_in(JobState state) const;
  int losses() const { return losses_; }
  int restarts() const { return restarts_; }
  int repeated_messages() const { return repeated_; }

 private:
  struct Daemon {
    TaskType type;
    uint32_t index;
    uint64_t incarnation = 0;
    bool alive = false;
    SessionId session = 0;    // 0: none
    std::string job_id = {};  // what it works for
    bool stopping = false;
  };
  // Of a stream, which keeps the order of its messages each way.
  struct Stream {
    size_t daemon = 0;
    bool open = true;  // as the scheduler sees it
    absl::Time last_up;
    absl::Time last_down;
    absl::Time lost = absl::InfiniteFuture();  // when its daemon left it
  };
  // The last seen state of a job.
  struct Seen {
    JobState state = QUEUED;
    int transitions = 0;
  };
  struct Event {
    absl::Time time;
    uint64_t order;
    std::function<void()> run;
    bool operator>(const Event& other) const {
      return std::pair(time, order) > std::pair(other.time, other.order);
    }
  };

  void After(absl::Duration delay, std::function<void()> run);
  void At(absl::Time time, std::function<void()> run);
  void RunUntil(absl::Time end);
  absl::Duration Delay(absl::Duration most);
  bool Chance(double probability);
  void Violation(const std::string& what);

  // The scheduler's side.
  void Feed(const std::function<void(ClusterActions*)>& event);
  void Execute(const ClusterActions& actions);
  void RestartScheduler();
  void Tick();
  void Submit();
  void CancelSomething();
  bool IsQuiet() const;
  void Check(const ClusterActions& actions);
  void CheckJob(const Job& job);
  // Whoever does not may be overtaken.
  bool FitsIntoTheCluster(const Job& job) const;
  void CheckEnd();

  // The daemons' side.
  void Start(size_t daemon);
  void Connect(size_t daemon);
  void Kill(size_t daemon);
  void BreakStream(size_t daemon);
  void OnStreamGone(SessionId session);
  void Say(size_t daemon, DaemonMessage message);
  void Hear(size_t daemon, SessionId session, const SchedulerMessage& message);
  void OnPrepare(size_t daemon, const JobAssignment& assignment);
  void OnRun(size_t daemon, const std::string& job_id);
  void OnStop(size_t daemon, const std::string& job_id);
  void Beat(size_t daemon, SessionId session);
  void Wreak();  // one random misfortune

  Random random_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  bool chaos_ = true;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t next_order_ = 0;
  uint64_t next_incarnation_ = 1;
  SessionId next_session_ = 1;

  std::unique_ptr<ClusterCore> core_;
  std::map<std::string, StoredJob> durable_;
  std::vector<Daemon> daemons_;
  std::map<SessionId, Stream> streams_;

  std::map<std::string, Seen> seen_;
  std::vector<std::string> violations_;
  int losses_ = 0;
  int restarts_ = 0;
  int repeated_ = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_SIMULATION_CLUSTER_SIMULATION_H_

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
#include "scheduler/core/cluster/cluster_core.h"

namespace syncline {

// A cluster in simulated time around a real ClusterCore: daemons that join,
// die, fall silent, lose their stream and come back, answer late, twice or
// never; users who submit and cancel; a scheduler that is frozen for up to 30
// s, and one that is killed and starts again, up to 20 s later, from what it
// had made durable: its jobs go on meanwhile. Everything follows from the seed.
class ClusterSimulation {
 public:
  // Jobs ask to be restarted until they had so many attempts, and have
  // checkpoints then, which come, fail, or turn out to be unreadable.
  // With `restarts_often` half of the misfortunes are the scheduler's. With
  // `elastic` jobs go on with other numbers of workers, by their spec and as
  // users say. REQUIRES: attempts_max > 1 with `elastic`.
  explicit ClusterSimulation(uint64_t seed, uint32_t attempts_max = 1,
                             bool restarts_often = false, bool elastic = false);

  // Chaos for a while, then peace: enough daemons, all of them behaving, until
  // nothing more can happen.
  void Run();

  // The rules that were broken, with the time; empty if none was.
  const std::vector<std::string>& violations() const { return violations_; }
  // Counts that show that a history had something to check.
  int submitted() const { return static_cast<int>(seen_.size()); }
  int ended_in(JobState state) const;
  // Jobs that ended well after their first attempt.
  int retried() const { return retried_; }
  // Attempts that began at a checkpoint; checkpoints that were unreadable.
  int resumed() const { return resumed_; }
  int unreadable() const { return unreadable_; }
  // Messages of an earlier attempt than the job's that came to the scheduler.
  int late_messages() const { return late_; }
  int losses() const { return losses_; }
  int restarts() const { return restarts_; }
  // Jobs that were prepared or ran when the scheduler was killed, and that
  // ended well in the same attempt.
  int outlived_restarts() const { return outlived_restarts_; }
  int freezes() const { return freezes_; }
  // Jobs that a scheduler had running when it was frozen for longer than the
  // keep-alive, and that ended well.
  int outlived_freezes() const { return outlived_freezes_; }
  int repeated_messages() const { return repeated_; }
  // Scalings that users have asked for; attempts with fewer workers than the
  // job should have, and with more than the one before; planned moves.
  int scaled() const { return scaled_; }
  int begun_short() const { return begun_short_; }
  // Workers that were lost and did not end an attempt.
  int outlived() const { return outlived_; }
  int grown() const { return grown_; }
  int moved() const { return moved_; }
  // Checkpoints that an evaluator has scored, or said that it could not; and
  // jobs with such evaluations that ended well.
  int scored() const { return scored_; }
  int not_scored() const { return not_scored_; }
  int ended_scored() const { return ended_scored_; }

 private:
  // Events that wait while the scheduler is frozen are handled within.
  static constexpr absl::Duration kCatchUp = absl::Milliseconds(200);

  struct Daemon {
    TaskType type;
    uint32_t index;
    uint64_t incarnation = 0;
    bool alive = false;
    scheduler::SessionId session = 0;  // 0: none
    std::string job_id = {};           // what it works for
    uint32_t attempt = 0;              // of that job
    int64_t start_clock = 0;           // of that attempt
    int64_t clock = 0;                 // that it has told of last
    bool is_chief = false;             // of that job
    // It is the evaluator of a job whose checkpoints are evaluated.
    bool evaluates_checkpoints = false;
    bool stopping = false;
    bool running = false;
    bool machine_gone = false;  // with the process: no answer comes
    absl::Time away_until = absl::InfinitePast();  // it does not connect
    // The messages that it repeats when it has registered again.
    std::vector<DaemonMessage> said = {};
  };
  // Of a stream, which keeps the order of its messages each way.
  struct Stream {
    size_t daemon = 0;
    bool open = true;  // as the scheduler sees it
    absl::Time last_up;
    absl::Time last_down;
    absl::Time handled;  // what comes next is, no sooner
    // When its daemon died, by the core's clock.
    absl::Time lost = absl::InfiniteFuture();
  };
  // The last seen state of a job.
  struct Seen {
    JobState state = QUEUED;
    int transitions = 0;
    uint32_t attempt = 0;
    int64_t checkpoint = 0;  // the clock of the last one
    uint32_t workers = 0;    // of the last attempt
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

  // The scheduler's side. Its clock stands still while it is frozen.
  bool frozen() const { return now_ < awake_at_; }
  absl::Time CoreNow();
  void Freeze();
  // Runs `event` of this stream when the scheduler gets to it.
  void Arrive(scheduler::SessionId session, std::function<void()> event);
  void Ask(const scheduler::ConfirmAddress& ask);
  void CheckLoss(const std::string& reason);
  void Feed(const std::function<void(scheduler::ClusterActions*)>& event);
  void Execute(const scheduler::ClusterActions& actions);
  void KillScheduler();
  void StartScheduler();
  void Tick();
  void Submit();
  void CancelSomething();
  bool IsQuiet() const;
  void Check(const scheduler::ClusterActions& actions);
  void CheckJob(const scheduler::Job& job);
  void CheckAttempts(const JobStatus& status, const Seen& seen);
  // Where this attempt begins, by what is on disk.
  void CheckStart(const JobAssignment& assignment);
  // The scheduler would give this member a job.
  bool IsFree(scheduler::SessionId session) const;
  bool HasEvaluator() const;
  // A job that does not fit may be overtaken.
  bool FitsIntoTheCluster(const scheduler::Job& job) const;
  // Runs `take`, in which the scheduler is handed the message. If it is of an
  // earlier attempt than its job's, the job must stay as it is.
  void CheckLate(const DaemonMessage& message,
                 const std::function<void()>& take);
  void CheckEnd();
  // cluster_simulation_scale.cc.
  void MakeElastic(JobSpec* spec);
  void ScaleSomething();
  void CheckWorkers(const JobStatus& status, const Seen& seen);
  void CheckPause(const JobStatus& status);
  void CheckSamples(const JobAssignment& assignment);
  void CheckLosses(const JobStatus& status, const Seen& seen);

  // The daemons' side.
  void Start(size_t daemon);
  void Connect(size_t daemon);
  void Kill(size_t daemon);
  void BreakStream(size_t daemon);
  void OnStreamGone(scheduler::SessionId session);
  void Say(size_t daemon, DaemonMessage message);
  void Send(size_t daemon, scheduler::SessionId session,
            const DaemonMessage& message);
  void Take(scheduler::SessionId session, const DaemonMessage& message);
  void Hear(size_t daemon, scheduler::SessionId session,
            const SchedulerMessage& message);
  void OnPrepare(size_t daemon, const JobAssignment& assignment);
  void OnRun(size_t daemon, const RunJob& run);
  // The chief's report of a checkpoint at `clock`, whole or not.
  void SayCheckpoint(size_t daemon, int64_t clock);
  void OnWriteCheckpoint(size_t daemon, const WriteCheckpoint& write);
  // An evaluator scores the checkpoint, or cannot read it; or it is done.
  void OnEvaluate(size_t daemon, const EvaluateCheckpoint& command);
  void OnStop(size_t daemon, const StopJob& stop);
  bool WorksFor(size_t daemon, const std::string& job_id,
                uint32_t attempt) const {
    return daemons_[daemon].job_id == job_id &&
           daemons_[daemon].attempt == attempt;
  }
  scheduler::ClusterCore::Options CoreOptions() const;
  void Beat(size_t daemon, scheduler::SessionId session);
  static Member MemberOf(const Daemon& daemon);
  void Wreak();  // one random misfortune

  const uint32_t attempts_max_;
  const bool restarts_often_;
  const bool elastic_;
  Random random_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  bool chaos_ = true;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t next_order_ = 0;
  uint64_t next_incarnation_ = 1;
  scheduler::SessionId next_session_ = 1;

  std::unique_ptr<scheduler::ClusterCore> core_;
  std::map<std::string, scheduler::StoredJob> durable_;
  std::vector<Daemon> daemons_;
  std::map<scheduler::SessionId, Stream> streams_;
  std::map<uint64_t, size_t> processes_;  // daemons by incarnation

  std::map<std::string, Seen> seen_;
  std::vector<std::string> violations_;
  int retried_ = 0;
  int resumed_ = 0;
  int unreadable_ = 0;
  int late_ = 0;
  int losses_ = 0;
  int restarts_ = 0;
  int outlived_restarts_ = 0;
  int repeated_ = 0;
  int scaled_ = 0;
  int begun_short_ = 0;
  int outlived_ = 0;
  int grown_ = 0;
  int moved_ = 0;
  int freezes_ = 0;
  int outlived_freezes_ = 0;
  int scored_ = 0;
  int not_scored_ = 0;
  int ended_scored_ = 0;
  // By job: the checkpoints that its evaluator has answered for.
  std::map<std::string, std::set<std::string>> answered_;
  absl::Time awake_at_ = absl::InfinitePast();
  absl::Duration lag_;  // of the core's clock
  absl::Time core_now_ = absl::InfinitePast();
  std::set<std::string> was_frozen_;  // jobs that ran then
  // Jobs that were prepared or ran when the scheduler was killed, and in which
  // attempt.
  std::map<std::string, uint32_t> was_left_;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_SIMULATION_CLUSTER_SIMULATION_H_

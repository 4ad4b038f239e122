#ifndef SYNCLINE_WORKER_TRAINING_REGIME_CHANGER_H_
#define SYNCLINE_WORKER_TRAINING_REGIME_CHANGER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "worker/data/epochs.h"
#include "worker/exchange/parameter_exchange.h"
#include "worker/job/prepared_job.h"

namespace syncline::worker {

// Changes how the ranks of a job train while it runs: the chief's part of it,
// around its steps.
//
//   BeforeStep(c)  a change is wanted: a cut is announced at all shards, with
//                  the regime that is to begin there
//   steps          until this rank is at the cut
//   Commit         when all ranks are there: the regime is in force
//
// The cut is at one clock of all ranks. Ranks that are ahead wait there for
// those that are behind, which come up to it by the regime before.
//
// Up to Commit a change that does not come about leaves everything as it was,
// and the report says why. Commit is the one step after which shards have the
// regime; if it fails, the job does.
//
// The job may want changes of its own (Try), too. They go behind those that
// people, or rules, ask for: one that is under way, and not made, is taken back
// for them.
class RegimeChanger {
 public:
  static constexpr absl::Duration kTriedFor = absl::Seconds(10);

  // How a change has ended. One that gave way is not reported.
  enum class End { kMade, kFailed, kGaveWay };
  using OnEnd = std::function<void(bool is_own, End end,
                                   const RegimeTransition& transition)>;
  // The objects that are referred to outlive this. `report` is told what has
  // become of each change, on the training thread, or on that of Request.
  // `on_end`: the same behind it, on the training thread alone, so without the
  // changes that were refused by Request; may be null.
  RegimeChanger(const PreparedJob& job, const Epochs& epochs,
                ParameterExchange* parameters,
                std::function<void(const RegimeTransition&)> report,
                OnEnd on_end = nullptr);

  // A change is wanted. One at a time: another one is refused. A repeat of the
  // present one, or of the last that was made, is ignored. Thread-safe.
  void Request(const RegimeChange& change, const std::string& reason)
      ABSL_LOCKS_EXCLUDED(mu_);

  // The job's own change, of the training thread: it is to be in force at this
  // clock, or later where ranks are past it; 0: as soon as possible. Takes the
  // place of an own one that is not made yet. False: a change that Request has
  // brought is not made yet, and goes first; this one is not taken.
  bool Try(const RegimeChange& change, const std::string& reason,
           int64_t not_before) ABSL_LOCKS_EXCLUDED(mu_);
  // Tells a decision of the job that changes nothing: as a change into the
  // regime in force. The training thread's.
  void TellStay(const std::string& decision);
  // An own change is wanted, and not announced.
  bool HasOwnToAnnounce() const ABSL_LOCKS_EXCLUDED(mu_);
  // Takes back an own change that is announced where another one is to take its
  // place. The training thread's, before a step. Errors: those that end the
  // job.
  absl::Status GiveWay(int64_t clock) ABSL_LOCKS_EXCLUDED(mu_);

  // The training thread's. Blocks for a round trip where a change is wanted,
  // and for some more while ranks run past the cut. Where a member refuses the
  // cut because another one is in its way, it is asked for again before the
  // next steps, for kTriedFor. `now` is by the monotonic clock. Errors: those
  // that end the job.
  absl::Status BeforeStep(int64_t clock, absl::Time now = MonotonicNow());
  // A cut is announced that has not ended.
  bool IsOpen() const { return open_.has_value(); }
  // The clock of that cut. REQUIRES: IsOpen().
  int64_t clock() const { return open_->regime.first_clock(); }
  // The cut is in the way of another one: ends it, and tries again later.
  absl::Status PutOff(int64_t clock);
  // At the cut: waits for the other ranks, and has the regime begin. If it
  // cannot, the job goes on as before, and IsOpen() is false. Errors: those
  // that end the job.
  absl::Status Commit(int64_t clock);
  // A change to another exchange is wanted, and not announced: a checkpoint
  // that begins now would be in its way. The training thread's.
  bool WantsOtherExchange() const ABSL_LOCKS_EXCLUDED(mu_);
  // After Commit, when this rank goes on.
  void ReportDone();
  // No step follows: what is wanted or announced is given up.
  void Finish();

 private:
  struct Wanted {
    std::string encoded;  // RegimeChange
    std::string reason;
    bool is_own = false;  // Try
    int64_t not_before = 0;

    friend bool operator==(const Wanted&, const Wanted&) = default;
  };
  struct OpenCut {
    uint64_t id = 0;
    Regime regime;
    absl::Time waiting_since = absl::InfiniteFuture();
  };

  std::optional<Wanted> TakeWanted() const ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Announce(int64_t clock, const Wanted& wanted, absl::Time now);
  // Nothing has changed; says why.
  void Fail(const absl::Status& why);
  void Report(RegimeTransition transition) ABSL_LOCKS_EXCLUDED(mu_);

  const PreparedJob& job_;
  const Epochs epochs_;
  ParameterExchange* const parameters_;
  const std::function<void(const RegimeTransition&)> report_;
  const OnEnd on_end_;
  uint32_t announced_ = 0;  // cuts
  std::optional<OpenCut> open_;
  // When what is wanted was first refused for another cut.
  absl::Time refused_since_ = absl::InfiniteFuture();
  bool replaced_ = false;  // the open cut is of an own change before wanted_

  mutable Mutex mu_;
  // Until it is reported.
  std::optional<Wanted> wanted_ ABSL_GUARDED_BY(mu_);
  std::optional<Wanted> last_made_ ABSL_GUARDED_BY(mu_);
  // While wanted_ is an own one: what Request has brought.
  std::optional<Wanted> waiting_ ABSL_GUARDED_BY(mu_);
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_REGIME_CHANGER_H_

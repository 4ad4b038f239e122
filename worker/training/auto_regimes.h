#ifndef SYNCLINE_WORKER_TRAINING_AUTO_REGIMES_H_
#define SYNCLINE_WORKER_TRAINING_AUTO_REGIMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/job/auto_regime_rules.h"
#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"
#include "worker/training/loss_window.h"

namespace syncline::worker {

// Decides how a job trains that looks for that by itself (JobSpec.auto_regime):
// the steps of the chief come in, changes of the regime with their reasons come
// out. Pure: no clock, no thread; thread-compatible.
//
//   in force | window | trial of A | window | trial of B | window | decision
//            |  before A           | after A, before B   | after B
//
// A window is of the regime in force. A trial is of a candidate, of exactly
// TrialPlan.window clocks, and followed by the way back. The first quarter of
// windows and trials is for settling, and does not count. A candidate is
// compared with the regime in force as it was before and behind it, by the fall
// of the training loss per second: so it matters little that the loss falls
// ever more slowly. It wins only if it is better by the gain, and by more than
// the errors of both lines allow for; else the regime in force stays. Of
// several that win, the one with the largest ratio is kept.
//
// A candidate whose loss is not finite, or rises clearly, is left at once. That
// one, and one that could not be made, is not tried again. Rounds of trials are
// spread over the job, as long as the budget lasts. A change of the regime by
// somebody else ends the trials for good.
class AutoRegimes {
 public:
  struct Options {
    JobSpec spec;
    uint32_t workers = 1;
    // In force at the first clock, and the others that the job may train by.
    Regime current = {};
    std::vector<Regime> candidates = {};
    TrialPlan plan = {};
    int64_t spent = 0;  // of its budget, by attempts before this one
    int64_t first_clock = 0;
    int64_t clocks_total = 0;
  };
  // REQUIRES: a plan whose window is not 0.
  explicit AutoRegimes(Options options);

  // The decision before the next step: another regime, or, where `change`
  // is unset, a decision that changes nothing and is to be told.
  struct Action {
    std::optional<RegimeChange> change = {};
    // The clock at which it is to be in force; 0: as soon as possible. Takes
    // the place of a change that was asked for and is not made.
    int64_t at = 0;
    std::string reason = {};
  };
  // Asked before step `clock`. An action is given once.
  std::optional<Action> Next(int64_t clock);

  // The chief has made step `clock`, in so long, with this mean loss of its
  // samples; NaN: the step was left out, since its loss or its gradient was not
  // finite; none: it had no sample.
  void OnStep(int64_t clock, absl::Duration took, std::optional<double> loss);

  // The outcome of the change that Next has asked for: it is in force, from
  // this regime's first clock on; it is not to be had; it was taken back for a
  // change by somebody else, which is still to be made.
  void OnMade(const Regime& regime);
  void OnFailed(absl::string_view why);
  void OnGaveWay();
  // Somebody else has changed the regime.
  void OnOthersChange();
  // Leaves the candidate that is being tried as soon as possible, for the sake
  // of something that cannot be done meanwhile; it may be tried again.
  void Interrupt(absl::string_view why);

  bool ended() const { return state_ == State::kEnded; }
  // A candidate is in force that was not decided for.
  bool is_trying() const { return state_ == State::kTrying; }
  // Clocks in candidates so far, but for a trial that goes on.
  int64_t spent() const { return spent_; }
  // In force outside of trials.
  const Regime& kept() const { return regimes_[kept_].regime; }

 private:
  enum class State {
    kIdle,     // until the next round begins
    kBefore,   // a window of the regime in force
    kToTrial,  // a candidate is asked for
    kTrying,   // in it; the way back is asked for
    kAfter,    // a window of the regime in force
    kToKeep,   // the winner is asked for
    kEnded,
  };
  struct Known {
    Regime regime;
    std::string name;
    bool banned = false;  // it has failed
  };
  // Of one candidate in the present round.
  struct Result {
    size_t candidate = 0;
    LossTrend before = {};
    LossTrend trial = {};
    LossTrend after = {};
    std::string failure = {};  // not empty: it was left, or not made
  };
  struct Ask {
    size_t target = 0;
    int64_t at = 0;
    std::string reason = {};
    bool given = false;
    int64_t not_before = 0;  // another try
  };
  struct Verdict {
    bool better = false;
    double ratio = 0;
    std::string text;
  };

  void BeginRound(int64_t clock);
  void BeginWindow(State state, int64_t clock);
  void AskFor(size_t target, int64_t at, std::string reason);
  // The next candidate of the round, or its decision.
  void TryNext(int64_t clock);
  void Decide();
  void EndRound();
  void End(std::string why);
  // The trial is over before its last clock, or will not be repeated.
  void Leave(const std::string& why, bool for_good);
  void OnTrialStep(std::optional<double> loss);
  bool CanTry(size_t candidate) const;
  // The budget and the job have room for one more trial.
  bool HasRoom(int64_t clock) const;
  int64_t RoundBegin(int round) const;
  int64_t settle() const;
  Verdict Judge(const Result& result) const;
  // "ASYNC 0.031 against 0.021, better; ..."
  std::string Texts() const;

  const Options options_;
  std::vector<Known> regimes_;
  size_t kept_ = 0;
  State state_ = State::kIdle;
  int round_ = 0;
  size_t next_candidate_ = 0;  // of all rounds: each has its turn
  size_t asked_in_round_ = 0;
  int64_t spent_ = 0;
  int64_t clock_ = 0;  // of the next step

  int64_t window_begin_ = 0;
  LossWindow window_;
  LossTrend before_;
  std::vector<Result> results_;  // of the present round
  // Of a trial.
  double mean_ = 0;  // of its last losses, roughly
  int64_t losses_ = 0;
  bool leaving_ = false;
  int failed_returns_ = 0;

  std::optional<Ask> ask_;
  std::string note_;  // not empty: to be told
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_AUTO_REGIMES_H_

#ifndef SYNCLINE_SCHEDULER_CORE_JOB_REGIME_POLICY_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_REGIME_POLICY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"

namespace syncline::scheduler {

// Decides by a job's own rules (JobSpec.regimes) when its regime changes: what
// the members report comes in, changes with their reasons come out. Each rule
// is applied once. Pure; thread-compatible. REQUIRES: a validated spec.
class RegimePolicy {
 public:
  // A job of so many workers begins an attempt; `history` has the rules that
  // were applied and still hold.
  RegimePolicy(const JobSpec& spec, uint32_t workers, const JobStatus& history);

  struct Decision {
    RegimeChange change;
    std::string reason;  // "rule 1: mean training loss 0.48 is below 0.5"
  };

  // All workers have made the steps before `clock`; `epochs` passes are done.
  void OnClock(int64_t clock, int64_t epochs);
  // The mean training loss over the workers.
  void OnLoss(double loss);
  void OnEvaluation(const Evaluation& evaluation);
  // A worker's report: steps made, and seconds of its own work for them,
  // without its waits for others.
  void OnWork(uint32_t rank, int64_t clock, double seconds, absl::Time now);

  // The others go on without this worker.
  void Lose(uint32_t rank) {
    if (rank < work_.size()) work_[rank].lost = true;
  }

  // The first rule whose condition has come true and that was not given out
  // before.
  std::optional<Decision> Next();

 private:
  struct Rule {
    RegimeRule spec;
    bool applied = false;
    std::string why;  // not empty: its condition has come true
    // PLATEAU: the test loss of the last improvement, and the evaluations
    // since.
    std::optional<double> best_loss;
    int evaluations = 0;
  };
  // Of one worker in the present window.
  struct Work {
    bool known = false;
    int64_t first_clock = 0;
    double first_seconds = 0;
    int64_t clock = 0;
    double seconds = 0;
    bool lost = false;
  };

  template <typename Condition>
  void Check(Condition condition);
  // By rank: seconds for a step in the window that ends now, kLost of a worker
  // that the job goes on without; empty: some other worker has reported
  // nothing, or made no step.
  std::vector<double> StepSeconds() const;

  std::vector<Rule> rules_;
  std::vector<Work> work_;  // by rank
  absl::Time window_began_ = absl::InfinitePast();
};

// "rule 2: ", with which the reasons of rule 2 begin.
std::string RulePrefix(size_t rule);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_REGIME_POLICY_H_

#ifndef SYNCLINE_WORKER_TRAINING_REGIME_TRIALS_H_
#define SYNCLINE_WORKER_TRAINING_REGIME_TRIALS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "worker/data/epochs.h"
#include "worker/job/prepared_job.h"
#include "worker/training/auto_regimes.h"
#include "worker/training/regime_changer.h"

namespace syncline::worker {

// Has the decisions of AutoRegimes made, told and logged: the chief's part of
// JobSpec.auto_regime, around its steps. The training thread's.
class RegimeTrials {
 public:
  // `changer` outlives this. REQUIRES: TrialProblem is empty.
  RegimeTrials(const PreparedJob& job, const Epochs& epochs,
               RegimeChanger* changer);

  // Asks the changer for what is due. `is_checkpoint_wanted`: somebody waits
  // for a checkpoint, which cannot be made while a candidate is tried.
  void BeforeStep(int64_t clock, bool is_checkpoint_wanted);
  // As AutoRegimes says.
  void OnStep(int64_t clock, absl::Duration took, std::optional<double> loss) {
    auto_.OnStep(clock, took, loss);
  }
  // RegimeChanger's.
  void OnEnd(bool is_own, RegimeChanger::End end,
             const RegimeTransition& transition);

  bool is_trying() const { return auto_.is_trying(); }

 private:
  RegimeChanger* const changer_;
  AutoRegimes auto_;
};

// Why a job with these clocks cannot try its regimes, "field: why"; empty: it
// can, or wants none.
std::string TrialProblem(const PreparedJob& job, const Epochs& epochs);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_REGIME_TRIALS_H_

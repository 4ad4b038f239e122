#include "worker/training/job_reporter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"
#include "common/cluster/peer_unreachable.h"
#include "common/job/checkpoint_trouble.h"
#include "worker/training/trainer.h"

namespace syncline::worker {

JobReporter::JobReporter(const JobAssignment& assignment,
                         std::function<void(DaemonMessage)> send)
    : assignment_(assignment), send_(std::move(send)) {}

void JobReporter::SendPrepared(const PreparedJob& job) const {
  DaemonMessage message;
  JobPrepared* const prepared = message.mutable_prepared();
  prepared->set_job_id(assignment_.job_id());
  prepared->set_attempt(assignment_.attempt());
  *prepared->mutable_data() = job.data;
  if (job.is_chief()) {
    // One that only evaluates is at its last clock.
    const int64_t clock = std::max<int64_t>(1, job.assignment.start_clock());
    const Epochs epochs = job.trains() ? EpochsOf(job) : Epochs{clock, clock};
    prepared->set_clocks_per_epoch(epochs.steps_per_epoch);
    prepared->set_clocks_total(epochs.clocks_total);
  }
  send_(std::move(message));
}

void JobReporter::SendRefused(const std::vector<std::string>& problems,
                              const std::vector<FoundCheckpoint>& found) const {
  DaemonMessage message;
  JobPrepared* const prepared = message.mutable_prepared();
  prepared->set_job_id(assignment_.job_id());
  prepared->set_attempt(assignment_.attempt());
  prepared->mutable_problems()->Add(problems.begin(), problems.end());
  prepared->mutable_found()->Add(found.begin(), found.end());
  send_(std::move(message));
}

void JobReporter::SendProgress(const WorkerProgress& progress) const {
  DaemonMessage message;
  message.mutable_report()->set_job_id(assignment_.job_id());
  message.mutable_report()->set_attempt(assignment_.attempt());
  *message.mutable_report()->mutable_progress() = progress;
  send_(std::move(message));
}

void JobReporter::SendLeftOut(
    const ParameterExchange::LeftOut& left_out) const {
  DaemonMessage message;
  PsReport* const report = message.mutable_ps_report();
  report->set_job_id(assignment_.job_id());
  report->set_attempt(assignment_.attempt());
  report->set_skipped_clocks(left_out.skipped_clocks);
  report->set_dropped_blocks(left_out.dropped_blocks);
  send_(std::move(message));
}

void JobReporter::SendEvaluation(const Evaluation& evaluation) const {
  DaemonMessage message;
  message.mutable_report()->set_job_id(assignment_.job_id());
  message.mutable_report()->set_attempt(assignment_.attempt());
  *message.mutable_report()->mutable_evaluation() = evaluation;
  send_(std::move(message));
}

void JobReporter::SendEvaluationFailed(const std::string& checkpoint,
                                       const std::string& why) const {
  DaemonMessage message;
  WorkerReport* const report = message.mutable_report();
  report->set_job_id(assignment_.job_id());
  report->set_attempt(assignment_.attempt());
  report->set_failed_checkpoint(checkpoint);
  report->set_evaluation_error(Utf8Text(why));
  send_(std::move(message));
}

void JobReporter::SendActivity(const std::string& activity) const {
  DaemonMessage message;
  message.mutable_report()->set_job_id(assignment_.job_id());
  message.mutable_report()->set_attempt(assignment_.attempt());
  message.mutable_report()->set_activity(activity);
  send_(std::move(message));
}

void JobReporter::SendCheckpoint(
    const CheckpointInfo& whole,
    const std::vector<std::string>& deleted) const {
  DaemonMessage message;
  WorkerReport* const report = message.mutable_report();
  report->set_job_id(assignment_.job_id());
  report->set_attempt(assignment_.attempt());
  *report->mutable_checkpoint() = whole;
  report->mutable_deleted_checkpoints()->Add(deleted.begin(), deleted.end());
  send_(std::move(message));
}

void JobReporter::SendRegime(const RegimeTransition& transition) const {
  DaemonMessage message;
  WorkerReport* const report = message.mutable_report();
  report->set_job_id(assignment_.job_id());
  report->set_attempt(assignment_.attempt());
  *report->mutable_regime() = transition;
  report->mutable_regime()->set_error(Utf8Text(transition.error()));
  send_(std::move(message));
}

void JobReporter::SendCheckpointTrouble(const std::string& why) const {
  SendActivity(absl::StrCat(kCheckpointTrouble, Utf8Text(why)));
}

void JobReporter::SendCheckpointRefused(const std::string& why) const {
  DaemonMessage message;
  WorkerReport* const report = message.mutable_report();
  report->set_job_id(assignment_.job_id());
  report->set_attempt(assignment_.attempt());
  report->set_checkpoint_error(Utf8Text(why));
  send_(std::move(message));
}

void JobReporter::SendUnreachable(const Member& peer,
                                  absl::Duration out_of_reach,
                                  const absl::Status& error) const {
  DaemonMessage message;
  *message.mutable_unreachable() =
      MakePeerUnreachable(assignment_.job_id(), peer, out_of_reach, error);
  message.mutable_unreachable()->set_attempt(assignment_.attempt());
  send_(std::move(message));
}

void JobReporter::SendDone(const absl::Status& status, bool released,
                           const std::string& why) const {
  DaemonMessage message;
  JobDone* const done = message.mutable_done();
  done->set_job_id(assignment_.job_id());
  done->set_attempt(assignment_.attempt());
  done->set_code(static_cast<int>(status.code()));
  done->set_message(status.ok() ? why : std::string(status.message()));
  done->set_released(released);
  send_(std::move(message));
}

}  // namespace syncline::worker

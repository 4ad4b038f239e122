#include "worker/training/job_reporter.h"

#include <utility>

#include "common/cluster/peer_unreachable.h"
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
    const Epochs epochs = EpochsOf(job);
    prepared->set_clocks_per_epoch(epochs.steps_per_epoch);
    prepared->set_clocks_total(epochs.clocks_total);
  }
  send_(std::move(message));
}

void JobReporter::SendRefused(const std::vector<std::string>& problems) const {
  DaemonMessage message;
  JobPrepared* const prepared = message.mutable_prepared();
  prepared->set_job_id(assignment_.job_id());
  prepared->set_attempt(assignment_.attempt());
  prepared->mutable_problems()->Add(problems.begin(), problems.end());
  send_(std::move(message));
}

void JobReporter::SendProgress(const WorkerProgress& progress) const {
  DaemonMessage message;
  message.mutable_report()->set_job_id(assignment_.job_id());
  message.mutable_report()->set_attempt(assignment_.attempt());
  *message.mutable_report()->mutable_progress() = progress;
  send_(std::move(message));
}

void JobReporter::SendEvaluation(const Evaluation& evaluation) const {
  DaemonMessage message;
  message.mutable_report()->set_job_id(assignment_.job_id());
  message.mutable_report()->set_attempt(assignment_.attempt());
  *message.mutable_report()->mutable_evaluation() = evaluation;
  send_(std::move(message));
}

void JobReporter::SendActivity(const std::string& activity) const {
  DaemonMessage message;
  message.mutable_report()->set_job_id(assignment_.job_id());
  message.mutable_report()->set_attempt(assignment_.attempt());
  message.mutable_report()->set_activity(activity);
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

void JobReporter::SendDone(const absl::Status& status, bool released) const {
  DaemonMessage message;
  JobDone* const done = message.mutable_done();
  done->set_job_id(assignment_.job_id());
  done->set_attempt(assignment_.attempt());
  done->set_code(static_cast<int>(status.code()));
  done->set_message(std::string(status.message()));
  done->set_released(released);
  send_(std::move(message));
}

}  // namespace syncline::worker

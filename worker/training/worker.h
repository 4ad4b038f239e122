#ifndef SYNCLINE_WORKER_TRAINING_WORKER_H_
#define SYNCLINE_WORKER_TRAINING_WORKER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/daemon/metrics.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "worker/data/reading/data_root.h"
#include "worker/job/peer_joining.h"
#include "worker/job/product_choice.h"

namespace syncline {
class Device;
}  // namespace syncline

namespace syncline::worker {

class ArtifactTransfer;

// One worker (or chief): trains at most one job at a time. Thread-safe.
class Worker {
 public:
  struct Options {
    std::string scheduler_address;  // artifacts come from and go there
    DataRoot data_root;
    std::string work_dir;  // model and results while a job runs
    // Results that the scheduler could not store are kept below it, beyond the
    // life of this process; empty: below work_dir.
    std::string results_root = {};
    // How long storing a result is tried again after a failure.
    absl::Duration store_limit = absl::Minutes(30);
    int threads = 0;  // 0: cores, when the job does not say
    // That jobs compute on, unless they want the processors; outlives the
    // worker. Null: there is none, and why jobs that want one are refused.
    Device* gpu = nullptr;
    std::string why_no_gpu = {};
    // Of the GPU's matrix products.
    ProductTuning product_tuning = {};
    // The GPU has failed, and the job that used it is over: CUDA then computes
    // nothing more in this process. `has_worked`: the GPU has made a step or an
    // evaluation in this process. Called once, from the thread that trains.
    std::function<void(const absl::Status& why, bool has_worked)> on_gpu_lost =
        {};
    uint64_t incarnation = 0;
    // The secret of the stream to the scheduler, for what goes there beside it.
    // Thread-safe; used only where `artifacts` is null.
    std::function<std::string()> session_secret;
    bool shared_memory = true;  // with a ps on this host
    // Joins the ranks of a job without ps (JobProcess); null: this worker
    // fails such jobs.
    JoinPeers join_peers = nullptr;
    MetricsRegistry* metrics = nullptr;  // outlives the worker; may be null
    // Null: from and to the scheduler.
    std::shared_ptr<ArtifactTransfer> artifacts;
  };
  // `send` carries events to the scheduler; thread-safe, does not block.
  static absl::StatusOr<std::unique_ptr<Worker>> Create(
      const Options& options, std::function<void(DaemonMessage)> send);
  virtual ~Worker() = default;  // stops the job, joins

  // prepare, run, profile and stop commands; others are ignored. Does not
  // block.
  virtual void OnCommand(const SchedulerMessage& command) = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_WORKER_H_

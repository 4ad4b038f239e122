#ifndef SYNCLINE_TESTS_TESTING_TRAINING_CLUSTER_H_
#define SYNCLINE_TESTS_TESTING_TRAINING_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/model/graph/tensor.h"
#include "common/regime/regime_schedule.h"
#include "common/rpc/grpc_channel.h"
#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"
#include "proto/scheduler.pb.h"
#include "tests/testing/fakes/fake_artifacts.h"
#include "tests/testing/in_process_peers.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/ps_node.h"
#include "worker/job/product_choice.h"
#include "worker/training/worker.h"

namespace syncline {

// Ps, workers and perhaps an evaluator in this process, with real gRPC between
// them (workers that reduce among themselves: InProcessPeers) and without a
// scheduler: the test plays its part, step by step or with RunJob.
// Thread-compatible.
class TrainingCluster {
 public:
  struct Options {
    uint32_t workers = 1;
    uint32_t ps = 1;
    std::string work_dir;
    std::string data_root;
    MetricsRegistry* chief_metrics = nullptr;      // of rank 0; outlives this
    MetricsRegistry* evaluator_metrics = nullptr;  // likewise
    // Evaluates in the chief's stead, with the rank after the last worker's.
    bool evaluator = false;
    // In place of the spec's, unless empty.
    std::vector<TrainingRegime> regimes = {};
    // Sees each evaluation before the cluster does, and may take its time.
    std::function<void(const Evaluation&)> on_evaluation = nullptr;
    // By rank: workers compute on them; they outlive this. The others have
    // none.
    std::vector<Device*> gpus = {};
    worker::ProductTuning product_tuning = {};
    // Called by a worker with a GPU that has failed.
    std::function<void(const absl::Status&, bool has_worked)> on_gpu_lost =
        nullptr;
    // Fails the joining of a group by a rank; may be null.
    std::function<absl::Status(const worker::PeerGroup&)> check_join = nullptr;
    // Changes what members are assigned.
    std::function<void(JobAssignment*)> change_assignment = nullptr;
    // Each job has them when it begins, beside its model; by name.
    std::map<std::string, std::string> artifacts = {};
    // So many uploads fail at first: the scheduler's disk is full.
    int upload_failures = 0;
  };
  explicit TrainingCluster(const Options& options);
  ~TrainingCluster();

  // How a job ended.
  struct Outcome {
    // The first problem of preparing, or the first failure that was not a
    // cancellation; OK if all workers succeeded.
    absl::Status status;
    std::vector<Evaluation> evaluations;
    std::map<std::string, std::string> artifacts;
    // Parameters of "trained.onnx".
    Weights weights;
    WorkerProgress last_progress;  // of the chief
    // The last report of each ps, by rank; none: it has nothing to report.
    std::vector<std::optional<PsReport>> ps_reports;
  };
  // Prepare, run, wait, stop, all of it. resources are set to the cluster's.
  Outcome RunJob(JobSpec spec, absl::string_view model);

  // The steps of RunJob. A timeout fails with DeadlineExceeded.
  absl::Status Prepare(JobSpec spec, absl::string_view model);
  void Run();
  absl::Status AwaitDone(absl::Duration timeout);
  // Puts the job's shards where `routing` says, at a cut that is asked for at
  // `clock` of every worker, and raised where they are past it. While workers
  // run. Returns when all ps have gone there; if the first one cannot, the job
  // goes on as it was.
  absl::Status ChangeRouting(const Routing& routing, int64_t clock);
  // Waits until all workers have released the job; closes it on the ps.
  absl::Status Stop(absl::Duration timeout);
  Outcome TakeOutcome();

  // Waits until rank `rank` has reported clock `clock` or more.
  bool AwaitClock(uint32_t rank, int64_t clock, absl::Duration timeout);

  // The ps goes away without a word; its port refuses connections then.
  void KillPs(uint32_t rank);
  const std::string& ps_address(uint32_t rank) const;
  // Sends a command to one worker and returns nothing: answers are kept.
  void Send(uint32_t rank, const SchedulerMessage& command);
  // Answers of one worker so far.
  std::vector<DaemonMessage> Messages(uint32_t rank);

 private:
  // Workers, and the evaluator.
  uint32_t rank_count() const {
    return options_.workers + (options_.evaluator ? 1 : 0);
  }
  struct Inbox {
    Mutex mu;
    CondVar changed;
    std::vector<std::vector<DaemonMessage>> messages ABSL_GUARDED_BY(mu);
  };
  JobAssignment MakeAssignment(const JobSpec& spec, absl::string_view model,
                               absl::Status* status);
  // Waits until `enough` says so of all messages.
  template <typename Enough>
  bool Await(absl::Duration timeout, const Enough& enough);

  const Options options_;
  // The store that workers fetch from and upload to.
  std::shared_ptr<FakeArtifacts> artifacts_;
  // Of the present job, by epoch and first member; workers ask for them.
  struct Group {
    Mutex mu;
    uint64_t seed ABSL_GUARDED_BY(mu) = 0;
    std::map<std::pair<uint64_t, std::string>,
             std::unique_ptr<worker::InProcessPeers>>
        peers ABSL_GUARDED_BY(mu);
    // Why a rank does not get into a group; OK: it does. May be null.
    std::function<absl::Status(const worker::PeerGroup&)> check
        ABSL_GUARDED_BY(mu);
  };
  const std::shared_ptr<Group> group_ = std::make_shared<Group>();
  std::vector<PsNode> ps_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  std::vector<std::unique_ptr<worker::Worker>> workers_;  // by rank
  std::vector<std::optional<PsReport>> ps_reports_;       // of the last job
  int jobs_ = 0;
  std::string job_id_;
  JobAssignment assignment_;  // with the present routing
  uint32_t routings_ = 0;     // that the job has had
  LengthDimension length_;    // of the job's model
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_TRAINING_CLUSTER_H_

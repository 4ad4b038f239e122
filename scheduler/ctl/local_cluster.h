#ifndef SYNCLINE_SCHEDULER_CTL_LOCAL_CLUSTER_H_
#define SYNCLINE_SCHEDULER_CTL_LOCAL_CLUSTER_H_

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/system/child_process.h"
#include "proto/cluster.pb.h"
#include "scheduler/ctl/interrupt_signals.h"

namespace syncline::ctl {

// A scheduler, ps, workers and perhaps an evaluator as child processes on
// loopback, with ports the system picks. The first worker is the chief. Ended
// when the object dies. Thread-compatible.
class LocalCluster {
 public:
  struct Options {
    // Where the daemons' executables are.
    std::string binary_dir;
    // For state and work files; exists, may be deleted afterwards.
    std::string run_dir;
    // Each daemon's output: "worker-1.log"; exists.
    std::string log_dir;
    std::string data_root;
    // Workers read nothing outside of data_root, as daemons do.
    bool bounds_data = false;
    int workers = 1;
    int ps = 1;
    bool evaluator = false;
    int threads_per_worker = 1;  // the evaluator's too
  };
  // Returns when the scheduler listens; the others register on their own.
  // Errors: NotFound: no such executable; Unavailable: the scheduler ended or
  // did not listen in time, with the end of its log; Cancelled: Ctrl-C.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(
      const Options& options, InterruptSignals* interrupts);
  // Stops what Stop() has not.
  ~LocalCluster();

  const std::string& scheduler_address() const { return scheduler_address_; }

  // All but the scheduler.
  int member_count() const {
    return options_.workers + options_.ps + (options_.evaluator ? 1 : 0);
  }

  // Unavailable if a daemon has ended: its name, how, and the end of its log.
  // `left_out`: names of those that may have.
  absl::Status CheckAlive(const std::set<std::string>& left_out = {});
  // "worker-1", as messages and logs call it.
  static std::string NameOf(const Task& task);

  // Ends every process: asked first, killed after `grace`.
  void Stop(absl::Duration grace);

 private:
  struct Daemon {
    std::string name;  // "worker-1"
    std::unique_ptr<ChildProcess> process;
  };

  explicit LocalCluster(const Options& options) : options_(options) {}
  absl::Status Spawn(const std::string& name, const std::string& binary,
                     const std::vector<std::string>& flags);
  absl::Status StartScheduler(InterruptSignals* interrupts);
  absl::Status StartMembers();
  // A process of syncline-worker: "worker-1" as task "worker:1".
  absl::Status StartWorker(const std::string& type, int index);

  const Options options_;
  std::string scheduler_address_;
  std::vector<Daemon> daemons_;  // the scheduler first
};

// The last `lines` lines of a file, for people; empty if there is none.
std::string LastLines(const std::string& file, int lines);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_LOCAL_CLUSTER_H_

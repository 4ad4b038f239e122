#ifndef SYNCLINE_TESTS_TESTING_TEST_CLUSTER_H_
#define SYNCLINE_TESTS_TESTING_TEST_CLUSTER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/system/child_process.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "tests/testing/temp_dir.h"

namespace syncline {

// The folder with the executables that belong to this one: bin/ beside its own,
// in a build folder and in an unpacked bundle.
std::string BinaryDir();

// The device that workers of a TestCluster compute on: SYNCLINE_TEST_DEVICE, as
// --device takes it; empty: the workers' default. Likewise
// SYNCLINE_TEST_CONVOLUTIONS and --convolutions.
std::string TestDevice();

// tests/testing/stepped_clock.cc, for LD_PRELOAD.
std::string SteppedClockLibrary();

// A program that has been started, its output kept in files.
class RunningProgram {
 public:
  struct Result {
    ChildExit exit;
    std::string out;
    std::string err;
    // From start to end.
    absl::Duration took;
  };
  // `environment` as in ChildProcess. Runs in `dir`, output goes there too.
  static absl::StatusOr<std::unique_ptr<RunningProgram>> Start(
      const std::string& dir, const std::vector<std::string>& argv,
      const std::vector<std::pair<std::string, std::optional<std::string>>>&
          environment);

  ChildProcess& process() { return *process_; }
  // The output so far.
  std::string out() const;
  std::string err() const;
  // Waits for its end. Errors: DeadlineExceeded; it runs on.
  absl::StatusOr<Result> Finish(absl::Duration timeout);

 private:
  RunningProgram() = default;
  std::string out_file_;
  std::string err_file_;
  absl::Time started_;
  std::unique_ptr<ChildProcess> process_;
};

// A scheduler, ps and workers: the real executables, as processes, on ports
// the system picks. Daemons are named by role and index: "scheduler", "ps-1",
// "evaluator-0", "chief-0", "worker-0" (so a cluster of three workers has
// chief-0, worker-0 and worker-1). Every process ends with the object. Single
// thread.
class TestCluster {
 public:
  struct Options {
    int ps = 2;
    int workers = 3;  // the first is the chief
    int evaluators = 0;
    std::string data_root = {};              // empty: the daemons' default
    std::vector<std::string> ps_flags = {};  // of every ps
    // Of every worker before each of its steps: a job lasts as long as a test
    // needs it to, and computes little.
    absl::Duration step_pause = absl::ZeroDuration();
    std::string work_dir = {};  // shared by all; empty: each has its own
    // Of `synctl certs create`: each daemon has the certificate of its name
    // there, and synctl that of client-admin. Empty: no TLS.
    std::string certs_dir = {};
    std::vector<std::string> flags = {};  // of every daemon
    std::string worker_program = {};      // a path; empty: syncline-worker
    // Of every daemon, as in ChildProcess.
    std::vector<std::pair<std::string, std::optional<std::string>>>
        environment = {};
  };
  explicit TestCluster(Options options) : options_(std::move(options)) {}

  // Starts all daemons and waits until all are registered.
  absl::Status Start();

  const std::string& scheduler_address() const { return scheduler_address_; }
  const TempDir& dir() const { return dir_; }

  // Starts the daemon (again), with `flags` after the usual ones. A scheduler
  // that starts again gets its address and its state again.
  absl::Status StartDaemon(const std::string& name,
                           const std::vector<std::string>& flags = {});
  ChildProcess& daemon(const std::string& name) { return *daemons_.at(name); }
  std::string LogOf(const std::string& name) const;

  // Runs synctl against this cluster.
  absl::StatusOr<RunningProgram::Result> Synctl(
      const std::vector<std::string>& arguments,
      absl::Duration timeout = absl::Minutes(5));
  absl::StatusOr<std::unique_ptr<RunningProgram>> StartSynctl(
      const std::vector<std::string>& arguments);
  // Runs synctl without TLS, as the bearer of `token`; unset: of none.
  absl::StatusOr<RunningProgram::Result> SynctlWithToken(
      const std::vector<std::string>& arguments,
      const std::optional<std::string>& token,
      absl::Duration timeout = absl::Seconds(120));

  // Through synctl's JSON. `flags` are of `synctl submit`.
  absl::StatusOr<std::string> Submit(
      const std::string& job_file, const std::vector<std::string>& flags = {});
  // Likewise where the cluster has TLS, else from this process: tests ask every
  // 20 ms, and a program that is started so often takes most of a processor.
  // Each call connects anew, so that it finds a scheduler that has been
  // replaced.
  absl::StatusOr<JobStatus> Get(const std::string& job_id);
  absl::StatusOr<ClusterStatus> Members();

  // Wait for a condition; DeadlineExceeded says what was seen last.
  absl::Status WaitForFreeMembers(int count, absl::Duration timeout);
  absl::StatusOr<JobStatus> WaitForClock(const std::string& job_id,
                                         int64_t clock, absl::Duration timeout);
  absl::StatusOr<JobStatus> WaitForEnd(const std::string& job_id,
                                       absl::Duration timeout);
  // Submits, waits, and expects success.
  absl::StatusOr<JobStatus> Train(const std::string& job_file,
                                  absl::Duration timeout = absl::Minutes(5),
                                  const std::vector<std::string>& flags = {});
  // Fetches trained.onnx into a folder below dir(); returns its path.
  absl::StatusOr<std::string> FetchModel(const std::string& job_id);

 private:
  absl::Status StartScheduler(std::vector<std::string> flags);
  // A file of certs_dir; nothing without TLS.
  std::optional<std::string> CertsFile(const std::string& name) const;
  absl::Status Spawn(const std::string& name, const std::string& binary,
                     const std::vector<std::string>& flags);
  template <typename Message>
  absl::StatusOr<Message> Ask(const std::vector<std::string>& arguments);
  absl::StatusOr<JobStatus> WaitForJob(
      const std::string& job_id, const std::string& what,
      absl::Duration timeout,
      const std::function<bool(const JobStatus&)>& reached);

  const Options options_;
  const TempDir dir_;
  std::string scheduler_address_;
  std::map<std::string, std::unique_ptr<ChildProcess>> daemons_;
};

// A TCP port of this machine that was free a moment ago, for daemons whose
// address must be known before they start.
int UnusedPort();

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_TEST_CLUSTER_H_

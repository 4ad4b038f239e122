#ifndef SYNCLINE_TESTS_FAULT_CHAOS_CHAOS_CLUSTER_H_
#define SYNCLINE_TESTS_FAULT_CHAOS_CHAOS_CLUSTER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/random.h"
#include "proto/job.pb.h"
#include "tests/testing/fakes/relay.h"
#include "tests/testing/small_disk.h"
#include "tests/testing/test_cluster.h"

namespace syncline {

// The real executables, and faults under them: a scheduler, three ps, a chief,
// two workers and an evaluator. Each ps is reached through a relay, which can
// lose answers and hang up. Checkpoints and the scheduler's state are on disks
// that can be full, where the system lets a test mount them. Single thread.
class ChaosCluster {
 public:
  // Runs while a fault lasts, every now and then.
  using Look = std::function<void()>;

  // `ps_flags`: for tests of bugs; also when a ps starts again.
  explicit ChaosCluster(bool has_disks, std::vector<std::string> ps_flags = {});
  ~ChaosCluster();

  absl::Status Start();
  TestCluster& cluster() { return cluster_; }
  std::string checkpoint_folder() const { return checkpoint_folder_; }

  // One fault, from its beginning to its end. Returns what it was, for people.
  std::string Strike(Random* random, const Look& look);
  // Named ones, for tests of bugs.
  std::string Kill(const std::string& name, absl::Duration away,
                   const Look& look);
  std::string LoseAnswers(int ps, absl::Duration lasts, const Look& look);

  // Starts again what has died of a fault point.
  void Revive();
  // Starts the scheduler again if a fault point may still kill it: for calls
  // that are made once.
  void DisarmScheduler();
  // The job as the scheduler says it now, within a few seconds. Errors:
  // Unavailable: the scheduler cannot be asked.
  absl::StatusOr<JobStatus> Get(const std::string& job_id);

  // By kind.
  const std::map<std::string, int>& strikes() const { return strikes_; }

 private:
  absl::Status StartDaemon(const std::string& name,
                           const std::vector<std::string>& flags = {});
  void Wait(absl::Duration time, const Look& look);
  std::string Freeze(const std::string& name, absl::Duration time,
                     const Look& look);
  std::string HangUp(int ps);
  std::string FillDisk(SmallDisk* disk, const std::string& name,
                       absl::Duration lasts, const Look& look);
  // Kills it and starts it again with a fault point that will kill it.
  std::string Arm(const std::string& name, Random* random, const Look& look);

  const bool has_disks_;
  const std::vector<std::string> ps_flags_;
  std::unique_ptr<SmallDisk> checkpoint_disk_;
  std::unique_ptr<SmallDisk> state_disk_;
  std::map<std::string, std::unique_ptr<Relay>> relays_;
  TestCluster cluster_;
  std::string checkpoint_folder_;
  bool scheduler_answers_ = true;
  bool scheduler_is_armed_ = false;
  std::map<std::string, int> strikes_;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_FAULT_CHAOS_CHAOS_CLUSTER_H_

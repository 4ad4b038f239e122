#ifndef SYNCLINE_SCHEDULER_CTL_DOCTOR_H_
#define SYNCLINE_SCHEDULER_CTL_DOCTOR_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/cluster/cluster_config.h"
#include "proto/scheduler.pb.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

struct DoctorOptions {
  // TF_CONFIG as found; empty: not set.
  std::optional<std::string> tf_config = std::nullopt;
  // Overrides the scheduler that TF_CONFIG implies.
  std::string scheduler;
  // Only what can be told from the text itself.
  bool offline = false;
  std::string version;  // of this build
};

// One thing that was looked at.
struct Finding {
  enum class Verdict { kOk, kProblem, kNote };
  Verdict verdict = Verdict::kOk;
  std::string subject;  // "TF_CONFIG", "address worker:1"
  std::string detail;
};

// Checks a configuration before a daemon is started with it. Never starts or
// changes anything. Every problem is found, not only the first.
std::vector<Finding> Diagnose(const DoctorOptions& options);

// Compares versions and tasks of a running cluster with ours; pure.
std::vector<Finding> CompareWithCluster(const ClusterStatus& cluster,
                                        const std::string& version,
                                        const std::optional<TaskId>& self);

// `synctl doctor`. Exit code 0: usable; 1: a problem.
int RunDoctor(const DoctorOptions& options, const Console& console);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_DOCTOR_H_

#ifndef SYNCLINE_COMMON_CLUSTER_CLUSTER_CONFIG_H_
#define SYNCLINE_COMMON_CLUSTER_CLUSTER_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace syncline {

// Task types by TF_CONFIG's names. Values equal proto/cluster.proto's TaskType.
enum class TaskKind { kChief = 1, kWorker, kPs, kEvaluator, kScheduler };
absl::string_view TaskKindName(TaskKind kind);  // "chief"

struct TaskId {
  TaskKind kind = TaskKind::kWorker;
  uint32_t index = 0;
  friend bool operator==(const TaskId&, const TaskId&) = default;
};
std::string TaskName(const TaskId& task);  // "worker:2"
// "worker:2"; "worker" is index 0; "master" is the chief.
absl::StatusOr<TaskId> ParseTaskName(absl::string_view text);

struct TaskAddress {
  TaskId task;
  std::string address;  // host:port
};

// The topology as one process sees it: the meaning of one TF_CONFIG.
struct ClusterConfig {
  // Sorted by (kind, index).
  std::vector<TaskAddress> tasks;
  TaskId self;
  // Address of `self`; empty where TF_CONFIG does not have it: no cluster, an
  // evaluator outside of it, a chief with a sparse spec.
  std::string self_address;
  // Where the scheduler listens: the scheduler task, else the chief, else
  // worker 0. Empty if none of them is listed (sparse specs): --scheduler is
  // needed.
  std::string scheduler_address;
  // This process hosts the scheduler on its own gRPC port.
  bool hosts_scheduler = false;
  // A sparse spec, as enableDynamicWorker gives: `tasks` may be only those that
  // this process should know.
  bool partial = false;
  std::string environment;  // as given; not interpreted

  // No cluster, or one of a single worker or chief: this process holds every
  // role.
  bool alone() const;
};

// Reads TF_CONFIG exactly as TensorFlow and Kubeflow write it: lists or sparse
// maps, `sparseCluster`, `master`, string indices, evaluators inside or outside
// `cluster`, no `cluster` (empty text too). Treats the text as hostile.
// Errors: InvalidArgument, one problem per line, each "TF_CONFIG: path: what is
// wrong, and what was expected".
absl::StatusOr<ClusterConfig> ParseTfConfig(absl::string_view json);

// TF_CONFIG of `task` in a cluster of `tasks`, as Kubeflow writes it, with
// sparse maps for types that have gaps; what ParseTfConfig reads back to the
// same tasks. Errors: InvalidArgument: the task
// is not among them (evaluators may be), or they contradict each other.
absl::StatusOr<std::string> WriteTfConfig(const std::vector<TaskAddress>& tasks,
                                          const TaskId& task);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CLUSTER_CLUSTER_CONFIG_H_

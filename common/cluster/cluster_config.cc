#include "common/cluster/cluster_config.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

constexpr absl::string_view kKindNames[] = {"",   "chief",     "worker",
                                            "ps", "evaluator", "scheduler"};

bool SameTasks(const std::vector<TaskAddress>& a,
               const std::vector<TaskAddress>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const TaskAddress& x, const TaskAddress& y) {
                      return x.task == y.task && x.address == y.address;
                    });
}

using AddressesByIndex = std::map<uint32_t, std::string>;

// A list where the indices are 0, 1, 2 ..., a sparse map where they have gaps.
std::string AddressesJson(const AddressesByIndex& addresses) {
  const bool dense = addresses.rbegin()->first + 1 == addresses.size();
  const std::string body = absl::StrJoin(
      addresses, ",", [dense](std::string* out, const auto& entry) {
        if (!dense) absl::StrAppend(out, "\"", entry.first, "\":");
        absl::StrAppend(out, "\"", entry.second, "\"");
      });
  return dense ? absl::StrCat("[", body, "]") : absl::StrCat("{", body, "}");
}

}  // namespace

absl::string_view TaskKindName(TaskKind kind) {
  return kKindNames[static_cast<int>(kind)];
}

std::string TaskName(const TaskId& task) {
  return absl::StrCat(TaskKindName(task.kind), ":", task.index);
}

absl::StatusOr<TaskId> ParseTaskName(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  const absl::string_view name =
      parts.first == "master" ? "chief" : parts.first;
  const auto* const kind =
      std::find(std::next(std::begin(kKindNames)), std::end(kKindNames), name);
  if (kind == std::end(kKindNames)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\" is not a task: unknown type \"", parts.first,
        "\"; there are chief (or master), worker, ps, evaluator, scheduler"));
  }
  TaskId task;
  task.kind =
      static_cast<TaskKind>(std::distance(std::begin(kKindNames), kind));
  if (text.size() == parts.first.size()) return task;
  const bool digits =
      !parts.second.empty() &&
      std::all_of(parts.second.begin(), parts.second.end(),
                  [](char c) { return absl::ascii_isdigit(c); });
  if (!digits || !absl::SimpleAtoi(parts.second, &task.index)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a task: index \"", parts.second,
                     "\" is not in 0..4294967295"));
  }
  return task;
}

bool ClusterConfig::alone() const {
  if (partial) return false;
  if (tasks.empty()) return true;
  return tasks.size() == 1 && tasks[0].task == self &&
         (self.kind == TaskKind::kWorker || self.kind == TaskKind::kChief);
}

absl::StatusOr<std::string> WriteTfConfig(const std::vector<TaskAddress>& tasks,
                                          const TaskId& task) {
  // By name: that is the order in which Go, hence Kubeflow, writes a map.
  std::map<absl::string_view, AddressesByIndex> cluster;
  bool sparse = false;
  for (const TaskAddress& entry : tasks) {
    // The text between the quotes must be an address and nothing else.
    SYNCLINE_RETURN_IF_ERROR(
        Annotate(ParseHostPort(entry.address).status(), TaskName(entry.task)));
    cluster[TaskKindName(entry.task.kind)][entry.task.index] = entry.address;
  }
  for (const auto& [name, addresses] : cluster) {
    sparse = sparse || addresses.rbegin()->first + 1 != addresses.size();
  }
  const std::string json = absl::StrCat(
      "{\"cluster\":{",
      absl::StrJoin(cluster, ",",
                    [](std::string* out, const auto& type) {
                      absl::StrAppend(out, "\"", type.first,
                                      "\":", AddressesJson(type.second));
                    }),
      "},\"task\":{\"type\":\"", TaskKindName(task.kind),
      "\",\"index\":", task.index, "}",
      sparse ? "" : ",\"environment\":\"cloud\"", "}");
  SYNCLINE_ASSIGN_OR_RETURN(const ClusterConfig read_back, ParseTfConfig(json));
  std::vector<TaskAddress> sorted = tasks;
  std::sort(sorted.begin(), sorted.end(),
            [](const TaskAddress& a, const TaskAddress& b) {
              return std::tie(a.task.kind, a.task.index) <
                     std::tie(b.task.kind, b.task.index);
            });
  if (!SameTasks(read_back.tasks, sorted) || !(read_back.self == task)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no TF_CONFIG can say this: ", TaskName(task), " in ", json));
  }
  return json;
}

}  // namespace syncline

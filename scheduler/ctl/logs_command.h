#ifndef SYNCLINE_SCHEDULER_CTL_LOGS_COMMAND_H_
#define SYNCLINE_SCHEDULER_CTL_LOGS_COMMAND_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/cluster.pb.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

struct LogsOptions {
  std::string scheduler;
  std::string job_id;
  bool follow = false;
  std::string task;              // "worker:1"; empty: all
  std::optional<uint32_t> tail;  // last lines, 0 is refused; unset: all
};

// `synctl logs`: prints what the members of a job log. Returns the exit code.
int RunLogs(const LogsOptions& options, const Console& console);

// "worker:1", "ps 0" or "ps-0". Errors: InvalidArgument.
absl::StatusOr<Task> ParseLogTask(absl::string_view text);

// Each line of `text` behind the task's name: "worker:1  ts=...". The rest of a
// text that does not end with a line is a line too.
std::string PrefixLines(const Task& task, absl::string_view text);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_LOGS_COMMAND_H_

#include "scheduler/ctl/logs_command.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/cluster/cluster_config.h"
#include "google/protobuf/struct.pb.h"
#include "scheduler/ctl/interrupt_signals.h"
#include "scheduler/ctl/jobs_client.h"
#include "scheduler/ctl/text/exit_codes.h"

namespace syncline::ctl {
namespace {

// The names of most tasks; longer ones push their lines to the right.
constexpr int kNameWidth = 10;

std::string NameOf(const Task& task) {
  return TaskName({static_cast<TaskKind>(task.type()), task.index()});
}

void PrintLinesAsJson(const LogLines& lines, const Console& console) {
  const std::string task = NameOf(lines.task());
  for (const absl::string_view line :
       absl::StrSplit(absl::StripSuffix(lines.text(), "\n"), '\n')) {
    google::protobuf::Struct object;
    SetField(&object, "task", task);
    SetField(&object, "line", Utf8Text(line));
    console.PrintJson(object);
  }
}

}  // namespace

absl::StatusOr<Task> ParseLogTask(absl::string_view text) {
  const std::vector<absl::string_view> parts =
      absl::StrSplit(text, absl::ByAnyChar(": -"));
  Task task;
  TaskType type = TASK_TYPE_UNSPECIFIED;
  uint32_t index = 0;
  if (parts.size() == 2 &&
      TaskType_Parse(absl::AsciiStrToUpper(parts[0]), &type) &&
      type != TASK_TYPE_UNSPECIFIED && absl::SimpleAtoi(parts[1], &index)) {
    task.set_type(type);
    task.set_index(index);
    return task;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--task: '", Printable(text.substr(0, 80)),
                   "' is no task, such as worker:1, ps:0 or chief:0"));
}

std::string PrefixLines(const Task& task, absl::string_view text) {
  const std::string prefix =
      absl::StrFormat("%-*s  ", kNameWidth, NameOf(task));
  std::string prefixed;
  for (const absl::string_view line :
       absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    absl::StrAppend(&prefixed, prefix, line, "\n");
  }
  return prefixed;
}

int RunLogs(const LogsOptions& options, const Console& console) {
  // In a request 0 means all lines.
  if (options.tail == 0u) {
    console.PrintError(absl::InvalidArgumentError(
        "--tail: 0 lines are none; give 1 or more, or leave --tail out for all "
        "lines"));
    return kExitUsage;
  }
  LogsRequest request;
  request.set_job_id(options.job_id);
  request.set_follow(options.follow);
  request.set_tail_lines(options.tail.value_or(0));
  if (!options.task.empty()) {
    auto task = ParseLogTask(options.task);
    if (!task.ok()) {
      console.PrintError(task.status());
      return kExitUsage;
    }
    *request.mutable_task() = *std::move(task);
  }
  InterruptSignals interrupts;
  JobsClient client(options.scheduler);
  const absl::Status status = client.Logs(
      request,
      [&](const LogLines& lines) {
        if (console.json) {
          PrintLinesAsJson(lines, console);
        } else {
          console.out << PrefixLines(lines.task(), lines.text()) << std::flush;
        }
        return console.out.good();  // not: a pipe whose reader has gone
      },
      &interrupts);
  if (absl::IsCancelled(status)) return kExitCancelled;
  return status.ok() ? kExitOk : console.PrintError(status);
}

}  // namespace syncline::ctl

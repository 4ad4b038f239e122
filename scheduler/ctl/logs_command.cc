#include "scheduler/ctl/logs_command.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/cluster/cluster_config.h"
#include "common/system/log_splicer.h"
#include "google/protobuf/struct.pb.h"
#include "scheduler/ctl/interrupt_signals.h"
#include "scheduler/ctl/jobs_client.h"
#include "scheduler/ctl/reconnects.h"
#include "scheduler/ctl/text/exit_codes.h"

namespace syncline::ctl {
namespace {

// The names of most tasks; longer ones push their lines to the right.
constexpr int kNameWidth = 10;

std::string NameOf(const Task& task) {
  return TaskName({static_cast<TaskKind>(task.type()), task.index()});
}

// A note of the scheduler's own (LogNote), which comes alone, is no line of the
// task's log.
bool IsNote(absl::string_view text) {
  return absl::StrContains(text.substr(0, text.find(" job=")),
                           " role=scheduler");
}

void PrintLinesAsJson(const Task& task, absl::string_view lines,
                      const Console& console) {
  for (const absl::string_view line :
       absl::StrSplit(absl::StripSuffix(lines, "\n"), '\n')) {
    google::protobuf::Struct object;
    SetField(&object, "task", NameOf(task));
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
  // A stream that is opened again gives all logs from their begin.
  std::map<std::string, LogSplicer> splicers;
  Reconnects reconnects;
  for (;;) {
    absl::Status ended;
    // A job that waits in the queue has no lines; that it is known counts.
    if (options.follow) ended = client.Get(options.job_id).status();
    if (ended.ok()) {
      if (options.follow) reconnects.OnHeard();
      ended = client.Logs(
          request,
          [&](const LogLines& lines) {
            const std::string text =
                IsNote(lines.text())
                    ? lines.text()
                    : splicers[NameOf(lines.task())].Take(lines.text());
            if (text.empty()) return true;
            if (console.json) {
              PrintLinesAsJson(lines.task(), text, console);
            } else {
              console.out << PrefixLines(lines.task(), text) << std::flush;
            }
            return console.out.good();  // not: a pipe whose reader has gone
          },
          &interrupts);
      if (ended.ok()) return kExitOk;
    }
    const absl::Status again =
        options.follow ? reconnects.Await(ended, MonotonicNow(), &interrupts)
                       : ended;
    if (absl::IsCancelled(again)) return kExitCancelled;
    if (!again.ok()) return console.PrintError(again);
    for (auto& [task, splicer] : splicers) splicer.Restart();
    if (!splicers.empty()) request.clear_tail_lines();
  }
}

}  // namespace syncline::ctl

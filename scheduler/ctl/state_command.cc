#include "scheduler/ctl/state_command.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/struct.pb.h"
#include "scheduler/ctl/interrupt_signals.h"
#include "scheduler/ctl/jobs_client.h"
#include "scheduler/ctl/text/exit_codes.h"

namespace syncline::ctl {

int RunStateBackup(const std::string& scheduler, const std::string& file,
                   const Console& console) {
  std::error_code error;
  if (std::filesystem::exists(file, error)) {
    return console.PrintError(absl::AlreadyExistsError(
        absl::StrCat(file, " is there already; a backup replaces no file")));
  }
  InterruptSignals interrupts;
  JobsClient client(scheduler);
  uint64_t bytes = 0;
  const absl::Status saved =
      client.BackupState(file, [&](uint64_t done, uint64_t) {
        bytes = done;
        return !interrupts.Take();
      });
  if (!saved.ok()) return console.PrintError(saved);
  if (console.json) {
    google::protobuf::Struct object;
    SetField(&object, "file", file);
    (*object.mutable_fields())["bytes"].set_number_value(
        static_cast<double>(bytes));
    console.PrintJson(object);
  } else {
    console.out << "saved " << file << ", " << bytes
                << " bytes; `synctl state verify " << file << "` checks it\n";
  }
  return kExitOk;
}

int RunStateVerify(const std::string& path, const StateChecker& check,
                   const Console& console) {
  const auto report = check(path);
  if (!report.ok()) {
    console.PrintError(report.status());
    return kExitFailed;
  }
  if (console.json) {
    google::protobuf::Struct object;
    auto& fields = *object.mutable_fields();
    fields["jobs"].set_number_value(static_cast<double>(report->jobs));
    fields["unfinished"].set_number_value(
        static_cast<double>(report->unfinished));
    fields["files"].set_number_value(static_cast<double>(report->files));
    fields["file_bytes"].set_number_value(
        static_cast<double>(report->file_bytes));
    fields["epoch"].set_number_value(static_cast<double>(report->epoch));
    auto* const problems = fields["problems"].mutable_list_value();
    for (const std::string& problem : report->problems) {
      problems->add_values()->set_string_value(problem);
    }
    console.PrintJson(object);
  } else {
    console.out << path << ": " << report->jobs << " jobs ("
                << report->unfinished << " not over), " << report->files
                << " files of them with " << report->file_bytes
                << " bytes; scheduler epoch " << report->epoch << "\n";
    for (const std::string& problem : report->problems) {
      console.err << "damaged: " << problem << "\n";
    }
    if (report->problems.empty()) console.out << "it is whole\n";
  }
  return report->problems.empty() ? kExitOk : kExitFailed;
}

}  // namespace syncline::ctl

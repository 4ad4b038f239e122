#include "scheduler/ctl/local_cluster.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"

namespace syncline::ctl {
namespace {

constexpr absl::Duration kListenTimeout = absl::Seconds(30);
constexpr absl::Duration kPollInterval = absl::Milliseconds(20);
constexpr absl::Duration kGrace = absl::Seconds(5);
constexpr uint64_t kAddressBytesMax = 1024;
constexpr int kLogLinesShown = 5;
constexpr std::streamoff kTailBytes = 4096;

}  // namespace

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(
    const Options& options, InterruptSignals* interrupts) {
  std::unique_ptr<LocalCluster> cluster(new LocalCluster(options));
  SYNCLINE_RETURN_IF_ERROR(cluster->StartScheduler(interrupts));
  SYNCLINE_RETURN_IF_ERROR(cluster->StartMembers());
  return cluster;
}

LocalCluster::~LocalCluster() { Stop(kGrace); }

absl::Status LocalCluster::Spawn(const std::string& name,
                                 const std::string& binary,
                                 const std::vector<std::string>& flags) {
  ChildProcess::Options child;
  child.argv = {absl::StrCat(options_.binary_dir, "/", binary),
                "--listen=127.0.0.1:0",
                absl::StrCat("--exit-with-parent=", getpid())};
  child.argv.insert(child.argv.end(), flags.begin(), flags.end());
  // The topology is ours, whatever cluster the user's shell belongs to.
  child.environment = {{"TF_CONFIG", std::nullopt}};
  child.output_file = absl::StrCat(options_.log_dir, "/", name, ".log");
  SYNCLINE_ASSIGN_OR_RETURN(auto process, ChildProcess::Spawn(child));
  daemons_.push_back({name, std::move(process)});
  return absl::OkStatus();
}

absl::Status LocalCluster::StartScheduler(InterruptSignals* interrupts) {
  const std::string port_file =
      absl::StrCat(options_.run_dir, "/scheduler.address");
  // A run that was killed in the same folder has left its own.
  SYNCLINE_RETURN_IF_ERROR(RemoveTree(port_file));
  SYNCLINE_RETURN_IF_ERROR(
      Spawn("scheduler", "syncline-scheduler",
            {absl::StrCat("--state-dir=", options_.run_dir, "/state"),
             absl::StrCat("--port-file=", port_file)}));
  const absl::Time deadline = MonotonicNow() + kListenTimeout;
  for (;;) {
    const auto address = ReadFile(port_file, kAddressBytesMax);
    if (address.ok() && !address->empty()) {
      scheduler_address_ = std::string(absl::StripAsciiWhitespace(*address));
      return absl::OkStatus();
    }
    SYNCLINE_RETURN_IF_ERROR(CheckAlive());
    if (MonotonicNow() > deadline) {
      return absl::UnavailableError(
          absl::StrCat("the scheduler did not listen within ",
                       absl::FormatDuration(kListenTimeout)));
    }
    if (interrupts->WaitFor(kPollInterval)) {
      return absl::CancelledError("interrupted");
    }
  }
}

absl::Status LocalCluster::StartMembers() {
  const std::string scheduler =
      absl::StrCat("--scheduler=", scheduler_address_);
  for (int i = 0; i < options_.ps; ++i) {
    SYNCLINE_RETURN_IF_ERROR(Spawn(absl::StrCat("ps-", i), "syncline-ps",
                                   {scheduler, absl::StrCat("--task=ps:", i)}));
  }
  SYNCLINE_RETURN_IF_ERROR(StartWorker("chief", 0));
  for (int i = 1; i < options_.workers; ++i) {
    SYNCLINE_RETURN_IF_ERROR(StartWorker("worker", i - 1));
  }
  return options_.evaluator ? StartWorker("evaluator", 0) : absl::OkStatus();
}

absl::Status LocalCluster::StartWorker(const std::string& type, int index) {
  const std::string name = absl::StrCat(type, "-", index);
  std::vector<std::string> flags = {
      absl::StrCat("--scheduler=", scheduler_address_),
      absl::StrCat("--task=", type, ":", index),
      absl::StrCat("--threads=", options_.threads_per_worker),
      absl::StrCat("--data-root=", options_.data_root),
      absl::StrCat("--work-dir=", options_.run_dir, "/", name)};
  // The data are the user's own files. --data-root bounds them.
  if (!options_.bounds_data) flags.push_back("--data-outside-root");
  return Spawn(name, "syncline-worker", flags);
}

std::string LocalCluster::NameOf(const Task& task) {
  return absl::StrCat(absl::AsciiStrToLower(TaskType_Name(task.type())), "-",
                      task.index());
}

absl::Status LocalCluster::CheckAlive(const std::set<std::string>& left_out) {
  for (const Daemon& daemon : daemons_) {
    const auto exit = daemon.process->Poll();
    if (!exit.has_value() || left_out.contains(daemon.name)) continue;
    return absl::UnavailableError(
        absl::StrCat(daemon.name, " ", exit->ToString(), "; the end of ",
                     daemon.process->output_file(), ":\n",
                     LastLines(daemon.process->output_file(), kLogLinesShown)));
  }
  return absl::OkStatus();
}

void LocalCluster::Stop(absl::Duration grace) {
  if (daemons_.empty()) return;
  const absl::Time deadline = MonotonicNow() + grace;
  std::vector<ChildProcess*> members;
  for (size_t i = 1; i < daemons_.size(); ++i) {
    members.push_back(daemons_[i].process.get());
  }
  StopAll(members, deadline);
  // When the others have left: none of them loses it.
  StopAll({daemons_[0].process.get()}, deadline);
  daemons_.clear();
}

std::string LastLines(const std::string& file, int lines) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const std::streamoff size = in.tellg();
  const std::streamoff from = std::max<std::streamoff>(0, size - kTailBytes);
  std::string tail(static_cast<size_t>(size - from), '\0');
  in.seekg(from);
  in.read(tail.data(), static_cast<std::streamsize>(tail.size()));
  tail.resize(static_cast<size_t>(in.gcount()));
  std::vector<absl::string_view> all =
      absl::StrSplit(absl::StripTrailingAsciiWhitespace(tail), '\n');
  if (all.size() > static_cast<size_t>(lines)) {
    all.erase(all.begin(), all.end() - lines);
  }
  return absl::StrJoin(all, "\n");
}

}  // namespace syncline::ctl

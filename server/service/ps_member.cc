#include "server/service/ps_member.h"

#include <filesystem>
#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/system/available_memory.h"
#include "common/system/free_disk.h"
#include "common/system/log.h"

namespace syncline::ps {
namespace {

constexpr absl::Duration kReportPeriod = absl::Seconds(2);

// Half of what there is: the rest is for dense parameters, for messages, and
// for others on this machine.
uint64_t DefaultTableMemory() {
  constexpr uint64_t kUnknown = 1ull << 30;
  const uint64_t available = AvailableMemoryBytes();
  return available == std::numeric_limits<uint64_t>::max() ? kUnknown
                                                           : available / 2;
}

// Bytes that rows may take on disk. If the operator asked for disk and there is
// none, that is an error at once. Otherwise rows then stay in memory.
absl::StatusOr<uint64_t> TableDisk(const DaemonOptions& options) {
  if (options.table_disk_bytes == 0) return 0;
  const absl::StatusOr<uint64_t> free = FreeDiskBytes(options.spill_dir);
  if (free.ok()) return options.table_disk_bytes.value_or(*free / 2);
  if (options.table_disk_bytes.has_value()) {
    return Annotate(free.status(), "--spill-dir");
  }
  LogWarning("rows of tables stay in memory").Status(free.status());
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PsMember>> PsMember::Create(
    const DaemonOptions& options, Daemon* daemon) {
  PsServer::Options ps;
  ps.lanes = options.lanes;
  ps.in_flight_bytes = options.in_flight_bytes;
  ps.shared_memory = options.shared_memory;
  ps.shared_memory_bytes = options.shared_memory_bytes;
  ps.metrics = daemon->metrics();
  ps.table_memory_bytes = options.table_memory_bytes > 0
                              ? options.table_memory_bytes
                              : DefaultTableMemory();
  SYNCLINE_ASSIGN_OR_RETURN(ps.table_disk_bytes, TableDisk(options));
  ps.spill_dir = options.spill_dir;
  if (!options.checkpoint_dir.empty()) {
    // Absolute: a checkpoint's path is told to others.
    ps.checkpoint_dir = std::filesystem::absolute(options.checkpoint_dir);
    SYNCLINE_RETURN_IF_ERROR(Annotate(FreeDiskBytes(ps.checkpoint_dir).status(),
                                      "--checkpoint-dir"));
  }
  LogInfo("room for tables")
      .Field("memory_bytes", ps.table_memory_bytes)
      .Field("disk_bytes", ps.table_disk_bytes)
      .Field("spill_dir", ps.spill_dir);
  MemberLink* const link = daemon->AddMember();
  ps.on_unreachable = [link](PeerUnreachable report) {
    DaemonMessage message;
    *message.mutable_unreachable() = std::move(report);
    link->Send(std::move(message));
  };
  SYNCLINE_ASSIGN_OR_RETURN(auto server, PsServer::Create(ps));
  if (ps.table_disk_bytes > 0) {
    daemon->AddReadiness([folder = ps.spill_dir] {
      return Annotate(FreeDiskBytes(folder).status(), "--spill-dir");
    });
  }
  server->RegisterService(daemon->builder());
  return absl::WrapUnique(
      new PsMember(std::move(server), daemon, link, ps.checkpoint_dir));
}

PsMember::PsMember(std::unique_ptr<PsServer> server, Daemon* daemon,
                   MemberLink* link, std::string checkpoint_dir)
    : daemon_(daemon),
      link_(link),
      incarnation_(EntropySeed()),
      server_(std::move(server)),
      commands_(
          server_.get(), incarnation_,
          [link = link_](DaemonMessage m) { link->Send(std::move(m)); },
          std::move(checkpoint_dir)),
      reports_("ps-reports", kReportPeriod, [this] { Report(); }) {}

void PsMember::Report() {
  for (PsReport& report : server_->Reports()) {
    DaemonMessage message;
    *message.mutable_ps_report() = std::move(report);
    link_->Send(std::move(message));
  }
}

void PsMember::Join(const TaskId& task, bool auto_index) {
  daemon_->Join(link_, task, auto_index, incarnation_,
                [this](const SchedulerMessage& command) {
                  commands_.OnCommand(command);
                });
}

void PsMember::Drain(absl::Time deadline) { server_->Drain(deadline); }

}  // namespace syncline::ps

#include "server/ps_member.h"

#include <utility>

#include "absl/memory/memory.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"

namespace syncline {

absl::StatusOr<std::unique_ptr<PsMember>> PsMember::Create(
    const DaemonOptions& options, Daemon* daemon) {
  PsServer::Options ps;
  ps.lanes = options.lanes;
  ps.in_flight_bytes = options.in_flight_bytes;
  ps.metrics = daemon->metrics();
  SYNCLINE_ASSIGN_OR_RETURN(auto server, PsServer::Create(ps));
  server->RegisterService(daemon->builder());
  return absl::WrapUnique(new PsMember(std::move(server), daemon));
}

PsMember::PsMember(std::unique_ptr<PsServer> server, Daemon* daemon)
    : daemon_(daemon),
      link_(daemon->AddMember()),
      incarnation_(EntropySeed()),
      server_(std::move(server)),
      commands_(server_.get(), incarnation_,
                [link = link_](DaemonMessage m) { link->Send(std::move(m)); }) {
}

void PsMember::Join(const TaskId& task, bool auto_index) {
  daemon_->Join(link_, task, auto_index, incarnation_,
                [this](const SchedulerMessage& command) {
                  commands_.OnCommand(command);
                });
}

void PsMember::Drain(absl::Time deadline) { server_->Drain(deadline); }

}  // namespace syncline

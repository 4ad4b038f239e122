#include "scheduler/core/cluster/closed_streams.h"

namespace syncline::scheduler {
namespace {

// A process that is being killed may answer once more.
constexpr absl::Duration kAskPeriod = absl::Milliseconds(250);

}  // namespace

std::vector<SessionId> ClosedStreams::TakeDue(absl::Time now) {
  std::vector<SessionId> due;
  for (auto& [session, stream] : streams_) {
    if (now < stream.ask_at) continue;
    stream.ask_at = absl::InfiniteFuture();
    due.push_back(session);
  }
  return due;
}

ClosedStreams::Outcome ClosedStreams::OnAnswer(SessionId session,
                                               const absl::Status& answer,
                                               absl::Time now) {
  streams_.at(session).ask_at = now + kAskPeriod;
  switch (answer.code()) {
    case absl::StatusCode::kOk:
      return Outcome::kAlive;
    case absl::StatusCode::kNotFound:            // no process listens
    case absl::StatusCode::kFailedPrecondition:  // another process
    case absl::StatusCode::kUnimplemented:       // no Syncline daemon
      return Outcome::kDead;
    default:
      return Outcome::kUnknown;
  }
}

std::vector<SessionId> ClosedStreams::Overdue(absl::Time now) const {
  std::vector<SessionId> overdue;
  for (const auto& [session, stream] : streams_) {
    if (now >= stream.register_by) overdue.push_back(session);
  }
  return overdue;
}

}  // namespace syncline::scheduler

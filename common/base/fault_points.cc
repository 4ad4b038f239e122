#include "common/base/fault_points.h"

#include <unistd.h>

#include <array>
#include <csignal>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace syncline {
namespace {

using Action = Fault::Action;

constexpr double kHangSecondsMax = 3600;

constexpr FaultPointInfo kPoints[] = {
    {FaultPoint::kFileRename, "file.rename", "every",
     "a small file, such as a checkpoint's manifest, is synced beside its "
     "place, and not renamed yet"},
    {FaultPoint::kPushReceived, "push.received", "ps",
     "a push has arrived whole and is recorded nowhere yet"},
    {FaultPoint::kPushAnswer, "push.answer", "ps",
     "a push is recorded, and applied if its answer says so; the answer is not "
     "sent yet"},
    {FaultPoint::kCutBegin, "cut.begin", "ps",
     "a cut is announced here; the shard does not know it yet"},
    {FaultPoint::kCutEnd, "cut.end", "ps",
     "a cut is to end here; the shard holds it still"},
    {FaultPoint::kCheckpointCreate, "checkpoint.create", "ps",
     "before a shard's file of a checkpoint is created"},
    {FaultPoint::kCheckpointWrite, "checkpoint.write", "ps",
     "before bytes of a shard's file are written"},
    {FaultPoint::kCheckpointSync, "checkpoint.sync", "ps",
     "a shard's file is written, and not synced yet"},
    {FaultPoint::kCheckpointSynced, "checkpoint.synced", "ps",
     "a shard's file is synced; the chief does not know it yet"},
    {FaultPoint::kManifestWrite, "manifest.write", "ps",
     "all files of a checkpoint are there, and nothing of its manifest is"},
    {FaultPoint::kManifestWritten, "manifest.written", "ps",
     "the manifest is in its place; the chief does not know it yet"},
    {FaultPoint::kCheckpointDelete, "checkpoint.delete", "ps",
     "before an older checkpoint is deleted"},
    {FaultPoint::kRestoreBegin, "restore.begin", "ps",
     "before a job's shards are read from a checkpoint"},
    {FaultPoint::kStatePiece, "state.piece", "ps",
     "a piece of a shard's state is to go to a worker, or has come from one, "
     "because the strategy changes",
     /*can_fail=*/true, /*is_mutant=*/false, /*needs_change=*/true},
    {FaultPoint::kStateTakeBack, "state.take_back", "ps",
     "the chief says that a shard's state has come from the workers; the shard "
     "does not go on with it yet",
     /*can_fail=*/true, /*is_mutant=*/false, /*needs_change=*/true},
    {FaultPoint::kStepBegin, "step.begin", "worker",
     "before a step of the training"},
    {FaultPoint::kSwitchPrepare, "switch.prepare", "worker",
     "the strategy is to change; this rank has nothing of the other one yet",
     /*can_fail=*/true, /*is_mutant=*/false, /*needs_change=*/true},
    {FaultPoint::kSwitchPrepared, "switch.prepared", "worker",
     "this rank has its part of the other strategy, and has not said so",
     /*can_fail=*/true, /*is_mutant=*/false, /*needs_change=*/true},
    {FaultPoint::kRegimeCommit, "regime.commit", "worker",
     "all ranks are ready for another regime; the chief has told nobody that "
     "it begins",
     /*can_fail=*/true, /*is_mutant=*/false, /*needs_change=*/true},
    {FaultPoint::kRegimeCommitted, "regime.committed", "worker",
     "another regime is in force; the chief has not gone on by it",
     /*can_fail=*/true, /*is_mutant=*/false, /*needs_change=*/true},
    {FaultPoint::kCheckpointBegin, "checkpoint.begin", "worker",
     "before the chief announces the cut of a checkpoint"},
    {FaultPoint::kCheckpointCommit, "checkpoint.commit", "worker",
     "all files of a checkpoint are synced; the chief has not asked for the "
     "manifest yet"},
    {FaultPoint::kCheckpointCommitted, "checkpoint.committed", "worker",
     "the manifest is written; the scheduler does not know it yet"},
    {FaultPoint::kResultUpload, "result.upload", "worker",
     "before a result is sent to the scheduler"},
    {FaultPoint::kRecordWrite, "record.write", "scheduler",
     "before a job's record is written"},
    {FaultPoint::kRecordWritten, "record.written", "scheduler",
     "a job's record is written; nobody has been told"},
    {FaultPoint::kResultStore, "result.store", "scheduler",
     "a result has arrived, and is not in its place yet"},
    {FaultPoint::kResultStored, "result.stored", "scheduler",
     "a result is in its place; the worker does not know it yet"},
    {FaultPoint::kPushSkipDeduplication, "push.skip_deduplication", "ps",
     "outside of SYNC, a push of a closed clock is applied again",
     /*can_fail=*/false, /*is_mutant=*/true},
    {FaultPoint::kCheckpointForgetSlots, "checkpoint.forget_slots", "ps",
     "a checkpoint has zeros for the optimizer's slots of dense blocks",
     /*can_fail=*/false, /*is_mutant=*/true},
};
static_assert(std::size(kPoints) == kFaultPointCount);

struct Armed {
  std::atomic<int64_t> reached = 0;
  int64_t count = 0;  // 0: not armed
  Action action = Action::kExit;
  absl::Duration hang;
};

std::array<Armed, kFaultPointCount>& ArmedPoints() {
  static std::array<Armed, kFaultPointCount> points;
  return points;
}

// Not through the log, which may be the thing that stands still.
void Say(FaultPoint point, int64_t times, absl::string_view what) {
  const std::string line =
      absl::StrCat("fault point ", kPoints[static_cast<size_t>(point)].name,
                   " reached for the ", times, ". time: ", what, "\n");
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) {
    // Nobody reads it.
  }
}

void StandStill(absl::Duration time) {
  const absl::Time end = MonotonicNow() + time;
  Mutex mu;
  CondVar never;
  MutexLock lock(&mu);
  while (MonotonicNow() < end) never.WaitUntil(&mu, end);
}

absl::Status BadFault(absl::string_view text, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\": ", problem));
}

absl::Status UnknownPoint(absl::string_view text, absl::string_view name) {
  std::string problem =
      absl::StrCat("there is no fault point \"", name, "\". There are:");
  for (const FaultPointInfo& info : kPoints) {
    absl::StrAppend(&problem, "\n  ", info.name, " (", info.process,
                    "): ", info.where);
  }
  return BadFault(text, problem);
}

}  // namespace

namespace internal {

std::atomic<bool> faults_are_armed = false;

absl::Status ReachFaultPoint(FaultPoint point) {
  Armed& armed = ArmedPoints()[static_cast<size_t>(point)];
  if (armed.count == 0) return absl::OkStatus();
  const int64_t times = armed.reached.fetch_add(1) + 1;
  const absl::string_view name = kPoints[static_cast<size_t>(point)].name;
  if (armed.action == Action::kMutate) {
    if (times < armed.count) return absl::OkStatus();
    if (times == armed.count) Say(point, times, "mutate");
    return absl::AbortedError(name);
  }
  if (armed.action == Action::kSlow) {
    if (times == armed.count) Say(point, times, "slow");
    if (times >= armed.count) StandStill(armed.hang);
    return absl::OkStatus();
  }
  if (times != armed.count) return absl::OkStatus();
  switch (armed.action) {
    case Action::kExit:
      Say(point, times, "exit");
      kill(getpid(), SIGKILL);
      pause();
      break;
    case Action::kHang:
      Say(point, times, "hang");
      StandStill(armed.hang);
      break;
    case Action::kError:
      Say(point, times, "error");
      return absl::UnavailableError(
          absl::StrCat("fault point ", name, ": --fault asks for this error"));
    case Action::kSlow:
    case Action::kMutate:
      break;
  }
  return absl::OkStatus();
}

}  // namespace internal

absl::Span<const FaultPointInfo> FaultPoints() { return kPoints; }

absl::StatusOr<Fault> ParseFault(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  if (parts.size() < 3) return BadFault(text, "expected NAME:COUNT:ACTION");
  const FaultPointInfo* info = nullptr;
  for (const FaultPointInfo& one : kPoints) {
    if (one.name == parts[0]) info = &one;
  }
  if (info == nullptr) return UnknownPoint(text, parts[0]);
  Fault fault;
  fault.point = info->point;
  if (!absl::SimpleAtoi(parts[1], &fault.count) || fault.count < 1) {
    return BadFault(text, "COUNT is a number from 1");
  }
  double seconds = 0;
  if (parts[2] == "hang" || parts[2] == "slow") {
    if (parts.size() != 4 || !absl::SimpleAtod(parts[3], &seconds) ||
        !(seconds > 0 && seconds <= kHangSecondsMax)) {
      return BadFault(text,
                      absl::StrCat("expected ", parts[2],
                                   ":SECONDS, more than 0, at most 3600"));
    }
    fault.action = parts[2] == "hang" ? Action::kHang : Action::kSlow;
    fault.hang = absl::Seconds(seconds);
  } else if (parts.size() != 3) {
    return BadFault(text, "only hang and slow have a number behind them");
  } else if (parts[2] == "exit") {
    fault.action = Action::kExit;
  } else if (parts[2] == "error") {
    fault.action = Action::kError;
  } else if (parts[2] == "mutate") {
    fault.action = Action::kMutate;
  } else {
    return BadFault(text,
                    "ACTION is exit, hang:SECONDS, slow:SECONDS, error, or "
                    "mutate for a bug");
  }
  if (info->is_mutant != (fault.action == Action::kMutate)) {
    return BadFault(text, info->is_mutant
                              ? "this point is a bug: its action is mutate"
                              : "mutate is for points that are bugs");
  }
  if (fault.action == Action::kError && !info->can_fail) {
    return BadFault(text, "nothing can fail at this point");
  }
  return fault;
}

void ArmFaults(absl::Span<const Fault> faults) {
  for (const Fault& fault : faults) {
    Armed& armed = ArmedPoints()[static_cast<size_t>(fault.point)];
    armed.count = fault.count;
    armed.action = fault.action;
    armed.hang = fault.hang;
  }
  if (!faults.empty()) internal::faults_are_armed = true;
}

}  // namespace syncline

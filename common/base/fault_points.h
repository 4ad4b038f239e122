#ifndef SYNCLINE_COMMON_BASE_FAULT_POINTS_H_
#define SYNCLINE_COMMON_BASE_FAULT_POINTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace syncline {

// The places where a test makes a daemon fail, by `--fault=NAME:COUNT:ACTION`.
// They are compiled into every daemon and are off without the flag: each costs
// one relaxed load then. Names and places are in FaultPoints().
enum class FaultPoint : uint8_t {
  // Of every daemon.
  kFileRename,
  // Of a ps.
  kPushReceived,
  kPushAnswer,
  kCutBegin,
  kCutEnd,
  kCheckpointCreate,
  kCheckpointWrite,
  kCheckpointSync,
  kCheckpointSynced,
  kManifestWrite,
  kManifestWritten,
  kCheckpointDelete,
  kRestoreBegin,
  kStatePiece,
  kStateTakeBack,
  // Of a worker; all but the first three of the chief.
  kStepBegin,
  kSwitchPrepare,
  kSwitchPrepared,
  kRegimeCommit,
  kRegimeCommitted,
  kCheckpointBegin,
  kCheckpointCommit,
  kCheckpointCommitted,
  kResultUpload,
  // Of a scheduler.
  kRecordWrite,
  kRecordWritten,
  kResultStore,
  kResultStored,
  // Of a ps: bugs, which a test must find.
  kPushSkipDeduplication,
  kCheckpointForgetSlots,
};
inline constexpr size_t kFaultPointCount =
    static_cast<size_t>(FaultPoint::kCheckpointForgetSlots) + 1;

struct FaultPointInfo {
  FaultPoint point;
  absl::string_view name;     // "checkpoint.sync"
  absl::string_view process;  // "ps", "worker", "scheduler" or "every"
  absl::string_view where;    // when it is reached, for people
  // `error` is possible: the call that reaches the point can fail there.
  bool can_fail = true;
  // A bug to be switched on, by the action `mutate` alone.
  bool is_mutant = false;
  // Reached only where a job changes how it trains.
  bool needs_change = false;
};

// The one table of names, in the order of FaultPoint.
absl::Span<const FaultPointInfo> FaultPoints();

// A fault as one --fault flag asks for it.
struct Fault {
  enum class Action {
    kExit,    // The process ends there, as by kill -9.
    kHang,    // The thread stands still for `hang`, and goes on.
    kSlow,    // So it does each time from then on.
    kError,   // The call fails there with Unavailable.
    kMutate,  // The bug is there from then on.
  };
  FaultPoint point = FaultPoint::kPushReceived;
  int64_t count = 1;  // at the n-th time, from 1
  Action action = Action::kExit;
  absl::Duration hang = absl::ZeroDuration();
};

// "NAME:COUNT:ACTION"; ACTION is exit, hang:SECONDS, slow:SECONDS, error or
// mutate.
// Errors: InvalidArgument, with what is possible instead.
absl::StatusOr<Fault> ParseFault(absl::string_view text);

// Switches faults on; several of one point: the last one counts. Before other
// threads run.
void ArmFaults(absl::Span<const Fault> faults);

namespace internal {
extern std::atomic<bool> faults_are_armed;
absl::Status ReachFaultPoint(FaultPoint point);
}  // namespace internal

// Marks a place in the product. OK unless a fault of the action kError strikes
// here. Thread-safe. A fault is said on standard error before it strikes.
inline absl::Status AtFaultPoint(FaultPoint point) {
  if (ABSL_PREDICT_TRUE(
          !internal::faults_are_armed.load(std::memory_order_relaxed))) {
    return absl::OkStatus();
  }
  return internal::ReachFaultPoint(point);
}

// True if the bug `point` is to be there this time.
inline bool IsMutant(FaultPoint point) { return !AtFaultPoint(point).ok(); }

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_FAULT_POINTS_H_

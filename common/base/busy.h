#ifndef SYNCLINE_COMMON_BASE_BUSY_H_
#define SYNCLINE_COMMON_BASE_BUSY_H_

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace syncline {

// ResourceExhausted for want of room that calls under way hold: the room comes
// back when they end. So a caller that finds none for long waits for whoever
// they wait for. Full memory and full disks are ResourceExhausted without this.
inline constexpr char kBusyPayload[] = "syncline/busy";

inline absl::Status BusyError(absl::string_view message) {
  absl::Status status = absl::ResourceExhaustedError(message);
  status.SetPayload(kBusyPayload, absl::Cord("1"));
  return status;
}

inline bool IsBusy(const absl::Status& status) {
  return absl::IsResourceExhausted(status) &&
         status.GetPayload(kBusyPayload).has_value();
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_BUSY_H_

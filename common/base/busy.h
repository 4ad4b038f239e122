#ifndef SYNCLINE_COMMON_BASE_BUSY_H_
#define SYNCLINE_COMMON_BASE_BUSY_H_

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace syncline {

// The payload of a ResourceExhausted whose room is held by calls under way: it
// comes back when they end. So a caller that finds no room for long waits for
// the members they wait for. A full memory or disk has no such payload.
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

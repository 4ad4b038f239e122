#include "worker/client/transport/client_telemetry.h"

namespace syncline::worker {

absl::string_view FallbackName(SharedFallback reason) {
  switch (reason) {
    case SharedFallback::kOff:
      return "off";
    case SharedFallback::kOtherHost:
      return "other_host";
    case SharedFallback::kUnreachable:
      return "unreachable";
    case SharedFallback::kSocket:
      return "socket";
    case SharedFallback::kMemory:
      return "memory";
    case SharedFallback::kRefused:
      return "refused";
    case SharedFallback::kFull:
      return "full";
    case SharedFallback::kLost:
      break;
  }
  return "lost";
}

}  // namespace syncline::worker

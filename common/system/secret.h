#ifndef SYNCLINE_COMMON_SYSTEM_SECRET_H_
#define SYNCLINE_COMMON_SYSTEM_SECRET_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace syncline {

// 16 random bytes from the kernel, by which a caller proves its identity.
// Errors: Unavailable: the kernel gives none; nothing weaker is used instead.
absl::StatusOr<std::string> NewSecret();

// True if `said` is `secret`. An empty secret equals nothing. The time it takes
// depends on the lengths alone, so it says nothing of where they differ.
bool SecretsEqual(absl::string_view secret, absl::string_view said);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_SECRET_H_

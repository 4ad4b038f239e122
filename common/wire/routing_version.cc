#include "common/wire/routing_version.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace syncline {

absl::Status WithRoutingVersion(absl::Status refusal, uint64_t version) {
  refusal.SetPayload(kRoutingVersionDetail, absl::Cord(absl::StrCat(version)));
  return refusal;
}

std::optional<uint64_t> RoutingVersionOf(const absl::Status& refusal) {
  if (!absl::IsAborted(refusal)) return std::nullopt;
  const auto payload = refusal.GetPayload(kRoutingVersionDetail);
  uint64_t version = 0;
  if (!payload.has_value() ||
      !absl::SimpleAtoi(std::string(*payload), &version) || version == 0) {
    return std::nullopt;
  }
  return version;
}

}  // namespace syncline

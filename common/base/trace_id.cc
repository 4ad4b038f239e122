#include "common/base/trace_id.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/printable.h"
#include "common/base/random.h"

namespace syncline {
namespace {

constexpr size_t kTraceDigits = 32;
constexpr size_t kShownBytesMax = 80;

bool IsLowerHex(char c) {
  return absl::ascii_isdigit(static_cast<unsigned char>(c)) ||
         (c >= 'a' && c <= 'f');
}

}  // namespace

bool IsTraceId(absl::string_view text) {
  return text.size() == kTraceDigits && absl::c_all_of(text, IsLowerHex) &&
         absl::c_any_of(text, [](char c) { return c != '0'; });
}

std::string NewTraceId() {
  // EntropySeed is never 0.
  return absl::StrCat(absl::Hex(EntropySeed(), absl::kZeroPad16),
                      absl::Hex(EntropySeed(), absl::kZeroPad16));
}

absl::Status CheckTraceId(absl::string_view field, absl::string_view text) {
  if (IsTraceId(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, ": \"", Printable(text.substr(0, kShownBytesMax)),
      "\" is no trace id: 32 digits of 0-9 and a-f, and not all of them 0"));
}

absl::StatusOr<std::string> TraceIdOfParent(absl::string_view traceparent) {
  // A later version may have more parts; "ff" is no version.
  const std::vector<absl::string_view> parts = absl::StrSplit(traceparent, '-');
  const bool fits = parts.size() >= 4 && parts[0].size() == 2 &&
                    absl::c_all_of(parts[0], IsLowerHex) && parts[0] != "ff" &&
                    IsTraceId(parts[1]);
  if (fits) return std::string(parts[1]);
  return absl::InvalidArgumentError(absl::StrCat(
      "TRACEPARENT: \"", Printable(traceparent.substr(0, kShownBytesMax)),
      "\" is not 00-TRACE-PARENT-FLAGS, with a TRACE of 32 digits of 0-9 and "
      "a-f"));
}

}  // namespace syncline

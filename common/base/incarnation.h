#ifndef SYNCLINE_COMMON_BASE_INCARNATION_H_
#define SYNCLINE_COMMON_BASE_INCARNATION_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace syncline {

// An incarnation as every message and log line writes it, so that one search
// finds them all: "0x00000000000000ab".
inline std::string IncarnationText(uint64_t incarnation) {
  return absl::StrCat("0x", absl::Hex(incarnation, absl::kZeroPad16));
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_INCARNATION_H_

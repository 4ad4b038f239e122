#ifndef SYNCLINE_COMMON_BASE_INCARNATION_H_
#define SYNCLINE_COMMON_BASE_INCARNATION_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"

namespace syncline {

// An incarnation as every message and log line writes it: "0x9f3c", 16 bits of
// a hash. The same incarnation has the same text everywhere, so that one search
// finds all lines about it. The number itself is what a process proves its
// membership with, and is never written where people read.
inline std::string IncarnationText(uint64_t incarnation) {
  return absl::StrCat("0x",
                      absl::Hex(Mix64(incarnation) >> 48, absl::kZeroPad4));
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_INCARNATION_H_

#ifndef SYNCLINE_COMMON_JOB_STRICT_JSON_H_
#define SYNCLINE_COMMON_JOB_STRICT_JSON_H_

#include <cstddef>
#include <limits>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/struct.pb.h"

namespace syncline {

struct JsonLimits {
  size_t bytes_max = 1 << 20;
  int depth_max = 32;
  // Objects, lists, texts, numbers and words, but keys: each takes about 50
  // bytes of memory once it is read.
  size_t values_max = std::numeric_limits<size_t>::max();
};

// Reads one JSON value as RFC 8259 has it. Protobuf's own parser takes more
// than that: single quotes, bare keys, trailing commas, any depth. Numbers
// become doubles, as JSON's do. Treats the text as hostile.
// Errors: InvalidArgument, "line:column: what is wrong"; a key that occurs
// twice in one object is an error.
absl::StatusOr<google::protobuf::Value> ParseStrictJson(
    absl::string_view text, const JsonLimits& limits = JsonLimits());

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_STRICT_JSON_H_

#ifndef SYNCLINE_COMMON_BASE_UTF8_H_
#define SYNCLINE_COMMON_BASE_UTF8_H_

#include "absl/strings/string_view.h"

namespace syncline {

// Whether protobuf takes it as a string: what is not can be written into a
// message, but then nobody can read that message.
bool IsUtf8(absl::string_view text);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_UTF8_H_

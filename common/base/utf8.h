#ifndef SYNCLINE_COMMON_BASE_UTF8_H_
#define SYNCLINE_COMMON_BASE_UTF8_H_

#include <string>

#include "absl/strings/string_view.h"

namespace syncline {

// Whether protobuf takes it as a string: what is not can be written into a
// message, but then nobody can read that message.
bool IsUtf8(absl::string_view text);

// `text` with each byte that is no part of a character written as "\xe4": what
// others wrote (files, names of files, peers), fit for a protobuf string.
std::string Utf8Text(absl::string_view text);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_UTF8_H_

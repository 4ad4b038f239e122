#ifndef SYNCLINE_COMMON_BASE_UTF8_H_
#define SYNCLINE_COMMON_BASE_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace syncline {

// True if protobuf accepts `text` as a string. Protobuf writes other text into
// a message too, but then no reader can parse the message.
bool IsUtf8(absl::string_view text);

// `text` with each byte that is no part of a character written as "\xe4": what
// others wrote (files, names of files, peers), fit for a protobuf string.
std::string Utf8Text(absl::string_view text);

// The first `bytes_max` bytes of it at most, cut between two characters.
// REQUIRES: IsUtf8(text).
absl::string_view Utf8Prefix(absl::string_view text, size_t bytes_max);
// The same, with " ..." after it where that is not all of `text`.
std::string Utf8Shortened(absl::string_view text, size_t bytes_max);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_UTF8_H_

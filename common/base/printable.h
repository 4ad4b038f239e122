#ifndef SYNCLINE_COMMON_BASE_PRINTABLE_H_
#define SYNCLINE_COMMON_BASE_PRINTABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace syncline {

// Text from elsewhere (host names, messages, names in files) as a terminal may
// show it: letters of every script, line ends and tabs stay. Whatever moves the
// cursor, colours, rings or turns the direction of writing is escaped: "\x1b",
// "\u202e"; so is what is not UTF-8. Text that went through it once is not
// changed again.
std::string Printable(absl::string_view text);

// The character at the front of a text, for those who escape in another way:
// its length in bytes, at least 1, and whether Printable escapes it. A byte
// that begins no character is one of its own, and `code` is that byte.
struct FrontCharacter {
  uint32_t code = 0;
  size_t bytes = 1;
  bool escaped = false;
};
// REQUIRES: `text` is not empty.
FrontCharacter FrontOf(absl::string_view text);

// Length of the UTF-8 sequence at the end of `text` that may still become a
// whole character; 0 if none begins there. For callers that get text in pieces.
size_t OpenCharacterBytes(absl::string_view text);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_PRINTABLE_H_

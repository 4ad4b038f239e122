#include "common/base/printable.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace syncline {
namespace {

constexpr size_t kCharacterBytesMax = 4;

// Bytes of the character that begins with `first`; 0: none does.
size_t CharacterBytes(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return 2;
  if (first >= 0xe0 && first <= 0xef) return 3;
  if (first >= 0xf0 && first <= 0xf4) return 4;
  return 0;
}

bool Continues(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

// The character at the front of `text` and its length; length 0: it is none.
struct Character {
  uint32_t code = 0;
  size_t bytes = 0;
};
Character FirstCharacter(absl::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t bytes = CharacterBytes(first);
  if (bytes == 0 || bytes > text.size()) return {};
  if (bytes == 1) return {first, 1};
  uint32_t code = first & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if (!Continues(text[i])) return {};
    code = (code << 6) | (static_cast<unsigned char>(text[i]) & 0x3f);
  }
  const bool overlong =
      (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  const bool no_character =
      (code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff;
  if (overlong || no_character) return {};
  return {code, bytes};
}

bool IsControl(uint32_t code) {
  if (code == '\n' || code == '\t') return false;
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return true;
  // Directions of writing, and what some take for the end of a line.
  return code == 0x061c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

FrontCharacter FrontOf(absl::string_view text) {
  const Character next = FirstCharacter(text);
  if (next.bytes == 0) {
    return {.code = static_cast<unsigned char>(text[0]), .escaped = true};
  }
  return {
      .code = next.code, .bytes = next.bytes, .escaped = IsControl(next.code)};
}

std::string Printable(absl::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const FrontCharacter next = FrontOf(text);
    if (!next.escaped) {
      shown.append(text.data(), next.bytes);
    } else if (next.bytes > 1) {
      absl::StrAppend(&shown, "\\u", absl::Hex(next.code, absl::kZeroPad4));
    } else {
      absl::StrAppend(&shown, "\\x", absl::Hex(next.code, absl::kZeroPad2));
    }
    text.remove_prefix(next.bytes);
  }
  return shown;
}

size_t OpenCharacterBytes(absl::string_view text) {
  const size_t most = std::min(text.size(), kCharacterBytesMax - 1);
  for (size_t bytes = 1; bytes <= most; ++bytes) {
    const char c = text[text.size() - bytes];
    if (Continues(c)) continue;
    return CharacterBytes(static_cast<unsigned char>(c)) > bytes ? bytes : 0;
  }
  return 0;
}

}  // namespace syncline

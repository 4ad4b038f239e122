#include "common/base/utf8.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace syncline {
namespace {

// Bytes of the character that `text` starts with; 0: it starts with none.
// Source: Unicode 15, table 3-7, well-formed UTF-8 byte sequences.
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
  };
  const unsigned lead = byte(0);
  const size_t bytes = lead < 0x80   ? 1
                       : lead < 0xc2 ? 0
                       : lead < 0xe0 ? 2
                       : lead < 0xf0 ? 3
                       : lead < 0xf5 ? 4
                                     : 0;
  for (size_t k = 1; k < bytes; ++k) {
    if ((byte(k) & 0xc0) != 0x80) return 0;
  }
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;  // overlong
  if (lead == 0xed && byte(1) > 0x9f) return 0;  // surrogate
  if (lead == 0xf0 && byte(1) < 0x90) return 0;  // overlong
  if (lead == 0xf4 && byte(1) > 0x8f) return 0;  // above U+10FFFF
  return bytes;
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string Utf8Text(absl::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    if (bytes > 0) {
      absl::StrAppend(&out, text.substr(0, bytes));
    } else {
      absl::StrAppend(
          &out, "\\x",
          absl::Hex(static_cast<unsigned char>(text[0]), absl::kZeroPad2));
    }
    text.remove_prefix(bytes > 0 ? bytes : 1);
  }
  return out;
}

absl::string_view Utf8Prefix(absl::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t kept = bytes_max;
  while (kept > 0 && (text[kept] & 0xc0) == 0x80) --kept;
  return text.substr(0, kept);
}

std::string Utf8Shortened(absl::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return std::string(text);
  return absl::StrCat(Utf8Prefix(text, bytes_max), " ...");
}

}  // namespace syncline

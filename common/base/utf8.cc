#include "common/base/utf8.h"

namespace syncline {

bool IsUtf8(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) {
      return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
    };
    const unsigned lead = byte(i);
    const int more = lead < 0x80   ? 0
                     : lead < 0xc2 ? -1
                     : lead < 0xe0 ? 1
                     : lead < 0xf0 ? 2
                     : lead < 0xf5 ? 3
                                   : -1;
    if (more < 0) return false;
    for (int k = 1; k <= more; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    }
    if (lead == 0xe0 && byte(i + 1) < 0xa0) return false;  // overlong
    if (lead == 0xed && byte(i + 1) > 0x9f) return false;  // surrogate
    if (lead == 0xf0 && byte(i + 1) < 0x90) return false;  // overlong
    if (lead == 0xf4 && byte(i + 1) > 0x8f) return false;  // above U+10FFFF
    i += 1 + more;
  }
  return true;
}

}  // namespace syncline

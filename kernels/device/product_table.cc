#include "kernels/device/product_table.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"

namespace syncline {
namespace {

constexpr absl::string_view kTitle = "syncline product algorithms ";
constexpr int kVersion = 1;
constexpr absl::string_view kGpu = "gpu ";
constexpr absl::string_view kLibrary = "library ";
constexpr absl::string_view kChecksum = "crc32c ";

// Names come from drivers and libraries.
std::string OneLine(absl::string_view text) {
  std::string line(absl::StripAsciiWhitespace(text));
  for (char& c : line) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  }
  return line;
}

bool IsKey(absl::string_view text) {
  return !text.empty() && text.size() <= ProductTable::kKeyBytesMax &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return absl::ascii_isprint(c); }) &&
         text.front() != ' ' && text.back() != ' ';
}

bool IsHexadecimal(absl::string_view text) {
  return !text.empty() && text.size() % 2 == 0 &&
         text.size() / 2 <= ProductTable::kAlgorithmBytesMax &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return absl::ascii_isxdigit(c); });
}

std::string ChecksumLine(absl::string_view text) {
  return absl::StrFormat("%s%08x\n", kChecksum, Crc32c(text));
}

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat(
      "no table of algorithms for products, or a damaged one: ", what));
}

}  // namespace

ProductTable::ProductTable(ProductLibrary library)
    : library_{OneLine(library.gpu), OneLine(library.name)} {}

bool ProductTable::Set(absl::string_view key, absl::string_view algorithm) {
  SYNCLINE_CHECK(IsKey(key) && !algorithm.empty() &&
                 algorithm.size() <= kAlgorithmBytesMax);
  const auto it = algorithms_.find(key);
  if (it != algorithms_.end()) {
    it->second = std::string(algorithm);
    return true;
  }
  if (algorithms_.size() == kEntriesMax) return false;
  algorithms_.emplace(key, algorithm);
  return true;
}

const std::string* ProductTable::Find(absl::string_view key) const {
  const auto it = algorithms_.find(key);
  return it == algorithms_.end() ? nullptr : &it->second;
}

std::string ProductTable::ToText() const {
  std::string text = absl::StrCat(kTitle, kVersion, "\n", kGpu, library_.gpu,
                                  "\n", kLibrary, library_.name, "\n");
  for (const auto& [key, algorithm] : algorithms_) {
    absl::StrAppend(&text, absl::BytesToHexString(algorithm), " ", key, "\n");
  }
  absl::StrAppend(&text, ChecksumLine(text));
  return text;
}

absl::StatusOr<ProductTable> ProductTable::FromText(absl::string_view text) {
  if (text.size() > kTextBytesMax) return Damaged("it is too large");
  // The version is first: a later one may have another end.
  int version = 0;
  absl::string_view first = text.substr(0, text.find('\n'));
  if (!absl::ConsumePrefix(&first, kTitle) ||
      !absl::SimpleAtoi(first, &version)) {
    return Damaged("it does not begin as one");
  }
  if (version != kVersion) {
    return absl::UnimplementedError(
        absl::StrCat("a table of algorithms for products of version ", version,
                     " of its format; this program knows ", kVersion));
  }
  const size_t end = text.rfind(kChecksum);
  if (end == absl::string_view::npos ||
      text.substr(end) != ChecksumLine(text.substr(0, end))) {
    return Damaged("its checksum is wrong or missing");
  }
  std::vector<absl::string_view> lines =
      absl::StrSplit(text.substr(0, end), '\n');
  // The last one is what follows the last line's end.
  if (lines.size() < 4 || !lines.back().empty() ||
      !absl::ConsumePrefix(&lines[1], kGpu) ||
      !absl::ConsumePrefix(&lines[2], kLibrary)) {
    return Damaged("its first lines");
  }
  ProductTable table({std::string(lines[1]), std::string(lines[2])});
  for (size_t i = 3; i + 1 < lines.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(lines[i], absl::MaxSplits(' ', 1));
    if (!IsHexadecimal(parts.first) || !IsKey(parts.second) ||
        table.Find(parts.second) != nullptr ||
        !table.Set(parts.second, absl::HexStringToBytes(parts.first))) {
      return Damaged(absl::StrCat("line ", i + 1));
    }
  }
  return table;
}

}  // namespace syncline

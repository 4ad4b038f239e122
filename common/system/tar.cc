#include "common/system/tar.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"

namespace syncline {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kNameBytes = 100;
constexpr size_t kLongNameBytesMax = 4096;
constexpr uint64_t kOctalMax = (uint64_t{1} << 33) - 1;  // eleven digits
constexpr char kFile = '0';
constexpr char kFolder = '5';
constexpr char kLongName = 'L';
constexpr char kLongNameOf[] = "././@LongLink";
// Offsets in a header.
constexpr size_t kMode = 100;
constexpr size_t kUser = 108;
constexpr size_t kGroup = 116;
constexpr size_t kSize = 124;
constexpr size_t kSizeBytes = 12;
constexpr size_t kTime = 136;
constexpr size_t kSum = 148;
constexpr size_t kSumBytes = 8;
constexpr size_t kType = 156;
constexpr size_t kMagic = 257;
constexpr size_t kPrefix = 345;
constexpr size_t kPrefixBytes = 155;

uint64_t PaddingOf(uint64_t bytes) {
  return (kBlock - bytes % kBlock) % kBlock;
}

bool IsZero(absl::string_view bytes) {
  return absl::c_all_of(bytes, [](char c) { return c == '\0'; });
}

void Set(std::string* header, size_t at, absl::string_view text) {
  std::memcpy(header->data() + at, text.data(), text.size());
}

// The checksum's own bytes count as spaces.
uint32_t SumOf(absl::string_view header) {
  uint32_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    const bool own = i >= kSum && i < kSum + kSumBytes;
    sum += own ? ' ' : static_cast<unsigned char>(header[i]);
  }
  return sum;
}

std::string Header(absl::string_view name, uint64_t bytes, char type) {
  std::string header(kBlock, '\0');
  Set(&header, 0, name.substr(0, kNameBytes));
  Set(&header, kMode, "0000600");
  Set(&header, kUser, "0000000");
  Set(&header, kGroup, "0000000");
  if (bytes <= kOctalMax) {
    Set(&header, kSize, absl::StrFormat("%011o", bytes));
  } else {
    header[kSize] = '\x80';
    for (size_t i = 0; i < 8; ++i) {
      header[kSize + kSizeBytes - 1 - i] = static_cast<char>(bytes >> (8 * i));
    }
  }
  Set(&header, kTime, "00000000000");
  header[kType] = type;
  Set(&header, kMagic, absl::string_view("ustar  \0", 8));
  Set(&header, kSum, absl::StrFormat("%06o", SumOf(header)));
  header[kSum + 7] = ' ';
  return header;
}

// Digits, and then zeros or spaces alone. None: it is something else, which
// readers take for different numbers.
std::optional<uint64_t> OctalOf(absl::string_view text) {
  uint64_t number = 0;
  size_t digits = 0;
  for (; digits < text.size(); ++digits) {
    const char c = text[digits];
    if (c < '0' || c > '7') break;
    number = number * 8 + static_cast<uint64_t>(c - '0');
  }
  const bool good = absl::c_all_of(
      text.substr(digits), [](char c) { return c == '\0' || c == ' '; });
  if (digits == 0 || !good) return std::nullopt;
  return number;
}

// POSIX's format has a longer name in two parts.
std::string ShortName(const std::string& header) {
  const std::string name = header.substr(0, kNameBytes).c_str();
  // GNU's own format has "ustar  " there, and other fields in place of a
  // prefix.
  if (absl::string_view(header).substr(kMagic, 6) !=
      absl::string_view("ustar\0", 6)) {
    return name;
  }
  const std::string prefix = header.substr(kPrefix, kPrefixBytes).c_str();
  return prefix.empty() ? name : absl::StrCat(prefix, "/", name);
}

// Errors: FailedPrecondition.
absl::Status CheckEntry(absl::string_view name, char type, uint64_t bytes) {
  const auto refuse = [&](absl::string_view what) {
    return absl::FailedPreconditionError(
        absl::StrCat("it is refused: \"", Printable(name), "\" ", what));
  };
  if (!IsPathBelow(name)) return refuse("leads out of the folder");
  // One file has one name, so that a name twice is found.
  absl::string_view spelled = name;
  if (type == kFolder) absl::ConsumeSuffix(&spelled, "/");
  for (const absl::string_view part : absl::StrSplit(spelled, '/')) {
    if (part.empty() || part == ".") {
      return refuse("has a part that is empty or \".\" in its name");
    }
  }
  switch (type) {
    case kFile:
    case '\0':
      return absl::OkStatus();
    case kFolder:
      // Some readers skip it, and others take it for further entries.
      return bytes == 0 ? absl::OkStatus() : refuse("is a folder with content");
    case '1':
      return refuse("is a hard link");
    case '2':
      return refuse("is a symbolic link");
    default:
      return refuse(absl::StrCat("is no file and no folder (type ",
                                 Printable(std::string(1, type)), ")"));
  }
}

// None: it is no number, or more than a file can have.
std::optional<uint64_t> SizeOf(absl::string_view header) {
  const absl::string_view field = header.substr(kSize, kSizeBytes);
  if (field[0] != '\x80') return OctalOf(field);
  uint64_t bytes = 0;
  for (const char c : field.substr(1)) {
    if (bytes >> 55 != 0) return std::nullopt;
    bytes = bytes << 8 | static_cast<unsigned char>(c);
  }
  return bytes;
}

}  // namespace

bool IsPathBelow(absl::string_view name) {
  if (name.empty() || name[0] == '/') return false;
  for (const absl::string_view part : absl::StrSplit(name, '/')) {
    if (part == "..") return false;
  }
  return true;
}

std::string TarHeader(const TarEntry& entry) {
  std::string before;
  if (entry.name.size() > kNameBytes) {
    before = Header(kLongNameOf, entry.name.size() + 1, kLongName);
    absl::StrAppend(&before, entry.name, std::string(1, '\0'),
                    TarPadding(entry.name.size() + 1));
  }
  return before + Header(entry.name, entry.bytes, kFile);
}

std::string TarPadding(uint64_t bytes) {
  return std::string(PaddingOf(bytes), '\0');
}

std::string TarEnd() { return std::string(2 * kBlock, '\0'); }

absl::StatusOr<std::unique_ptr<TarReader>> TarReader::Open(
    const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "rbe");
  if (file == nullptr) return FileError(errno, "read", path);
  return absl::WrapUnique(new TarReader(path, file));
}

absl::Status TarReader::Damaged(const std::string& what) const {
  return absl::DataLossError(absl::StrCat("archive ", path_, ": ", what));
}

absl::StatusOr<std::string> TarReader::ReadBytes(size_t bytes) {
  std::string content(bytes, '\0');
  if (std::fread(content.data(), 1, bytes, file_.get()) != bytes) {
    return Damaged("it is cut off");
  }
  return content;
}

absl::Status TarReader::Skip(uint64_t bytes) {
  while (bytes > 0) {
    const auto part = static_cast<size_t>(std::min<uint64_t>(bytes, 1 << 20));
    SYNCLINE_RETURN_IF_ERROR(ReadBytes(part).status());
    bytes -= part;
  }
  return absl::OkStatus();
}

absl::Status TarReader::CheckEnd() {
  SYNCLINE_ASSIGN_OR_RETURN(const std::string second, ReadBytes(kBlock));
  if (!IsZero(second)) {
    return Damaged("one block of zeros is within it; its end has two");
  }
  // Writers fill the last record up with zeros. A second archive there is one
  // that some readers take for a part of the first.
  std::string rest(1 << 16, '\0');
  size_t bytes = 0;
  do {
    bytes = std::fread(rest.data(), 1, rest.size(), file_.get());
    if (!IsZero(absl::string_view(rest).substr(0, bytes))) {
      return Damaged("something comes after its end");
    }
  } while (bytes == rest.size());
  if (std::ferror(file_.get()) != 0) return FileError(errno, "read", path_);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<TarEntry>> TarReader::Next() {
  std::string long_name;
  for (;;) {
    SYNCLINE_RETURN_IF_ERROR(Skip(left_ + padding_));
    left_ = padding_ = 0;
    SYNCLINE_ASSIGN_OR_RETURN(const std::string header, ReadBytes(kBlock));
    if (IsZero(header)) {
      SYNCLINE_RETURN_IF_ERROR(CheckEnd());
      return std::nullopt;
    }
    if (OctalOf(absl::string_view(header).substr(kSum, kSumBytes)) !=
        SumOf(header)) {
      return Damaged("a header is damaged, or it is no archive of tar");
    }
    const auto bytes = SizeOf(header);
    if (!bytes.has_value()) return Damaged("a size is no number");
    left_ = *bytes;
    padding_ = PaddingOf(left_);
    const char type = header[kType];
    if (type == kLongName) {
      if (left_ > kLongNameBytesMax) return Damaged("a name is too long");
      SYNCLINE_ASSIGN_OR_RETURN(long_name, Read(kLongNameBytesMax));
      long_name = long_name.c_str();  // without the zero at its end
      if (long_name.empty()) return Damaged("a name is empty");
      continue;
    }
    TarEntry entry = {.name = std::exchange(long_name, ""), .bytes = left_};
    if (entry.name.empty()) entry.name = ShortName(header);
    SYNCLINE_RETURN_IF_ERROR(Annotate(CheckEntry(entry.name, type, left_),
                                      absl::StrCat("archive ", path_)));
    if (type != kFolder) return entry;
  }
}

absl::StatusOr<std::string> TarReader::Read(size_t bytes_max) {
  const auto bytes = static_cast<size_t>(std::min<uint64_t>(left_, bytes_max));
  SYNCLINE_ASSIGN_OR_RETURN(std::string content, ReadBytes(bytes));
  left_ -= bytes;
  return content;
}

}  // namespace syncline

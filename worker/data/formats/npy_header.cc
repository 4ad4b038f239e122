#include "worker/data/formats/npy_header.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "worker/data/reading/text_input.h"

namespace syncline::worker {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr int64_t kTextMax = 1 << 16;

template <typename... Parts>
absl::Status Bad(const InputFile& file, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", parts...));
}

// The text after "'key':"; empty if there is none.
absl::string_view TextOf(absl::string_view header, absl::string_view key) {
  const size_t at = header.find(absl::StrCat("'", key, "':"));
  if (at == absl::string_view::npos) return "";
  return absl::StripLeadingAsciiWhitespace(header.substr(at + key.size() + 3));
}

// '<u2' and the like.
bool ParseElement(absl::string_view text, NpyHeader* header) {
  if (!absl::ConsumePrefix(&text, "'") || text.size() < 4 || text[3] != '\'') {
    return false;
  }
  const int width = text[2] - '0';
  header->width = width;
  if (text[0] != '<' && !(width == 1 && text[0] == '|')) return false;
  switch (text[1]) {
    case 'b':
      header->kind = NpyHeader::Kind::kBool;
      return width == 1;
    case 'u':
      return width == 1 || width == 2 || width == 4 || width == 8;
    case 'i':
      header->kind = NpyHeader::Kind::kSigned;
      return width == 1 || width == 2 || width == 4 || width == 8;
    case 'f':
      header->kind = NpyHeader::Kind::kFloat;
      return width == 4 || width == 8;
    default:
      return false;
  }
}

// The problem with a header's "descr" that is not read.
std::string ElementProblem(absl::string_view text) {
  constexpr absl::string_view kRead =
      "little-endian integers, float32, float64 or bool";
  absl::string_view kind =
      text.substr(0, std::min<size_t>(text.find_first_of(","), 8));
  absl::ConsumePrefix(&kind, "'");
  absl::ConsumeSuffix(&kind, "'");
  if (absl::StartsWith(text, "[")) {
    return absl::StrCat(
        "elements must be ", kRead,
        ", but each one has several fields; save these as arrays of their own");
  }
  std::string advice;
  if (absl::StartsWith(kind, ">")) {
    advice = ", which is big-endian; save x.astype(x.dtype.newbyteorder('<'))";
  } else if (absl::StartsWith(kind, "|O")) {
    advice = ", Python objects; save an array of numbers";
  } else if (absl::StartsWith(kind, "<U") || absl::StartsWith(kind, "|S")) {
    advice = ", text; save numbers";
  } else if (absl::StartsWith(kind, "<f")) {
    advice = "; save x.astype(numpy.float32)";
  }
  return absl::StrCat("elements must be ", kRead, ", but the header says ",
                      QuotedStart(kind), advice);
}

// "(60000, 28, 28)", "(5,)" or "()".
bool ParseShape(absl::string_view text, std::vector<int64_t>* shape) {
  const size_t end = text.find(')');
  if (!absl::ConsumePrefix(&text, "(") || end == absl::string_view::npos) {
    return false;
  }
  for (absl::string_view part :
       absl::StrSplit(text.substr(0, end - 1), ',', absl::SkipWhitespace())) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 0) return false;
    shape->push_back(size);
  }
  return true;
}

}  // namespace

absl::StatusOr<NpyHeader> ReadNpyHeader(InputFile* file) {
  char start[8];
  SYNCLINE_RETURN_IF_ERROR(ReadExactly(file, start, sizeof(start)));
  const int major = start[6];
  if (absl::StartsWith(absl::string_view(start, sizeof(start)), "PK")) {
    return Bad(*file, "a zip file, perhaps .npz; save each array as a .npy ",
               "file of its own, with numpy.save");
  }
  if (absl::string_view(start, kMagic.size()) != kMagic || major < 1 ||
      major > 3) {
    return Bad(*file, "not a .npy file of version 1 to 3: it starts otherwise");
  }
  unsigned char length[4] = {};
  const int length_bytes = major == 1 ? 2 : 4;
  SYNCLINE_RETURN_IF_ERROR(
      ReadExactly(file, reinterpret_cast<char*>(length), length_bytes));
  const int64_t bytes =
      length[0] | length[1] << 8 | length[2] << 16 | int64_t{length[3]} << 24;
  if (bytes > kTextMax) {
    return Bad(*file, "byte 8: a .npy header of ", bytes, " bytes");
  }
  NpyHeader header;
  const int64_t text_at = sizeof(start) + length_bytes;
  header.bytes = text_at + bytes;
  header.text.resize(bytes);
  SYNCLINE_RETURN_IF_ERROR(ReadExactly(file, header.text.data(), bytes));
  if (!ParseElement(TextOf(header.text, "descr"), &header)) {
    return Bad(*file, "byte ", text_at, ": ",
               ElementProblem(TextOf(header.text, "descr")));
  }
  if (!ParseShape(TextOf(header.text, "shape"), &header.shape)) {
    return Bad(*file, "byte ", text_at, ": no shape in the header ",
               QuotedStart(header.text));
  }
  if (header.shape.size() > 1 &&
      absl::StartsWith(TextOf(header.text, "fortran_order"), "True")) {
    return Bad(*file, "byte ", text_at,
               ": in Fortran's order; save numpy.ascontiguousarray(x) instead");
  }
  return header;
}

}  // namespace syncline::worker

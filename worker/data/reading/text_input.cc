#include "worker/data/reading/text_input.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"

namespace syncline::worker {
namespace {

constexpr size_t kBufferBytes = 256 << 10;
constexpr size_t kLineBytesMax = 64 << 20;

absl::Status NumberError(absl::string_view text, absl::string_view problem) {
  return absl::InvalidArgumentError(
      absl::StrCat(QuotedStart(text), " ", problem));
}

// The probable meaning of text that is no number; empty: nothing known.
absl::string_view Guess(absl::string_view text) {
  for (const absl::string_view missing :
       {"", "NA", "N/A", "NaN", "null", "None", "NULL", "?", "-", "."}) {
    if (text == missing) {
      return "; a missing value must be filled in, or its line left out";
    }
  }
  const bool has_comma = std::count(text.begin(), text.end(), ',') == 1;
  if (has_comma && text.find_first_not_of("+-0123456789,eE") == text.npos) {
    return "; decimals have a point, not a comma";
  }
  return "";
}

absl::Status NotANumber(absl::string_view text, absl::string_view problem) {
  return NumberError(
      text, absl::StrCat(problem, Guess(absl::StripAsciiWhitespace(text))));
}

// std::from_chars knows no plus; "+-1" stays an error.
absl::string_view WithoutBlanksAndPlus(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-')
    text.remove_prefix(1);
  return text;
}

}  // namespace

std::string QuotedStart(absl::string_view text) {
  constexpr size_t kShown = 40;
  return absl::StrCat(
      "\"", Utf8Text(absl::Utf8SafeCHexEscape(text.substr(0, kShown))),
      text.size() > kShown ? "..." : "", "\"");
}

absl::StatusOr<LineReader> LineReader::Open(const DataFile& file) {
  SYNCLINE_ASSIGN_OR_RETURN(auto opened, InputFile::Open(file));
  return LineReader(std::move(opened));
}

LineReader::LineReader(std::unique_ptr<InputFile> file)
    : file_(std::move(file)), buffer_(kBufferBytes, '\0') {}

std::string LineReader::Where() const {
  return absl::StrCat(path(), ":", line_number_);
}

absl::Status LineReader::Fill() {
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (end_ == buffer_.size()) {
    if (end_ >= kLineBytesMax) {
      ++line_number_;
      return absl::InvalidArgumentError(absl::StrCat(
          Where(), ": the line is longer than ", kLineBytesMax, " bytes"));
    }
    buffer_.resize(2 * end_);
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      const size_t got,
      file_->Read(buffer_.data() + end_, buffer_.size() - end_));
  end_ += got;
  at_end_ = got == 0;
  return absl::OkStatus();
}

absl::Status LineReader::CheckEncoding() const {
  const absl::string_view start(buffer_.data() + begin_, end_ - begin_);
  if (!absl::StartsWith(start, "\xff\xfe") &&
      !absl::StartsWith(start, "\xfe\xff")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path(), ": is in UTF-16; convert it to UTF-8, for example ",
                   "with iconv -f UTF-16 -t UTF-8"));
}

absl::StatusOr<bool> LineReader::Next(absl::string_view* line) {
  size_t searched = 0;  // of the unconsumed bytes; they have no \n
  const char* newline = nullptr;
  while (newline == nullptr && !at_end_) {
    newline = static_cast<const char*>(std::memchr(
        buffer_.data() + begin_ + searched, '\n', end_ - begin_ - searched));
    if (newline != nullptr) break;
    searched = end_ - begin_;
    SYNCLINE_RETURN_IF_ERROR(Fill());
  }
  if (newline == nullptr && begin_ == end_) return false;
  if (line_number_ == 0) SYNCLINE_RETURN_IF_ERROR(CheckEncoding());
  const size_t length =
      newline == nullptr ? end_ - begin_ : newline - &buffer_[begin_];
  *line = absl::string_view(buffer_.data() + begin_, length);
  begin_ += length + (newline != nullptr);
  ++line_number_;
  absl::ConsumeSuffix(line, "\r");
  if (line_number_ == 1) absl::ConsumePrefix(line, "\xef\xbb\xbf");
  return true;
}

absl::StatusOr<float> ParseNumber(absl::string_view text) {
  const absl::string_view digits = WithoutBlanksAndPlus(text);
  const char* const end = digits.data() + digits.size();
  float value = 0;
  auto parsed = std::from_chars(digits.data(), end, value);
  if (parsed.ec == std::errc::result_out_of_range) {
    // Too large, or so small that it is (nearly) zero; a double tells.
    double wide = 0;
    parsed = std::from_chars(digits.data(), end, wide);
    if (parsed.ec != std::errc() || std::fabs(wide) > 1) {
      return NumberError(text, "does not fit float32");
    }
    value = static_cast<float>(wide);
  }
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    return NotANumber(text, "is not a number");
  }
  if (std::isnan(value)) return NotANumber(text, "is not a finite number");
  if (std::isinf(value)) return NumberError(text, "is not a finite number");
  return value;
}

absl::StatusOr<int64_t> ParseInteger(absl::string_view text) {
  const absl::string_view digits = WithoutBlanksAndPlus(text);
  const char* const end = digits.data() + digits.size();
  int64_t value = 0;
  const auto parsed = std::from_chars(digits.data(), end, value);
  if (parsed.ec == std::errc::result_out_of_range) {
    return NumberError(text, "does not fit int64");
  }
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    return NotANumber(text, "is not an integer");
  }
  return value;
}

void LineOrigins::Add(const LineReader& reader) {
  const int64_t sample = samples_++;
  const int64_t line = reader.line_number();
  if (!runs_.empty() && paths_.back() == reader.path()) {
    const Run& run = runs_.back();
    if (line - run.first_line == sample - run.first_sample) return;
  } else {
    paths_.push_back(reader.path());
  }
  runs_.push_back(Run{sample, line, paths_.size() - 1});
}

std::string LineOrigins::Where(int64_t sample) const {
  const auto after = std::upper_bound(
      runs_.begin(), runs_.end(), sample,
      [](int64_t s, const Run& run) { return s < run.first_sample; });
  const Run& run = *std::prev(after);
  return absl::StrCat(paths_[run.path], ":",
                      run.first_line + (sample - run.first_sample));
}

}  // namespace syncline::worker

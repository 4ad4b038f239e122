#ifndef SYNCLINE_WORKER_DATA_READING_TEXT_INPUT_H_
#define SYNCLINE_WORKER_DATA_READING_TEXT_INPUT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/reading/input_file.h"

namespace syncline::worker {

// The first bytes of what a file says, for messages: in quotes, on one line,
// whatever bytes they are.
std::string QuotedStart(absl::string_view text);

// Lines of a text file, plain or gzip. Thread-compatible.
class LineReader {
 public:
  static absl::StatusOr<LineReader> Open(const DataFile& file);

  // Sets *line to the next line without its \n or \r\n; false at the end. A
  // last line need not end in \n; a byte order mark is skipped. Borrowed until
  // the next call. Errors: as InputFile::Read; InvalidArgument (a line of more
  // than 64 MiB, text in UTF-16).
  absl::StatusOr<bool> Next(absl::string_view* line);

  // Of the last line, from 1.
  int64_t line_number() const { return line_number_; }
  const std::string& path() const { return file_->path(); }
  std::string Where() const;  // "FILE:LINE"

 private:
  explicit LineReader(std::unique_ptr<InputFile> file);
  absl::Status Fill();  // reads on after what is not consumed yet
  // At the first line.
  absl::Status CheckEncoding() const;

  std::unique_ptr<InputFile> file_;
  std::string buffer_;
  size_t begin_ = 0;  // buffer_[begin_, end_) is not consumed
  size_t end_ = 0;
  bool at_end_ = false;
  int64_t line_number_ = 0;
};

// Reads a whole field as a finite float32, nearest to the decimal. A leading
// "+" and blanks around are allowed. Errors: InvalidArgument that quotes the
// start of the text, and says what it may be meant as: not a number, NaN,
// infinite, outside float32.
absl::StatusOr<float> ParseNumber(absl::string_view text);

// Reads a whole field as an int64, likewise. Errors: InvalidArgument that
// quotes the text: not an integer, outside int64.
absl::StatusOr<int64_t> ParseInteger(absl::string_view text);

// Which line each sample came from, in a few bytes per file where samples are
// on consecutive lines. Thread-compatible.
class LineOrigins {
 public:
  // For samples 0, 1, 2 ...
  void Add(const LineReader& reader);
  std::string Where(int64_t sample) const;  // "FILE:LINE"

 private:
  struct Run {  // samples from first_sample on are on lines from first_line on
    int64_t first_sample;
    int64_t first_line;
    size_t path;
  };
  std::vector<std::string> paths_;
  std::vector<Run> runs_;
  int64_t samples_ = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_READING_TEXT_INPUT_H_

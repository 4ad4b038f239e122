#ifndef SYNCLINE_SCHEDULER_CTL_TEXT_PRINTABLE_STREAM_H_
#define SYNCLINE_SCHEDULER_CTL_TEXT_PRINTABLE_STREAM_H_

#include <ostream>
#include <streambuf>
#include <string>

#include "absl/strings/string_view.h"

namespace syncline::ctl {

// A stream to another one through which no text can steer a terminal: what goes
// in comes out Printable (common/base/printable.h). Thread-compatible.
class PrintableStream : public std::ostream {
 public:
  // `to` outlives it.
  explicit PrintableStream(std::ostream* to);
  ~PrintableStream() override;

  // Past the filter, for the caller's own control sequences.
  void WriteRaw(absl::string_view text);

 private:
  class Buffer : public std::streambuf {
   public:
    explicit Buffer(std::ostream* to) : to_(to) {}
    void WriteRaw(absl::string_view text);
    // Also writes the bytes of a character that is not complete.
    void WriteAll();

   private:
    int_type overflow(int_type c) override;
    std::streamsize xsputn(const char* text, std::streamsize size) override;
    int sync() override;
    void Take(absl::string_view text);

    std::ostream* const to_;
    std::string open_;  // the first bytes of a character
  };

  Buffer buffer_;
};

// To a stream that may be a PrintableStream, past its filter.
void WriteRaw(absl::string_view text, std::ostream* out);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TEXT_PRINTABLE_STREAM_H_

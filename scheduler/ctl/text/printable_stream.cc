#include "scheduler/ctl/text/printable_stream.h"

#include "common/base/printable.h"

namespace syncline::ctl {

PrintableStream::PrintableStream(std::ostream* to)
    : std::ostream(nullptr), buffer_(to) {
  rdbuf(&buffer_);
}

PrintableStream::~PrintableStream() { buffer_.WriteAll(); }

void PrintableStream::WriteRaw(absl::string_view text) {
  buffer_.WriteRaw(text);
}

void PrintableStream::Buffer::WriteRaw(absl::string_view text) {
  WriteAll();
  to_->write(text.data(), static_cast<std::streamsize>(text.size()));
}

void PrintableStream::Buffer::WriteAll() {
  *to_ << Printable(open_);
  open_.clear();
}

void PrintableStream::Buffer::Take(absl::string_view text) {
  open_.append(text.data(), text.size());
  const size_t whole = open_.size() - OpenCharacterBytes(open_);
  *to_ << Printable(absl::string_view(open_).substr(0, whole));
  open_.erase(0, whole);
}

PrintableStream::Buffer::int_type PrintableStream::Buffer::overflow(
    int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return 0;
  const char byte = traits_type::to_char_type(c);
  Take(absl::string_view(&byte, 1));
  return to_->good() ? c : traits_type::eof();
}

std::streamsize PrintableStream::Buffer::xsputn(const char* text,
                                                std::streamsize size) {
  Take(absl::string_view(text, static_cast<size_t>(size)));
  return to_->good() ? size : 0;
}

int PrintableStream::Buffer::sync() {
  to_->flush();
  return to_->good() ? 0 : -1;
}

void WriteRaw(absl::string_view text, std::ostream* out) {
  if (auto* const printable = dynamic_cast<PrintableStream*>(out)) {
    printable->WriteRaw(text);
  } else {
    out->write(text.data(), static_cast<std::streamsize>(text.size()));
  }
}

}  // namespace syncline::ctl

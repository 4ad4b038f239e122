#ifndef SYNCLINE_SCHEDULER_CTL_TEXT_CONSOLE_H_
#define SYNCLINE_SCHEDULER_CTL_TEXT_CONSOLE_H_

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "google/protobuf/struct.pb.h"

namespace syncline::ctl {

// Where a command writes. For people: results and progress on `out`, problems
// on `err`. With `json`: everything, problems too, is one JSON object per line
// on `out`. Thread-compatible.
//
// For people `out` and `err` are PrintableStreams: text that comes from the
// scheduler, from other members or out of files cannot steer the terminal. JSON
// escapes what it must by itself.
struct Console {
  std::ostream& out;
  std::ostream& err;
  bool json = false;
  // `out` is a terminal of `width` columns: progress may overwrite its line.
  bool live = false;
  int width = 80;

  // Writes to `out` and `err`, which are the standard streams.
  static Console Standard(bool json, std::ostream* out, std::ostream* err);

  // Writes a text as it is, with the control sequences in it; what is foreign
  // in it must be Printable already.
  void PrintLive(absl::string_view text) const;
  void PrintJson(const google::protobuf::Message& message) const;
  // "synctl: " and the message, indented where it has several lines; or
  // {"error": {"code": ..., "message": ...}}. Returns the exit code.
  int PrintError(const absl::Status& status) const;
};

// One line of JSON with the field names of the .proto files. Fields that are
// not set have their zero, but for those of a job's spec, which are left out.
std::string ToJson(const google::protobuf::Message& message);

// Sets fields of a JSON object that no message describes.
void SetField(google::protobuf::Struct* object, const std::string& key,
              absl::string_view value);
void SetFlag(google::protobuf::Struct* object, const std::string& key,
             bool value);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TEXT_CONSOLE_H_

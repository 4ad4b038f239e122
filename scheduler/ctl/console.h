#ifndef SYNCLINE_SCHEDULER_CTL_CONSOLE_H_
#define SYNCLINE_SCHEDULER_CTL_CONSOLE_H_

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "google/protobuf/struct.pb.h"

namespace syncline {

// Where a command writes. For people: results and progress on `out`, problems
// on `err`. With `json`: everything, problems too, is one JSON object per line
// on `out`. Thread-compatible.
struct Console {
  std::ostream& out;
  std::ostream& err;
  bool json = false;
  // `out` is a terminal of `width` columns: progress may overwrite its line.
  bool live = false;
  int width = 80;

  // The standard streams.
  static Console Standard(bool json);

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

}  // namespace syncline

#endif  // SYNCLINE_SCHEDULER_CTL_CONSOLE_H_

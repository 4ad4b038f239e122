#include "scheduler/ctl/text/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_replace.h"
#include "google/protobuf/util/json_util.h"
#include "proto/job.pb.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "scheduler/ctl/text/printable_stream.h"

namespace syncline::ctl {

namespace {

// `json` is that of a job's status. It shows every field of the spec that was
// not set as 0, as if the user had asked for 0. Those fields are left out.
std::string WithSpecAsKept(std::string json, const JobSpec& spec) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string spec_json;
  google::protobuf::Struct status;
  google::protobuf::Struct kept;
  using google::protobuf::util::JsonStringToMessage;
  using google::protobuf::util::MessageToJsonString;
  if (!MessageToJsonString(spec, &spec_json, options).ok() ||
      !JsonStringToMessage(spec_json, &kept).ok() ||
      !JsonStringToMessage(json, &status).ok()) {
    return json;
  }
  *(*status.mutable_fields())["spec"].mutable_struct_value() = std::move(kept);
  std::string text;
  return MessageToJsonString(status, &text).ok() ? text : json;
}

}  // namespace

Console Console::Standard(bool json, std::ostream* out, std::ostream* err) {
  Console console{.out = *out, .err = *err, .json = json};
  console.live = !json && isatty(STDOUT_FILENO);
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    console.width = size.ws_col;
  }
  return console;
}

void Console::PrintLive(absl::string_view text) const {
  WriteRaw(text, &out);
  out << std::flush;
}

void Console::PrintJson(const google::protobuf::Message& message) const {
  out << ToJson(message) << std::endl;
}

int Console::PrintError(const absl::Status& status) const {
  if (json) {
    google::protobuf::Struct error;
    SetField(&error, "code", absl::StatusCodeToString(status.code()));
    SetField(&error, "message", status.message());
    google::protobuf::Struct object;
    *(*object.mutable_fields())["error"].mutable_struct_value() = error;
    PrintJson(object);
  } else {
    err << "synctl: " << absl::StrReplaceAll(status.message(), {{"\n", "\n  "}})
        << std::endl;
  }
  return ExitCodeOf(status);
}

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) return "{}";
  const auto* const job = dynamic_cast<const JobStatus*>(&message);
  return job == nullptr ? json : WithSpecAsKept(std::move(json), job->spec());
}

void SetField(google::protobuf::Struct* object, const std::string& key,
              absl::string_view value) {
  (*object->mutable_fields())[key].set_string_value(value.data(), value.size());
}

void SetFlag(google::protobuf::Struct* object, const std::string& key,
             bool value) {
  (*object->mutable_fields())[key].set_bool_value(value);
}

}  // namespace syncline::ctl

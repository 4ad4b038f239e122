#include "common/job/job_spec_override.h"

#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/job/problem_deduplicator.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"

namespace syncline {
namespace {

namespace pb = google::protobuf;

// The first complaint of the text parser.
class FirstError : public pb::io::ErrorCollector {
 public:
  void AddError(int, pb::io::ColumnNumber,
                const std::string& message) override {
    if (message_.empty()) message_ = message;
  }
  void AddWarning(int, pb::io::ColumnNumber, const std::string&) override {}
  const std::string& message() const { return message_; }

 private:
  std::string message_;
};

// "initialize[0]": a field and, of a list, an entry.
struct Step {
  const pb::FieldDescriptor* field = nullptr;
  std::optional<int> index;
};

absl::StatusOr<Step> ReadStep(const pb::Descriptor& message,
                              absl::string_view text) {
  Step step;
  absl::string_view name = text;
  if (absl::EndsWith(text, "]")) {
    const size_t bracket = text.find('[');
    int index = -1;
    if (bracket == absl::string_view::npos ||
        !absl::SimpleAtoi(text.substr(bracket + 1, text.size() - bracket - 2),
                          &index) ||
        index < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", text, "' is not a field with an index, as in ", "feeds[0]"));
    }
    step.index = index;
    name = text.substr(0, bracket);
  }
  step.field = message.FindFieldByName(std::string(name));
  if (step.field == nullptr) {
    const auto* meant = FindResembling(message, name);
    return absl::InvalidArgumentError(absl::StrCat(
        message.name(), " has no field '", name, "'",
        meant == nullptr
            ? ""
            : absl::StrCat("; did you mean '", meant->name(), "'?")));
  }
  if (step.index.has_value() && !step.field->is_repeated()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", name, "' is no list, so it has no entries"));
  }
  return step;
}

// Of a list that has `size` entries.
absl::Status CheckIndex(const Step& step, int size) {
  if (*step.index <= size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", step.field->name(),
                                                 "' has ", size, " entries; [",
                                                 size, "] would be the next"));
}

// The message that `step` leads to.
absl::StatusOr<pb::Message*> Enter(pb::Message* message, const Step& step) {
  if (step.field->cpp_type() != pb::FieldDescriptor::CPPTYPE_MESSAGE) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", step.field->name(), "' has no fields"));
  }
  const pb::Reflection& reflection = *message->GetReflection();
  if (!step.field->is_repeated()) {
    return reflection.MutableMessage(message, step.field);
  }
  const int size = reflection.FieldSize(*message, step.field);
  if (!step.index.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", step.field->name(), "' is a list of ", size,
                     "; say which entry, as in ", step.field->name(), "[0]"));
  }
  SYNCLINE_RETURN_IF_ERROR(CheckIndex(step, size));
  return *step.index == size ? reflection.AddMessage(message, step.field)
                             : reflection.MutableRepeatedMessage(
                                   message, step.field, *step.index);
}

// A message like `message` with nothing but the field, as `value` says.
absl::StatusOr<std::unique_ptr<pb::Message>> ParseValue(
    const pb::Message& message, const pb::FieldDescriptor* field,
    absl::string_view value) {
  const bool is_text =
      field->cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING &&
      !absl::StartsWith(value, "\"") && !absl::StartsWith(value, "'") &&
      !absl::StartsWith(value, "[");
  const std::string text = absl::StrCat(
      field->name(), ": ",
      is_text ? absl::StrCat("\"", absl::Utf8SafeCEscape(value), "\"")
              : std::string(value));
  std::unique_ptr<pb::Message> parsed(message.New());
  FirstError error;
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(text, parsed.get())) {
    return absl::InvalidArgumentError(
        WithAcceptedValues(error.message(), field));
  }
  std::vector<const pb::FieldDescriptor*> set;
  parsed->GetReflection()->ListFields(*parsed, &set);
  for (const pb::FieldDescriptor* other : set) {
    if (other == field) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the value sets '", other->name(), "', too"));
  }
  return parsed;
}

absl::Status SetField(pb::Message* message, const Step& step,
                      absl::string_view value) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto parsed,
                            ParseValue(*message, step.field, value));
  const pb::Reflection& reflection = *message->GetReflection();
  if (!step.index.has_value()) {
    reflection.ClearField(message, step.field);
    message->MergeFrom(*parsed);
    return absl::OkStatus();
  }
  const int size = reflection.FieldSize(*message, step.field);
  SYNCLINE_RETURN_IF_ERROR(CheckIndex(step, size));
  if (reflection.FieldSize(*parsed, step.field) != 1) {
    return absl::InvalidArgumentError("an entry of a list is one value");
  }
  message->MergeFrom(*parsed);
  if (*step.index < size) {
    reflection.SwapElements(message, step.field, *step.index, size);
    reflection.RemoveLast(message, step.field);
  }
  return absl::OkStatus();
}

absl::Status Apply(absl::string_view path, absl::string_view value,
                   JobSpec* spec) {
  pb::Message* message = spec;
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '.');
  for (size_t i = 0; i < parts.size(); ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(const Step step,
                              ReadStep(*message->GetDescriptor(), parts[i]));
    if (i + 1 == parts.size()) return SetField(message, step, value);
    SYNCLINE_ASSIGN_OR_RETURN(message, Enter(message, step));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> OverrideField(absl::string_view setting,
                                          JobSpec* spec) {
  if (!IsUtf8(setting)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--set ", absl::CEscape(setting), ": is not UTF-8"));
  }
  const size_t equals = setting.find('=');
  absl::Status status = absl::InvalidArgumentError(
      "must be path=value, as in learning_rate.base=0.1");
  if (equals != absl::string_view::npos) {
    status =
        Apply(absl::StripAsciiWhitespace(setting.substr(0, equals)),
              absl::StripAsciiWhitespace(setting.substr(equals + 1)), spec);
  }
  SYNCLINE_RETURN_IF_ERROR(
      Annotate(status, absl::StrCat("--set ", absl::Utf8SafeCEscape(setting))));
  return std::string(absl::StripAsciiWhitespace(setting.substr(0, equals)));
}

}  // namespace syncline

// Text format goes through protobuf's tokenizer, which knows lines and columns;
// JSON through the strict reader for its form and then protobuf's for its
// meaning, which knows no places: the source_map does.

#include "common/job/job_spec_parser.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/job/job_spec_validator.h"
#include "common/job/problem_deduplicator.h"
#include "common/job/strict_json.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"

namespace syncline {
namespace {

namespace pb = google::protobuf;

constexpr size_t kTextBytesMax = 1 << 20;
// A job file is four levels deep; the limit keeps hostile ones off the stack.
constexpr int kNestingMax = 32;
// Each is looked for in the text, and most mean to parse it again.
constexpr size_t kProblemsMax = 100;

// Messages of the tokenizer quote the file, which may hold anything.
std::string Printable(absl::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return out;
}

std::string AtOffset(absl::string_view label, absl::string_view text,
                     size_t offset, absl::string_view message) {
  const absl::string_view before = text.substr(0, offset);
  const int line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return absl::StrCat(label, ":", line, ":", offset - line_start + 1, ": ",
                      Printable(message));
}

// The tokenizer counts lines and columns from 0, and a tab as a step to the
// next multiple of 8.
size_t ToOffset(absl::string_view text, int line, int column) {
  size_t offset = 0;
  for (; line > 0; --line) offset = text.find('\n', offset) + 1;
  for (int at = 0; at < column && offset < text.size(); ++offset) {
    at += text[offset] == '\t' ? 8 - at % 8 : 1;
  }
  return offset;
}

struct Problem {
  size_t offset = 0;
  std::string message;
};

// Collects the messages of protobuf's parser about a text: at most one error,
// where the parser stops, and unknown fields, which it passes over and warns
// of.
class Complaints : public pb::io::ErrorCollector {
 public:
  explicit Complaints(absl::string_view text) : text_(text) {}

  void AddError(int line, pb::io::ColumnNumber column,
                const std::string& message) override {
    if (!error_) error_ = Problem{ToOffset(text_, line, column), message};
  }
  void AddWarning(int line, pb::io::ColumnNumber column,
                  const std::string& message) override {
    if (warnings_.size() == kProblemsMax) return;
    warnings_.push_back({ToOffset(text_, line, column), message});
  }

  const std::optional<Problem>& error() const { return error_; }
  const std::vector<Problem>& warnings() const { return warnings_; }

 private:
  const absl::string_view text_;
  std::optional<Problem> error_;
  std::vector<Problem> warnings_;
};

// Reads a text by leaving out what cannot be read: each field that a parser
// stops at is reported and blanked, until the parser reaches the end.
class Reader {
 public:
  Reader(absl::string_view text, absl::string_view label)
      : label_(label), original_(text), text_(text) {}

  JobReading ReadTextFormat() {
    while (!ParseTextFormat() && BlankedOne()) {
    }
    return Finish();
  }

  JobReading ReadJson() {
    // First as plain JSON: finds what is wrong with its form, repeated keys
    // too. Protobuf takes more, so the rest may still be understood.
    if (const auto object = ParseStrictJson(text_); !object.ok()) {
      form_problem_ =
          absl::StrCat(label_, ":", Printable(object.status().message()));
    }
    BlankUnknownKeys();
    while (!ParseJson() && BlankedOne()) {
    }
    return Finish();
  }

 private:
  bool ParseTextFormat() {
    Complaints complaints(text_);
    pb::TextFormat::Parser parser;
    parser.RecordErrorsTo(&complaints);
    parser.AllowUnknownField(true);
    parser.SetRecursionLimit(kNestingMax);
    const bool parsed = parser.ParseFromString(text_, &reading_.spec);
    reading_.source_map = JobFileSourceMap(text_);
    blanked_ = false;
    if (parsed) {
      for (const auto& warning : complaints.warnings()) ReportUnknown(warning);
    } else if (complaints.error()) {
      const auto& [offset, message] = *complaints.error();
      BlankAt(FindCulprit(offset, message), offset, message);
    } else {
      BlankAt(nullptr, 0, "not a job specification");
    }
    return parsed;
  }

  bool ParseJson() {
    const auto status =
        pb::util::JsonStringToMessage(text_, &reading_.spec, {});
    reading_.source_map = JobFileSourceMap(text_);
    blanked_ = false;
    if (status.ok()) return true;
    // A value that does not fit is reported as "(path): message", with lines of
    // context for some.
    absl::string_view message(status.message().data(), status.message().size());
    message = message.substr(0, message.find('\n'));
    const JobFileSourceMap::Field* culprit = nullptr;
    if (absl::StartsWith(message, "(")) {
      culprit = reading_.source_map.FindNearest(
          message.substr(1, message.find(')') - 1));
    }
    if (culprit == nullptr && !form_problem_.empty()) {
      reading_.complete = false;  // the form's problem again
    } else {
      BlankAt(culprit, culprit == nullptr ? kNowhere : culprit->begin, message);
    }
    return false;
  }

  // The field that made the parser stop at `offset`.
  const JobFileSourceMap::Field* FindCulprit(size_t offset,
                                             absl::string_view message) const {
    const JobFileSourceMap::Field* before = reading_.source_map.Before(offset);
    // Of some values it complains after it has passed them.
    if (absl::StartsWith(message, "Unknown enumeration value") ||
        absl::StartsWith(message, "Invalid value for boolean")) {
      return before;
    }
    // A value that is missing is missed where something else stands.
    if (before != nullptr && !before->has_value) return before;
    return reading_.source_map.At(offset);
  }

  // Without a culprit nothing after `offset` is read.
  void BlankAt(const JobFileSourceMap::Field* culprit, size_t offset,
               absl::string_view message) {
    if (culprit == nullptr || problems_.size() == kProblemsMax) {
      problems_.push_back({offset, std::string(message)});
      reading_.complete = false;
      return;
    }
    // JSON's messages name the field already.
    const std::string named =
        culprit->descriptor == nullptr || absl::StartsWith(message, "(")
            ? std::string(message)
            : absl::StrCat("(", culprit->path, "): ", message);
    const bool passed = culprit->end <= offset && culprit->has_value;
    problems_.push_back({passed ? culprit->begin : offset,
                         WithAcceptedValues(named, culprit->descriptor)});
    MarkUnread(*culprit);
    BlankField(*culprit, &text_);
    blanked_ = true;
  }
  bool BlankedOne() const { return blanked_; }

  void BlankUnknownKeys() {
    const JobFileSourceMap source_map(text_);
    for (const JobFileSourceMap::Field& field : source_map.fields()) {
      if (field.descriptor != nullptr) continue;
      if (problems_.size() == kProblemsMax) return;
      ReportUnknownField(field);
      BlankField(field, &text_);
    }
  }

  void ReportUnknown(const Problem& warning) {
    const JobFileSourceMap::Field* field =
        reading_.source_map.At(warning.offset);
    if (field == nullptr || field->descriptor != nullptr) {
      field = reading_.source_map.Before(warning.offset);
    }
    if (field != nullptr && field->descriptor == nullptr) {
      ReportUnknownField(*field);
    } else {
      problems_.push_back({warning.offset, warning.message});
    }
  }

  void ReportUnknownField(const JobFileSourceMap::Field& field) {
    const absl::string_view name =
        absl::string_view(field.path).substr(ParentPath(field.path).size());
    const std::string plain(absl::StripPrefix(name, "."));
    std::string message =
        absl::StrCat("Message type \"", field.container->full_name(),
                     "\" has no field named \"", plain, "\".");
    if (const auto* meant = FindResembling(*field.container, plain)) {
      absl::StrAppend(&message, " Did you mean \"", meant->name(), "\"?");
    }
    problems_.push_back({field.begin, std::move(message)});
    MarkUnread(field);
  }

  void MarkUnread(const JobFileSourceMap::Field& field) {
    reading_.unread_paths.push_back(field.path);
    if (field.descriptor != nullptr &&
        field.descriptor->enum_type() != nullptr) {
      unread_enums_.push_back(field.path);
    }
  }

  JobReading Finish() {
    for (const std::string& path : unread_enums_) SetUnread(path);
    std::stable_sort(
        problems_.begin(), problems_.end(),
        [](const Problem& a, const Problem& b) { return a.offset < b.offset; });
    if (!form_problem_.empty()) reading_.problems.push_back(form_problem_);
    for (const Problem& problem : problems_) {
      if (reading_.problems.size() == kProblemsMax) break;
      reading_.problems.push_back(
          problem.offset == kNowhere
              ? absl::StrCat(label_, ": ", Printable(problem.message))
              : AtOffset(label_, original_, problem.offset, problem.message));
    }
    return std::move(reading_);
  }

  void SetUnread(const std::string& path);

  static constexpr size_t kNowhere = absl::string_view::npos;

  const absl::string_view label_;
  const absl::string_view original_;
  std::string text_;  // original_ with fields blanked
  JobReading reading_;
  std::string form_problem_;  // of JSON
  std::vector<Problem> problems_;
  std::vector<std::string> unread_enums_;
  bool blanked_ = false;
};

// One in a list stays left out.
void Reader::SetUnread(const std::string& path) {
  pb::Message* message = &reading_.spec;
  for (const absl::string_view part : absl::StrSplit(path, '.')) {
    const std::string name(part.substr(0, part.find('[')));
    const pb::Reflection& get = *message->GetReflection();
    const auto* field = message->GetDescriptor()->FindFieldByName(name);
    if (!field->is_repeated() && field->enum_type() != nullptr) {
      get.SetEnumValue(message, field, kUnreadEnum);
      return;
    }
    if (field->message_type() == nullptr) return;
    if (!field->is_repeated()) {
      message = get.MutableMessage(message, field);
      continue;
    }
    int index = 0;
    if (!absl::SimpleAtoi(
            part.substr(name.size() + 1, part.size() - 2 - name.size()),
            &index) ||
        index >= get.FieldSize(*message, field)) {
      return;
    }
    message = get.MutableRepeatedMessage(message, field, index);
  }
}

}  // namespace

JobReading ReadJobSpec(absl::string_view text, absl::string_view label) {
  if (text.size() > kTextBytesMax) {
    JobReading reading;
    reading.problems.push_back(
        absl::StrCat(label, ":1:1: ", text.size(),
                     " bytes is too large for a job specification, at most ",
                     kTextBytesMax));
    reading.complete = false;
    return reading;
  }
  Reader reader(text, label);
  const bool is_json =
      absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{");
  return is_json ? reader.ReadJson() : reader.ReadTextFormat();
}

absl::StatusOr<JobSpec> ParseJobSpec(absl::string_view text,
                                     absl::string_view label) {
  JobReading reading = ReadJobSpec(text, label);
  if (absl::Status status = ProblemsToStatus(reading.problems); !status.ok()) {
    return status;
  }
  return std::move(reading.spec);
}

}  // namespace syncline

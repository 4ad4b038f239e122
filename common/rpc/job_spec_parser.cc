// ParseJobSpec: text format through protobuf's tokenizer, which knows lines and
// columns; JSON through the strict reader for its form and then protobuf's for
// its meaning. The latter knows no places, so they are found again in the text.

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/rpc/job_spec_validator.h"
#include "common/rpc/strict_json.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"

namespace syncline {
namespace {

namespace pb = google::protobuf;

constexpr size_t kTextBytesMax = 1 << 20;
// A job file is four levels deep; the limit keeps hostile ones off the stack.
constexpr int kNestingMax = 32;
// Each is looked for in the text again.
constexpr size_t kUnknownKeysMax = 100;

// Messages of the tokenizer quote the file, which may hold anything.
std::string Printable(absl::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return out;
}

std::string AtPlace(absl::string_view label, int line, int column,
                    absl::string_view message) {
  return absl::StrCat(label, ":", line, ":", column, ": ", Printable(message));
}

std::string AtOffset(absl::string_view label, absl::string_view text,
                     size_t offset, absl::string_view message) {
  const absl::string_view before = text.substr(0, offset);
  const int line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return AtPlace(label, line, static_cast<int>(offset - line_start) + 1,
                 message);
}

// Unknown fields reach it as warnings: that way the parser goes on and finds
// all of them, not only the first.
class Collector : public pb::io::ErrorCollector {
 public:
  Collector(absl::string_view label, std::vector<std::string>* problems)
      : label_(label), problems_(problems) {}

  void AddError(int line, pb::io::ColumnNumber column,
                const std::string& message) override {
    problems_->push_back(AtPlace(label_, line + 1, column + 1, message));
  }
  void AddWarning(int line, pb::io::ColumnNumber column,
                  const std::string& message) override {
    AddError(line, column, message);
  }

 private:
  const absl::string_view label_;
  std::vector<std::string>* const problems_;
};

void ParseTextFormat(absl::string_view text, absl::string_view label,
                     JobSpec* spec, std::vector<std::string>* problems) {
  Collector collector(label, problems);
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&collector);
  parser.AllowUnknownField(true);
  parser.SetRecursionLimit(kNestingMax);
  if (!parser.ParseFromString(std::string(text), spec) && problems->empty()) {
    problems->push_back(absl::StrCat(label, ":1:1: not a job specification"));
  }
}

// "batch_size" in its other spelling, "batchSize".
std::string JsonName(absl::string_view name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool joint = name[i] == '_' && i + 1 < name.size();
    out += joint ? absl::ascii_toupper(name[++i]) : name[i];
  }
  return out;
}

// Offset of the last key of `path` ("model.initialize[1].scheme"), found by
// looking for its keys one after the other; npos if that fails.
size_t FindPath(absl::string_view text, absl::string_view path) {
  size_t offset = 0;
  for (absl::string_view part : absl::StrSplit(path, '.')) {
    const absl::string_view key = part.substr(0, part.find('['));
    const size_t from = offset;
    offset = text.find(absl::StrCat("\"", key, "\""), from);
    if (offset == absl::string_view::npos) {
      offset = text.find(absl::StrCat("\"", JsonName(key), "\""), from);
    }
    if (offset == absl::string_view::npos) break;
  }
  return offset;
}

// Protobuf reports a value that does not fit as "(path): message", with lines
// of context for some.
std::string LocateJsonError(absl::string_view label, absl::string_view text,
                            absl::string_view error) {
  error = error.substr(0, error.find('\n'));
  if (absl::StartsWith(error, "(")) {
    const absl::string_view path = error.substr(1, error.find(')') - 1);
    const size_t offset = FindPath(text, path);
    if (offset != absl::string_view::npos) {
      return AtOffset(label, text, offset, error);
    }
  }
  return absl::StrCat(label, ": ", Printable(error));
}

const pb::FieldDescriptor* FindField(const pb::Descriptor& type,
                                     const std::string& key) {
  if (const auto* field = type.FindFieldByName(key)) return field;
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->json_name() == key) return type.field(i);
  }
  return nullptr;
}

struct UnknownKey {
  size_t offset = 0;  // npos if it was not found again
  std::string message;
};

// Appends the keys of `object`, and of what is in it, that `type` does not
// have, up to kUnknownKeysMax.
void FindUnknownKeys(const pb::Struct& object, const pb::Descriptor& type,
                     absl::string_view path, absl::string_view text,
                     std::vector<UnknownKey>* unknown) {
  for (const auto& [key, value] : object.fields()) {
    if (unknown->size() == kUnknownKeysMax) return;
    const std::string key_path =
        path.empty() ? key : absl::StrCat(path, ".", key);
    const pb::FieldDescriptor* field = FindField(type, key);
    if (field == nullptr) {
      unknown->push_back(
          {FindPath(text, key_path),
           absl::StrCat("Message type \"", type.full_name(),
                        "\" has no field named \"", key, "\".")});
      continue;
    }
    if (field->message_type() == nullptr) continue;
    if (value.has_struct_value()) {
      FindUnknownKeys(value.struct_value(), *field->message_type(), key_path,
                      text, unknown);
    }
    for (const pb::Value& element : value.list_value().values()) {
      if (!element.has_struct_value()) continue;
      FindUnknownKeys(element.struct_value(), *field->message_type(), key_path,
                      text, unknown);
    }
  }
}

// One problem per unknown key, in the order of the text.
void CheckKeys(const pb::Struct& object, absl::string_view label,
               absl::string_view text, std::vector<std::string>* problems) {
  std::vector<UnknownKey> unknown;
  FindUnknownKeys(object, *JobSpec::descriptor(), "", text, &unknown);
  std::sort(unknown.begin(), unknown.end(),
            [](const UnknownKey& a, const UnknownKey& b) {
              return std::tie(a.offset, a.message) <
                     std::tie(b.offset, b.message);
            });
  for (const UnknownKey& key : unknown) {
    problems->push_back(key.offset == absl::string_view::npos
                            ? absl::StrCat(label, ": ", Printable(key.message))
                            : AtOffset(label, text, key.offset, key.message));
  }
}

void ParseJson(absl::string_view text, absl::string_view label, JobSpec* spec,
               std::vector<std::string>* problems) {
  // First as a plain object: finds syntax errors, repeated keys and, unlike the
  // typed reading below, every unknown field.
  const auto object = ParseStrictJson(text);
  if (!object.ok()) {
    problems->push_back(
        absl::StrCat(label, ":", Printable(object.status().message())));
    return;
  }
  CheckKeys(object->struct_value(), label, text, problems);
  pb::util::JsonParseOptions options;
  // Unknown fields are on the list already. Not set otherwise, because it lets
  // unknown enum values pass too.
  options.ignore_unknown_fields = !problems->empty();
  const auto status = pb::util::JsonStringToMessage(
      pb::StringPiece(text.data(), text.size()), spec, options);
  if (!status.ok()) {
    const pb::StringPiece message = status.message();
    problems->push_back(
        LocateJsonError(label, text, {message.data(), message.size()}));
  }
}

}  // namespace

absl::StatusOr<JobSpec> ParseJobSpec(absl::string_view text,
                                     absl::string_view label) {
  if (text.size() > kTextBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(label, ":1:1: ", text.size(),
                     " bytes is too large for a job specification, at most ",
                     kTextBytesMax));
  }
  JobSpec spec;
  std::vector<std::string> problems;
  if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{")) {
    ParseJson(text, label, &spec, &problems);
  } else {
    ParseTextFormat(text, label, &spec, &problems);
  }
  if (absl::Status status = ProblemsToStatus(problems); !status.ok()) {
    return status;
  }
  return spec;
}

}  // namespace syncline

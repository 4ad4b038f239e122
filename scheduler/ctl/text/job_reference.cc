#include "scheduler/ctl/text/job_reference.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"

namespace syncline::ctl {

// proto/job_spec.proto with its comments, a FileDescriptorSet; generated.
extern const char kJobSpecDescriptors[];
extern const unsigned long kJobSpecDescriptorsSize;

namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;
using google::protobuf::SourceLocation;

constexpr size_t kWidth = 80;
constexpr char kRoot[] = "JobSpec";

std::unique_ptr<DescriptorPool> LoadPool() {
  FileDescriptorSet set;
  const bool parsed = set.ParseFromArray(
      kJobSpecDescriptors, static_cast<int>(kJobSpecDescriptorsSize));
  SYNCLINE_CHECK(parsed);
  auto pool = std::make_unique<DescriptorPool>();
  for (const FileDescriptorProto& file : set.file()) {
    SYNCLINE_CHECK(pool->BuildFile(file) != nullptr);
  }
  return pool;
}

// Before it, or behind it on its line; one space between words, "\n" between
// paragraphs.
template <typename T>
std::string CommentOf(const T& descriptor) {
  SourceLocation location;
  if (!descriptor.GetSourceLocation(&location)) return "";
  const std::string& comment = location.leading_comments.empty()
                                   ? location.trailing_comments
                                   : location.leading_comments;
  std::string text;
  bool is_new = true;
  for (absl::string_view line : absl::StrSplit(comment, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) {
      if (!text.empty() && !is_new) text.push_back('\n');
      is_new = true;
      continue;
    }
    absl::StrAppend(&text, is_new ? "" : " ", line);
    is_new = false;
  }
  return std::string(absl::StripTrailingAsciiWhitespace(text));
}

void AppendWrapped(absl::string_view text, size_t indent, std::string* out) {
  if (text.empty()) return;
  for (absl::string_view paragraph : absl::StrSplit(text, '\n')) {
    std::string line(indent, ' ');
    for (absl::string_view word :
         absl::StrSplit(paragraph, ' ', absl::SkipEmpty())) {
      if (line.size() > indent && line.size() + 1 + word.size() > kWidth) {
        absl::StrAppend(out, line, "\n");
        line.assign(indent, ' ');
      }
      absl::StrAppend(&line, line.size() > indent ? " " : "", word);
    }
    absl::StrAppend(out, line, "\n");
  }
}

std::string TypeText(const FieldDescriptor& field) {
  const std::string type =
      field.message_type() != nullptr ? field.message_type()->name()
      : field.enum_type() != nullptr  ? field.enum_type()->name()
                                      : std::string(field.type_name());
  return absl::StrCat(field.is_repeated() ? "repeated " : "", type);
}

// "only one of csv, idx" for a field of a oneof.
std::string ChoiceText(const FieldDescriptor& field) {
  const auto* const choice = field.real_containing_oneof();
  if (choice == nullptr) return "";
  std::vector<std::string> names;
  for (int i = 0; i < choice->field_count(); ++i) {
    names.push_back(choice->field(i)->name());
  }
  return absl::StrCat("Only one of ", absl::StrJoin(names, ", "), ".");
}

void AppendEnum(const EnumDescriptor& type, std::string* out) {
  for (int i = 0; i < type.value_count(); ++i) {
    const EnumValueDescriptor& value = *type.value(i);
    // "Unspecified" is what a field has that is not written.
    if (value.number() == 0) continue;
    absl::StrAppend(out, "      ", value.name(), "\n");
    AppendWrapped(CommentOf(value), 10, out);
  }
}

void AppendField(const FieldDescriptor& field, std::string* out) {
  absl::StrAppendFormat(out, "  %-24s %s\n", field.name(), TypeText(field));
  AppendWrapped(CommentOf(field), 6, out);
  AppendWrapped(ChoiceText(field), 6, out);
  if (field.enum_type() != nullptr) AppendEnum(*field.enum_type(), out);
}

void AppendMessage(const Descriptor& type, absl::string_view path,
                   std::string* out) {
  absl::StrAppend(out, out->empty() ? "" : "\n", type.name());
  if (!path.empty()) absl::StrAppend(out, " (", path, ")");
  absl::StrAppend(out, "\n");
  AppendWrapped(CommentOf(type), 2, out);
  for (int i = 0; i < type.field_count(); ++i) {
    AppendField(*type.field(i), out);
  }
}

// A message and where a job has it first.
struct Place {
  const Descriptor* type = nullptr;
  std::string path;
};

// All messages that a job file may have, in the order of its fields.
std::vector<Place> PlacesOf(const Descriptor& root) {
  std::vector<Place> places = {{&root, ""}};
  for (size_t next = 0; next < places.size(); ++next) {
    const Place place = places[next];
    size_t behind = next + 1;
    for (int i = 0; i < place.type->field_count(); ++i) {
      const FieldDescriptor& field = *place.type->field(i);
      const Descriptor* const type = field.message_type();
      if (type == nullptr || absl::c_any_of(places, [&](const Place& p) {
            return p.type == type;
          })) {
        continue;
      }
      const std::string path =
          absl::StrCat(place.path, place.path.empty() ? "" : ".", field.name());
      places.insert(places.begin() + behind++, {type, path});
    }
  }
  return places;
}

std::string FieldNames(const Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) {
    names.push_back(type.field(i)->name());
  }
  return absl::StrJoin(names, ", ");
}

// The field that `path` leads to; it is not empty.
absl::StatusOr<const FieldDescriptor*> FindField(const Descriptor& root,
                                                 absl::string_view path) {
  const Descriptor* type = &root;
  const FieldDescriptor* field = nullptr;
  for (absl::string_view name : absl::StrSplit(path, '.')) {
    if (type == nullptr) {
      return absl::NotFoundError(absl::StrCat("\"", path, "\": ", field->name(),
                                              " is ", TypeText(*field),
                                              ", which has no fields"));
    }
    field = type->FindFieldByName(std::string(name));
    if (field == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("\"", path, "\": ", type->name(), " has no field \"",
                       name, "\"; it has ", FieldNames(*type)));
    }
    type = field->message_type();
  }
  return field;
}

}  // namespace

absl::StatusOr<std::string> JobReference(absl::string_view what) {
  const std::unique_ptr<DescriptorPool> pool = LoadPool();
  const Descriptor* const root =
      pool->FindMessageTypeByName(absl::StrCat("syncline.", kRoot));
  SYNCLINE_CHECK(root != nullptr);
  const std::vector<Place> places = PlacesOf(*root);
  std::string text;
  for (const Place& place : places) {
    if (what.empty() || what == place.type->name()) {
      AppendMessage(*place.type, place.path, &text);
    }
  }
  if (!text.empty()) return text;
  const auto field = FindField(*root, what);
  if (!field.ok()) return field.status();
  AppendField(**field, &text);
  if (const Descriptor* const type = (*field)->message_type()) {
    AppendMessage(*type, what, &text);
  }
  return text;
}

}  // namespace syncline::ctl

#include "common/job/job_spec_fields.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/utf8.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/unknown_field_set.h"

namespace syncline {
namespace {

namespace pb = google::protobuf;

constexpr size_t kTextBytesMax = 4096;
constexpr int kRepeatedMax = 10'000;

template <typename... Parts>
void Add(std::vector<std::string>* problems, absl::string_view path,
         const Parts&... message) {
  problems->push_back(absl::StrCat(path, ": ", message...));
}

std::string Quote(absl::string_view text) {
  return absl::StrCat("'", absl::Utf8SafeCHexEscape(text), "'");
}

void CheckText(const std::string& path, const std::string& text,
               std::vector<std::string>* problems) {
  if (text.size() > kTextBytesMax) {
    Add(problems, path, text.size(), " bytes is too long, at most ",
        kTextBytesMax);
  } else if (!IsUtf8(text)) {
    Add(problems, path, "'", absl::CHexEscape(text), "' is not UTF-8");
  } else {
    for (char c : text) {
      if (absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\t') {
        Add(problems, path, Quote(text), " has a control character");
        return;
      }
    }
  }
}

void CheckMessage(const std::string& path, const pb::Message& message,
                  std::vector<std::string>* problems);

// One value: `index` is -1 for a singular field.
void CheckValue(const std::string& path, const pb::Message& message,
                const pb::FieldDescriptor& field, int index,
                std::vector<std::string>* problems) {
  const pb::Reflection& get = *message.GetReflection();
  const bool one = index < 0;
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_FLOAT:
    case pb::FieldDescriptor::CPPTYPE_DOUBLE: {
      const bool is_float =
          field.cpp_type() == pb::FieldDescriptor::CPPTYPE_FLOAT;
      const double value =
          is_float ? (one ? get.GetFloat(message, &field)
                          : get.GetRepeatedFloat(message, &field, index))
                   : (one ? get.GetDouble(message, &field)
                          : get.GetRepeatedDouble(message, &field, index));
      if (!std::isfinite(value)) {
        Add(problems, path, value, " is not a finite number");
      }
      return;
    }
    case pb::FieldDescriptor::CPPTYPE_ENUM: {
      const int value = one ? get.GetEnumValue(message, &field)
                            : get.GetRepeatedEnumValue(message, &field, index);
      if (field.enum_type()->FindValueByNumber(value) == nullptr) {
        Add(problems, path, value, " is no value of ",
            field.enum_type()->name());
      }
      return;
    }
    case pb::FieldDescriptor::CPPTYPE_STRING:
      CheckText(path,
                one ? get.GetString(message, &field)
                    : get.GetRepeatedString(message, &field, index),
                problems);
      return;
    case pb::FieldDescriptor::CPPTYPE_MESSAGE:
      CheckMessage(path,
                   one ? get.GetMessage(message, &field)
                       : get.GetRepeatedMessage(message, &field, index),
                   problems);
      return;
    default:
      return;
  }
}

void CheckMessage(const std::string& path, const pb::Message& message,
                  std::vector<std::string>* problems) {
  const pb::Reflection& get = *message.GetReflection();
  const pb::UnknownFieldSet& unknown = get.GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); ++i) {
    Add(problems, path.empty() ? "job" : path, "has a field number ",
        unknown.field(i).number(), " that this version does not know");
  }
  std::vector<const pb::FieldDescriptor*> fields;
  get.ListFields(message, &fields);
  for (const pb::FieldDescriptor* field : fields) {
    const std::string field_path =
        path.empty() ? field->name() : absl::StrCat(path, ".", field->name());
    if (!field->is_repeated()) {
      CheckValue(field_path, message, *field, -1, problems);
      continue;
    }
    const int count = get.FieldSize(message, field);
    if (count > kRepeatedMax) {
      Add(problems, field_path, count, " entries are too many, at most ",
          kRepeatedMax);
      continue;
    }
    for (int i = 0; i < count; ++i) {
      CheckValue(absl::StrCat(field_path, "[", i, "]"), message, *field, i,
                 problems);
    }
  }
}

}  // namespace

void CheckFieldValues(const pb::Message& message,
                      std::vector<std::string>* problems) {
  CheckMessage("", message, problems);
}

}  // namespace syncline

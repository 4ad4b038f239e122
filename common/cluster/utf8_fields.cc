#include "common/cluster/utf8_fields.h"

#include <string>
#include <vector>

#include "common/base/utf8.h"
#include "google/protobuf/descriptor.h"

namespace syncline {
namespace {

namespace pb = google::protobuf;

void MakeFieldUtf8(pb::Message* message, const pb::FieldDescriptor& field) {
  const pb::Reflection& reflection = *message->GetReflection();
  if (!field.is_repeated()) {
    const std::string text = reflection.GetString(*message, &field);
    if (!IsUtf8(text)) reflection.SetString(message, &field, Utf8Text(text));
    return;
  }
  for (int i = 0; i < reflection.FieldSize(*message, &field); ++i) {
    const std::string text = reflection.GetRepeatedString(*message, &field, i);
    if (IsUtf8(text)) continue;
    reflection.SetRepeatedString(message, &field, i, Utf8Text(text));
  }
}

}  // namespace

void MakeStringsUtf8(pb::Message* message) {
  const pb::Reflection& reflection = *message->GetReflection();
  std::vector<const pb::FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const pb::FieldDescriptor* field : fields) {
    if (field->type() == pb::FieldDescriptor::TYPE_STRING) {
      MakeFieldUtf8(message, *field);
    } else if (field->cpp_type() != pb::FieldDescriptor::CPPTYPE_MESSAGE) {
      continue;
    } else if (!field->is_repeated()) {
      MakeStringsUtf8(reflection.MutableMessage(message, field));
    } else {
      for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
        MakeStringsUtf8(reflection.MutableRepeatedMessage(message, field, i));
      }
    }
  }
}

}  // namespace syncline

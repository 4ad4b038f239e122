#ifndef SYNCLINE_COMMON_JOB_JOB_FILE_SOURCE_MAP_H_
#define SYNCLINE_COMMON_JOB_JOB_FILE_SOURCE_MAP_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace syncline {

// The places of the fields of a job file in text format or JSON, also of fields
// that are not valid. A place gives a problem its line, and the range of text
// to leave out so that the rest can be read. Takes any text, and finds as much
// structure in it as there is. Immutable, hence thread-safe.
class JobFileSourceMap {
 public:
  struct Field {
    // "data.feeds[1].input", names as in the proto whatever JSON spelled. An
    // unknown field has its own name, and nothing inside it is listed.
    std::string path;
    // Of the name and the value, half-open.
    size_t begin = 0;
    size_t end = 0;
    bool has_value = true;
    // The message that it is written in, and the field of it that is meant.
    // Null: the message has no such field.
    const google::protobuf::Descriptor* container = nullptr;
    const google::protobuf::FieldDescriptor* descriptor = nullptr;
  };

  JobFileSourceMap() = default;
  explicit JobFileSourceMap(absl::string_view text);

  // In the order of the text, each before what is inside it.
  const std::vector<Field>& fields() const { return fields_; }

  // The innermost field around `offset`; null: none.
  const Field* At(size_t offset) const;
  // The last field that ends at or before `offset`; null: none.
  const Field* Before(size_t offset) const;
  // Null: not in the text.
  const Field* Find(absl::string_view path) const;
  // Find, or the nearest field around it that is in the text.
  const Field* FindNearest(absl::string_view path) const;

 private:
  friend class JobFileSourceMapScanner;
  std::vector<Field> fields_;
};

// Overwrites a field of the source map of *text with spaces, and one comma
// beside it: offsets and lines of the rest stay.
void BlankField(const JobFileSourceMap::Field& field, std::string* text);

// "a.b[2].c" without its last part: "a.b[2]"; "" if there is one part only.
absl::string_view ParentPath(absl::string_view path);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_JOB_FILE_SOURCE_MAP_H_

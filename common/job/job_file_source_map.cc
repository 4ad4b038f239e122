#include "common/job/job_file_source_map.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/job_spec.pb.h"

namespace syncline {

namespace pb = google::protobuf;

// One grammar for both forms: fields are a name, maybe quoted, maybe a colon,
// and a value: a word, strings, {fields}, <fields> or a [list] of those.
class JobFileSourceMapScanner {
 public:
  JobFileSourceMapScanner(absl::string_view text,
                          std::vector<JobFileSourceMap::Field>* fields)
      : text_(text), fields_(fields) {}

  void Scan() {
    SkipSpace();
    const bool braces = Peek() == '{';  // JSON has them around the whole
    if (braces) ++at_;
    while (!AtEnd()) {
      ScanFields(JobSpec::descriptor(), "", 0);
      if (braces) return;
      if (!AtEnd()) ++at_;  // a closing bracket too many
    }
  }

 private:
  // Deeper than any parser of job files follows.
  static constexpr int kNestingMax = 64;

  bool AtEnd() const { return at_ >= text_.size(); }
  char Peek() const { return AtEnd() ? '\0' : text_[at_]; }
  static bool IsOpening(char c) { return c == '{' || c == '<'; }
  static bool IsClosing(char c) { return c == '}' || c == '>' || c == ']'; }
  static bool IsQuote(char c) { return c == '"' || c == '\''; }
  static bool IsSeparator(char c) { return c == ',' || c == ';' || c == ':'; }
  bool AtWord() const {
    const char c = Peek();
    return !AtEnd() && !IsOpening(c) && !IsClosing(c) && !IsSeparator(c) &&
           !IsQuote(c) && c != '[' && c != '#' &&
           !absl::ascii_isspace(static_cast<unsigned char>(c));
  }

  void SkipSpace() {
    while (!AtEnd()) {
      if (Peek() == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (absl::ascii_isspace(static_cast<unsigned char>(Peek()))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  // A word or a quoted string; a string ends with its line at the latest.
  absl::string_view TakeToken() {
    const size_t begin = at_;
    if (!IsQuote(Peek())) {
      while (AtWord()) ++at_;
      return text_.substr(begin, at_ - begin);
    }
    const char quote = text_[at_++];
    while (!AtEnd() && Peek() != quote && Peek() != '\n') {
      at_ += Peek() == '\\' ? 2 : 1;
    }
    at_ = std::min(at_, text_.size());
    const absl::string_view content = text_.substr(begin + 1, at_ - begin - 1);
    if (Peek() == quote) ++at_;
    return content;
  }

  // Up to a closing bracket, which it leaves, or the end.
  void ScanFields(const pb::Descriptor* message, const std::string& path,
                  int depth) {
    std::map<std::string, int> counts;
    while (true) {
      SkipSpace();
      if (AtEnd() || IsClosing(Peek())) return;
      if (AtWord() || IsQuote(Peek())) {
        ScanField(message, path, depth, &counts);
      } else {
        ++at_;  // a separator, or what no parser takes
      }
    }
  }

  void ScanField(const pb::Descriptor* message, const std::string& path,
                 int depth, std::map<std::string, int>* counts) {
    JobFileSourceMap::Field field;
    field.begin = at_;
    const std::string name(TakeToken());
    field.end = at_;
    field.container = message;
    if (message != nullptr) field.descriptor = FindByName(*message, name);
    const std::string known =
        field.descriptor != nullptr ? field.descriptor->name() : name;
    field.path = path.empty() ? known : absl::StrCat(path, ".", known);
    const bool repeated =
        field.descriptor != nullptr && field.descriptor->is_repeated();
    int* const count = repeated ? &(*counts)[known] : nullptr;

    SkipSpace();
    const bool colon = Peek() == ':';
    if (colon) field.end = ++at_;
    SkipSpace();
    if (Peek() == '[') {
      ScanList(field, depth, count);
      return;
    }
    if (repeated) absl::StrAppend(&field.path, "[", (*count)++, "]");
    ScanValue(std::move(field), colon, depth);
  }

  void ScanList(const JobFileSourceMap::Field& list, int depth, int* count) {
    const size_t index = Add(list);
    int open = 0;  // lists in the list, which mean nothing
    while (true) {
      SkipSpace();
      if (AtEnd()) break;
      if (Peek() == '[') ++open;
      if (IsClosing(Peek()) && (Peek() != ']' || --open == 0)) break;
      if (!AtWord() && !IsQuote(Peek()) && !IsOpening(Peek())) {
        ++at_;
        continue;
      }
      JobFileSourceMap::Field element = list;
      element.begin = at_;
      element.end = at_;
      if (count != nullptr) {
        absl::StrAppend(&element.path, "[", (*count)++, "]");
      } else {
        element.container = nullptr;  // the list itself is what is wrong
      }
      ScanValue(std::move(element), true, depth);
    }
    if (Peek() == ']') ++at_;
    SetEnd(index, at_);
  }

  // The value at the current place; `certain` if nothing else can be there.
  void ScanValue(JobFileSourceMap::Field field, bool certain, int depth) {
    if (IsOpening(Peek())) {
      const pb::Descriptor* inside = field.descriptor != nullptr
                                         ? field.descriptor->message_type()
                                         : nullptr;
      const std::string path = field.path;
      const size_t index = Add(std::move(field));
      ++at_;
      if (depth == kNestingMax) {
        at_ = text_.size();
      } else {
        ScanFields(inside, path, depth + 1);
      }
      if (IsClosing(Peek())) ++at_;
      SetEnd(index, at_);
      return;
    }
    field.has_value = false;
    if (certain || !AtNextField()) TakeScalar(&field);
    Add(std::move(field));
  }

  void TakeScalar(JobFileSourceMap::Field* field) {
    field->has_value = AtWord() || IsQuote(Peek());
    if (AtWord()) {
      const bool sign = TakeToken() == "-";
      if (sign) SkipSpace();
      if (sign && AtWord()) TakeToken();
      field->end = at_;
      return;
    }
    while (IsQuote(Peek())) {  // text format joins strings
      TakeToken();
      field->end = at_;
      SkipSpace();
    }
  }

  // A word or string that begins the next field, because ':' or '{' follows.
  bool AtNextField() {
    if (!AtWord() && !IsQuote(Peek())) return false;
    const size_t here = at_;
    TakeToken();
    SkipSpace();
    const bool begins = Peek() == ':' || IsOpening(Peek());
    at_ = here;
    return begins;
  }

  static const pb::FieldDescriptor* FindByName(const pb::Descriptor& message,
                                               const std::string& name) {
    const auto* field = message.FindFieldByName(name);
    return field != nullptr ? field : message.FindFieldByCamelcaseName(name);
  }

  // Of what is inside an unknown field nothing is kept.
  size_t Add(JobFileSourceMap::Field field) {
    if (field.container == nullptr) return fields_->size();
    fields_->push_back(std::move(field));
    return fields_->size() - 1;
  }
  void SetEnd(size_t index, size_t end) {
    if (index < fields_->size()) (*fields_)[index].end = end;
  }

  const absl::string_view text_;
  std::vector<JobFileSourceMap::Field>* const fields_;
  size_t at_ = 0;
};

JobFileSourceMap::JobFileSourceMap(absl::string_view text) {
  JobFileSourceMapScanner(text, &fields_).Scan();
}

const JobFileSourceMap::Field* JobFileSourceMap::At(size_t offset) const {
  const Field* innermost = nullptr;
  for (const Field& field : fields_) {
    if (field.begin > offset) break;
    if (offset < field.end) innermost = &field;
  }
  return innermost;
}

const JobFileSourceMap::Field* JobFileSourceMap::Before(size_t offset) const {
  const Field* last = nullptr;
  for (const Field& field : fields_) {
    if (field.end > offset) continue;
    if (last == nullptr || field.end >= last->end) last = &field;
  }
  return last;
}

const JobFileSourceMap::Field* JobFileSourceMap::Find(
    absl::string_view path) const {
  for (const Field& field : fields_) {
    if (field.path == path) return &field;
  }
  return nullptr;
}

const JobFileSourceMap::Field* JobFileSourceMap::FindNearest(
    absl::string_view path) const {
  while (!path.empty()) {
    if (const Field* field = Find(path)) return field;
    if (const Field* first = Find(absl::StrCat(path, "[0]"))) return first;
    path = ParentPath(path);
  }
  return nullptr;
}

void BlankField(const JobFileSourceMap::Field& field, std::string* text) {
  for (size_t i = field.begin; i < field.end; ++i) {
    if ((*text)[i] != '\n') (*text)[i] = ' ';
  }
  const size_t next = text->find_first_not_of(" \t\r\n", field.end);
  if (next != std::string::npos && (*text)[next] == ',') {
    (*text)[next] = ' ';
    return;
  }
  if (field.begin == 0) return;
  const size_t previous = text->find_last_not_of(" \t\r\n", field.begin - 1);
  if (previous != std::string::npos && (*text)[previous] == ',') {
    (*text)[previous] = ' ';
  }
}

absl::string_view ParentPath(absl::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == absl::string_view::npos ? "" : path.substr(0, dot);
}

}  // namespace syncline

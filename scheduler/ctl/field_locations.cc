#include "scheduler/ctl/field_locations.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "proto/job_spec.pb.h"

namespace syncline {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;

class SilentErrors : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, int, const std::string&) override {}
};

// "initialize[2]" is the name and the index; without an index: 0.
std::pair<std::string, int> SplitIndex(absl::string_view part) {
  const std::vector<absl::string_view> pieces =
      absl::StrSplit(part, absl::ByAnyChar("[]"));
  int index = 0;
  if (pieces.size() > 1 && !absl::SimpleAtoi(pieces[1], &index)) index = 0;
  return {std::string(pieces[0]), index};
}

// Line, from 1, of the field or of the nearest one around it; 0: none.
int FindLine(const TextFormat::ParseInfoTree& root, absl::string_view path) {
  const Descriptor* message = JobSpec::descriptor();
  const TextFormat::ParseInfoTree* tree = &root;
  int line = 0;
  for (absl::string_view part : absl::StrSplit(path, '.')) {
    const auto [name, number] = SplitIndex(part);
    const FieldDescriptor* field = message->FindFieldByName(name);
    if (field == nullptr || number < 0) break;
    const int index = field->is_repeated() ? number : -1;
    const TextFormat::ParseLocation found = tree->GetLocation(field, index);
    if (found.line < 0) break;
    line = found.line + 1;
    message = field->message_type();
    if (message == nullptr) break;
    tree = tree->GetTreeForNested(field, index);
    if (tree == nullptr) break;
  }
  return line;
}

}  // namespace

std::vector<std::string> LocateProblems(
    absl::string_view text, absl::string_view label,
    const std::vector<std::string>& problems) {
  TextFormat::ParseInfoTree locations;
  if (!absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{")) {
    SilentErrors silent;
    TextFormat::Parser parser;
    parser.RecordErrorsTo(&silent);
    parser.WriteLocationsTo(&locations);
    JobSpec ignored;
    parser.ParseFromString(std::string(text), &ignored);
  }
  std::vector<std::string> located;
  for (const std::string& problem : problems) {
    const absl::string_view path =
        absl::string_view(problem).substr(0, problem.find(':'));
    const int line = FindLine(locations, path);
    located.push_back(line > 0 ? absl::StrCat(label, ":", line, ": ", problem)
                               : absl::StrCat(label, ": ", problem));
  }
  return located;
}

}  // namespace syncline

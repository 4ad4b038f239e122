#include "scheduler/ctl/text/weights_text.h"

#include <ostream>

#include "absl/strings/str_cat.h"
#include "common/model/weight_report.h"

namespace syncline::ctl {

using google::protobuf::ListValue;
using google::protobuf::Struct;

std::string WeightsText(const TrainingGraph& training) {
  std::string text;
  for (const std::string& line : DescribeWeights(training)) {
    absl::StrAppend(&text, "  ", line, "\n");
  }
  for (const std::string& warning : training.warnings) {
    absl::StrAppend(&text, "  warning: ", warning, "\n");
  }
  return text;
}

void PrintWeights(const TrainingGraph& training, const Console& console) {
  if (console.json) return;
  for (const std::string& line : DescribeWeights(training)) {
    console.out << "  " << line << "\n";
  }
  console.out << std::flush;
  for (const std::string& warning : training.warnings) {
    console.err << "synctl: warning: " << warning << std::endl;
  }
}

void SetWeights(const TrainingGraph& training, Struct* object) {
  const auto list_at = [](const std::string& key, Struct* owner) {
    return (*owner->mutable_fields())[key].mutable_list_value();
  };
  ListValue* const weights = list_at("weights", object);
  for (const WeightGroup& group : GroupWeights(training)) {
    Struct* const entry = weights->add_values()->mutable_struct_value();
    SetFlag(entry, "trained", group.trained);
    SetField(entry, "why", group.why);
    auto& fields = *entry->mutable_fields();
    fields["count"].set_number_value(static_cast<double>(group.count));
    fields["numbers"].set_number_value(static_cast<double>(group.numbers));
    ListValue* const names = list_at("names", entry);
    for (const std::string& name : group.names) {
      names->add_values()->set_string_value(name);
    }
  }
  if (training.warnings.empty()) return;
  ListValue* const warnings = list_at("warnings", object);
  for (const std::string& warning : training.warnings) {
    warnings->add_values()->set_string_value(warning);
  }
}

}  // namespace syncline::ctl

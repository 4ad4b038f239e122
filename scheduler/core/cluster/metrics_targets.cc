#include "scheduler/core/cluster/metrics_targets.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {
namespace {

void AddTarget(const std::string& address,
               const std::map<std::string, std::string>& labels,
               google::protobuf::ListValue* targets) {
  auto& fields =
      *targets->add_values()->mutable_struct_value()->mutable_fields();
  fields["targets"].mutable_list_value()->add_values()->set_string_value(
      address);
  auto& of_labels = *fields["labels"].mutable_struct_value()->mutable_fields();
  for (const auto& [name, value] : labels) {
    of_labels[name].set_string_value(value);
  }
}

}  // namespace

std::string MetricsTargetsJson(const std::string& scheduler,
                               absl::Span<const Member> members) {
  google::protobuf::ListValue targets;
  std::set<std::string> known;
  for (const Member& member : members) {
    const std::string& address = member.http_address();
    if (!ParseHostPort(address).ok() || !known.insert(address).second) continue;
    AddTarget(address,
              {{"task", std::string(TaskTypeName(member.task().type()))},
               {"index", absl::StrCat(member.task().index())},
               {"host", member.hostname()}},
              &targets);
  }
  if (!scheduler.empty() && known.insert(scheduler).second) {
    AddTarget(scheduler, {{"task", "scheduler"}, {"index", "0"}}, &targets);
  }
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(targets, &json).ok()) {
    return "[]";
  }
  return json;
}

}  // namespace syncline::scheduler

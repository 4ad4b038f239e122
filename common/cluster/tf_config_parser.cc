// ParseTfConfig of cluster_config.h. The rules are those of TensorFlow's
// run_config.py and tfconfig_cluster_resolver.py, and of what Kubeflow's
// tensorflow.go writes; where they differ both are taken.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/cluster/cluster_config.h"
#include "common/job/strict_json.h"

namespace syncline {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

constexpr uint32_t kIndexMax = std::numeric_limits<uint32_t>::max();

// Names the value that was found, for messages.
std::string Describe(const Value& value) {
  switch (value.kind_case()) {
    case Value::kStringValue: {
      constexpr size_t kShownMax = 64;
      const std::string& text = value.string_value();
      return text.size() <= kShownMax
                 ? absl::StrCat("\"", text, "\"")
                 : absl::StrCat("\"", text.substr(0, kShownMax), "...\"");
    }
    case Value::kNumberValue:
      return absl::StrCat(value.number_value());
    case Value::kBoolValue:
      return value.bool_value() ? "true" : "false";
    case Value::kListValue:
      return "a list";
    case Value::kStructValue:
      return "an object";
    default:
      return "null";
  }
}

bool IsNull(const Value* value) {
  return value == nullptr || value->kind_case() == Value::kNullValue ||
         value->kind_case() == Value::KIND_NOT_SET;
}

const Value* Field(const Struct& object, const std::string& key) {
  const auto found = object.fields().find(key);
  return found == object.fields().end() ? nullptr : &found->second;
}

// Protobuf's map has no order; problems should come in one.
std::map<std::string, const Value*> Sorted(const Struct& object) {
  std::map<std::string, const Value*> sorted;
  for (const auto& [key, value] : object.fields()) sorted[key] = &value;
  return sorted;
}

std::optional<uint32_t> DigitsToIndex(absl::string_view text) {
  uint32_t index = 0;
  const bool digits =
      !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return absl::ascii_isdigit(c);
      });
  if (!digits || !absl::SimpleAtoi(text, &index)) return std::nullopt;
  return index;
}

// TensorFlow passes it through int(): a string will do.
std::optional<uint32_t> ValueToIndex(const Value& value) {
  if (value.kind_case() == Value::kStringValue) {
    return DigitsToIndex(absl::StripAsciiWhitespace(value.string_value()));
  }
  if (value.kind_case() != Value::kNumberValue) return std::nullopt;
  const double number = value.number_value();
  if (!(number >= 0 && number <= kIndexMax) || number != std::floor(number)) {
    return std::nullopt;
  }
  return static_cast<uint32_t>(number);
}

// Reads one TF_CONFIG; collects problems instead of stopping at the first.
class TfConfigReader {
 public:
  absl::StatusOr<ClusterConfig> Read(const Struct& root) {
    CheckRoot(root);
    ReadCluster(root);
    const bool has_task = ReadTask(root);
    if (has_cluster_) {
      CheckCluster();
      if (has_task) FindSelf();
    } else if (has_task) {
      CheckAlone();
    }
    if (!problems_.empty()) {
      return absl::InvalidArgumentError(absl::StrJoin(problems_, "\n"));
    }
    FindScheduler();
    return std::move(config_);
  }

 private:
  template <typename... Parts>
  void Problem(absl::string_view path, const Parts&... parts) {
    problems_.push_back(absl::StrCat("TF_CONFIG: ", path, ": ", parts...));
  }

  void CheckRoot(const Struct& root) {
    static constexpr absl::string_view kTexts[] = {
        "environment", "eval_session_master", "model_dir", "rpc_layer",
        "session_master"};
    static constexpr absl::string_view kOthers[] = {"cluster", "service",
                                                    "sparseCluster", "task"};
    for (const auto& [key, value] : Sorted(root)) {
      const bool text = std::find(std::begin(kTexts), std::end(kTexts), key) !=
                        std::end(kTexts);
      const bool known =
          text || std::find(std::begin(kOthers), std::end(kOthers), key) !=
                      std::end(kOthers);
      if (!known) {
        Problem(key, "unknown key; there are cluster, sparseCluster, task, ",
                "service, ", absl::StrJoin(kTexts, ", "));
      } else if (text && !IsNull(value) &&
                 value->kind_case() != Value::kStringValue) {
        Problem(key, "expected a string, got ", Describe(*value));
      }
    }
    if (const Value* service = Field(root, "service");
        !IsNull(service) && !service->has_struct_value()) {
      Problem("service", "expected an object, got ", Describe(*service));
    }
    if (const Value* layer = Field(root, "rpc_layer");
        layer != nullptr && layer->kind_case() == Value::kStringValue &&
        layer->string_value() != "grpc") {
      Problem("rpc_layer", "only \"grpc\" is there, got ", Describe(*layer));
    }
    if (const Value* environment = Field(root, "environment");
        environment != nullptr) {
      config_.environment = environment->string_value();
    }
  }

  void ReadCluster(const Struct& root) {
    const Value* dense = Field(root, "cluster");
    const Value* sparse = Field(root, "sparseCluster");
    if (!IsNull(dense) && !IsNull(sparse)) {
      Problem("sparseCluster", "given besides cluster; expected one of them");
    }
    const absl::string_view path = IsNull(dense) ? "sparseCluster" : "cluster";
    const Value* cluster = IsNull(dense) ? sparse : dense;
    if (IsNull(cluster)) return;
    if (!cluster->has_struct_value()) {
      Problem(path, "expected an object of task types, got ",
              Describe(*cluster));
      return;
    }
    has_cluster_ = !cluster->struct_value().fields().empty();
    config_.partial = has_cluster_ && path == "sparseCluster";
    for (const auto& [type, value] : Sorted(cluster->struct_value())) {
      ReadTasks(type, absl::StrCat(path, ".", type), *value);
    }
    std::sort(config_.tasks.begin(), config_.tasks.end(),
              [](const TaskAddress& a, const TaskAddress& b) {
                return std::tie(a.task.kind, a.task.index) <
                       std::tie(b.task.kind, b.task.index);
              });
  }

  void ReadTasks(const std::string& type, const std::string& path,
                 const Value& value) {
    const std::optional<TaskKind> kind = ReadKind(type, path);
    if (!kind.has_value()) return;
    listed_types_.insert(type);
    if (value.has_list_value()) {
      uint32_t index = 0;
      for (const Value& address : value.list_value().values()) {
        AddTask({*kind, index}, absl::StrCat(path, "[", index, "]"), address);
        ++index;
      }
    } else if (value.has_struct_value()) {
      config_.partial = true;
      for (const auto& [key, address] : Sorted(value.struct_value())) {
        ReadSparseTask(*kind, key, absl::StrCat(path, ".", key), *address);
      }
    } else if (!IsNull(&value)) {  // Go writes an empty list as null
      Problem(path, "expected a list of addresses, or a map from index to ",
              "address, got ", Describe(value));
    }
  }

  void ReadSparseTask(TaskKind kind, const std::string& key,
                      const std::string& path, const Value& address) {
    const std::optional<uint32_t> index = DigitsToIndex(key);
    // "01" would be a second name for 1.
    if (!index.has_value() || absl::StrCat(*index) != key) {
      Problem(path, "expected an index in 0..", kIndexMax, " as the key");
      return;
    }
    AddTask({kind, *index}, path, address);
  }

  std::optional<TaskKind> ReadKind(const std::string& type,
                                   absl::string_view path) {
    static const auto* const kKinds = new std::map<std::string, TaskKind>{
        {"chief", TaskKind::kChief},
        {"master", TaskKind::kChief},
        {"worker", TaskKind::kWorker},
        {"ps", TaskKind::kPs},
        {"evaluator", TaskKind::kEvaluator},
        {"scheduler", TaskKind::kScheduler},
    };
    const auto found = kKinds->find(type);
    if (found != kKinds->end()) return found->second;
    Problem(path, "unknown task type \"", type,
            "\"; there are chief (or master), worker, ps, evaluator, ",
            "scheduler");
    return std::nullopt;
  }

  void AddTask(TaskId task, const std::string& path, const Value& value) {
    if (value.kind_case() != Value::kStringValue) {
      Problem(path, "expected an address as \"host:port\", got ",
              Describe(value));
      config_.tasks.push_back({task, ""});
      return;
    }
    const std::string& text = value.string_value();
    config_.tasks.push_back({task, text});
    const auto address = ParseHostPort(text);
    if (!address.ok()) {
      Problem(path, address.status().message());
    } else if (address->IsAnyInterface()) {
      Problem(path, "\"", text, "\" is where a process listens, not where ",
              "others reach it");
    } else if (const auto [first, added] = path_of_address_.try_emplace(
                   absl::AsciiStrToLower(text), path);
               !added) {
      Problem(path, "\"", text, "\" is the address of ", first->second, " too");
    }
  }

  // True if there is a task and it could be read.
  bool ReadTask(const Struct& root) {
    const Value* task = Field(root, "task");
    if (IsNull(task)) {
      if (has_cluster_) {
        Problem("task", "missing; with a cluster, type and index are needed");
      }
      return false;
    }
    if (!task->has_struct_value()) {
      Problem("task", "expected an object with type and index, got ",
              Describe(*task));
      return false;
    }
    const size_t problems_before = problems_.size();
    for (const auto& [key, value] : Sorted(task->struct_value())) {
      if (key != "type" && key != "index") {
        Problem(absl::StrCat("task.", key),
                "unknown key; there are type and index");
      }
    }
    ReadTaskType(Field(task->struct_value(), "type"));
    ReadTaskIndex(Field(task->struct_value(), "index"));
    return problems_.size() == problems_before;
  }

  void ReadTaskType(const Value* type) {
    if (IsNull(type)) {
      if (has_cluster_) Problem("task.type", "missing");
      task_type_ = "worker";
    } else if (type->kind_case() != Value::kStringValue) {
      Problem("task.type", "expected a string, got ", Describe(*type));
    } else if (const auto kind = ReadKind(type->string_value(), "task.type")) {
      task_type_ = type->string_value();
      config_.self.kind = *kind;
    }
  }

  void ReadTaskIndex(const Value* index) {
    if (IsNull(index)) {
      if (has_cluster_) Problem("task.index", "missing");
      return;
    }
    const std::optional<uint32_t> value = ValueToIndex(*index);
    if (!value.has_value()) {
      Problem("task.index", "expected an integer in 0..", kIndexMax,
              " (a string of digits will do), got ", Describe(*index));
      return;
    }
    config_.self.index = *value;
  }

  size_t Count(TaskKind kind) const {
    return std::count_if(
        config_.tasks.begin(), config_.tasks.end(),
        [kind](const TaskAddress& entry) { return entry.task.kind == kind; });
  }
  const TaskAddress* Find(const TaskId& task) const {
    const auto found = std::find_if(
        config_.tasks.begin(), config_.tasks.end(),
        [&task](const TaskAddress& entry) { return entry.task == task; });
    return found == config_.tasks.end() ? nullptr : &*found;
  }

  void CheckCluster() {
    const bool master = listed_types_.count("master") > 0;
    if (master && listed_types_.count("chief") > 0) {
      Problem("cluster", "has both chief and master, which are the same task");
    } else if (Count(TaskKind::kChief) > 1) {
      Problem("cluster", "has ", Count(TaskKind::kChief),
              " chiefs; there is at most one");
    } else if (Count(TaskKind::kChief) == 1 &&
               Find({TaskKind::kChief, 0}) == nullptr) {
      Problem("cluster", "the index of the chief must be 0");
    }
    if (Count(TaskKind::kScheduler) > 1 ||
        (Count(TaskKind::kScheduler) == 1 &&
         Find({TaskKind::kScheduler, 0}) == nullptr)) {
      Problem("cluster", "there is at most one scheduler, with index 0");
    }
    if (master &&
        (Count(TaskKind::kEvaluator) > 0 || task_type_ == "evaluator")) {
      Problem("cluster", "master cannot be used together with evaluator; ",
              "call it chief");
    }
    if (!config_.partial && Count(TaskKind::kChief) == 0 &&
        Count(TaskKind::kWorker) == 0) {
      Problem("cluster", "has neither a chief nor a worker");
    }
  }

  void FindSelf() {
    if (const TaskAddress* entry = Find(config_.self);
        entry != nullptr && listed_types_.count(task_type_) > 0) {
      config_.self_address = entry->address;
      return;
    }
    // Evaluators are not part of TensorFlow's cluster: any index will do.
    if (config_.self.kind == TaskKind::kEvaluator) return;
    if (config_.partial && FindSelfInPartial()) return;
    if (listed_types_.count(task_type_) == 0) {
      Problem("task.type", "\"", task_type_, "\" is not in the cluster; ",
              DescribeCluster());
    } else {
      Problem("task.index", config_.self.index, " is out of range for ",
              task_type_, "; ", DescribeCluster());
    }
  }

  // With enableDynamicWorker a ps finds itself alone in its list, but under its
  // own index. A chief finds no other task.
  bool FindSelfInPartial() {
    if (config_.self.kind == TaskKind::kPs && Count(TaskKind::kPs) == 1 &&
        Count(TaskKind::kWorker) == 0) {
      TaskAddress& only = *std::find_if(
          config_.tasks.begin(), config_.tasks.end(),
          [](const TaskAddress& t) { return t.task.kind == TaskKind::kPs; });
      if (only.task.index != 0) return false;
      only.task = config_.self;
      config_.self_address = only.address;
      return true;
    }
    return config_.self.kind == TaskKind::kChief && config_.self.index == 0 &&
           Count(TaskKind::kChief) == 0;
  }

  void CheckAlone() {
    if (config_.self == TaskId{TaskKind::kWorker, 0}) return;
    Problem("task", TaskName(config_.self),
            " without a cluster; a process that is alone is worker 0");
  }

  std::string DescribeCluster() const {
    constexpr size_t kShownMax = 32;
    const size_t shown = std::min(config_.tasks.size(), kShownMax);
    std::string text = absl::StrCat(
        "the cluster is {",
        absl::StrJoin(config_.tasks.begin(), config_.tasks.begin() + shown,
                      ", ", [](std::string* out, const TaskAddress& entry) {
                        absl::StrAppend(out, TaskName(entry.task), " = ",
                                        entry.address);
                      }));
    if (shown < config_.tasks.size()) {
      absl::StrAppend(&text, " and ", config_.tasks.size() - shown, " more");
    }
    return absl::StrCat(text, "}");
  }

  void FindScheduler() {
    const TaskAddress* scheduler = nullptr;
    for (const TaskId& task :
         {TaskId{TaskKind::kScheduler, 0}, TaskId{TaskKind::kChief, 0},
          TaskId{TaskKind::kWorker, 0}}) {
      if (scheduler == nullptr) scheduler = Find(task);
    }
    if (scheduler != nullptr) config_.scheduler_address = scheduler->address;
    config_.hosts_scheduler =
        config_.alone() ||
        (scheduler != nullptr && scheduler->task == config_.self);
  }

  ClusterConfig config_;
  std::vector<std::string> problems_;
  bool has_cluster_ = false;
  std::set<std::string> listed_types_;  // as written: "master" is not "chief"
  std::string task_type_;               // as written
  std::map<std::string, std::string> path_of_address_;
};

}  // namespace

absl::StatusOr<ClusterConfig> ParseTfConfig(absl::string_view json) {
  // A variable that is set to nothing is not set.
  if (absl::StripAsciiWhitespace(json).empty()) json = "{}";
  auto root = ParseStrictJson(json);
  if (!root.ok()) return Annotate(root.status(), "TF_CONFIG");
  if (!root->has_struct_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("TF_CONFIG: expected an object, got ", Describe(*root)));
  }
  return TfConfigReader().Read(root->struct_value());
}

}  // namespace syncline

#include "scheduler/ctl/text/profile_text.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/ctl/text/console.h"
#include "scheduler/ctl/text/job_text.h"

namespace syncline::ctl {
namespace {

using google::protobuf::ListValue;
using google::protobuf::Struct;

constexpr size_t kNodesShown = 10;

// Seconds in one row of a table.
struct Row {
  std::string name;
  std::string op_type;  // of a node
  int nodes = 0;
  double forward = 0;
  double backward = 0;
  double recomputed = 0;

  double total() const { return forward + backward + recomputed; }
  void Add(StepProfile::Kind kind, double seconds) {
    if (kind == StepProfile::FORWARD) forward += seconds;
    if (kind == StepProfile::BACKWARD) backward += seconds;
    if (kind == StepProfile::RECOMPUTED) recomputed += seconds;
  }
};

// A part of a step's time.
struct Share {
  std::string name;
  std::string about;
  double seconds = 0;
};

template <typename T, typename Seconds>
void SortBySeconds(std::vector<T>* rows, Seconds seconds) {
  std::stable_sort(rows->begin(), rows->end(), [&](const T& a, const T& b) {
    return seconds(a) > seconds(b);
  });
}

// Sums over all steps, divided by their number.
class Summary {
 public:
  explicit Summary(const StepProfile& profile) {
    const double per_step = 1e-9 / std::max(1, profile.steps_size());
    std::vector<double> by_activity(profile.activities_size(), 0);
    for (int i = 0; i < profile.interval_activity_size(); ++i) {
      by_activity[profile.interval_activity(i)] +=
          per_step * static_cast<double>(profile.interval_duration_ns(i));
    }
    for (const StepProfile::Step& step : profile.steps()) {
      step_ += per_step * static_cast<double>(step.duration_ns());
      samples_ += static_cast<double>(step.samples());
    }
    samples_ /= std::max(1, profile.steps_size());
    Tabulate(profile, by_activity);
  }

  double step() const { return step_; }
  double samples() const { return samples_; }
  const std::vector<Share>& shares() const { return shares_; }
  const std::vector<Row>& operators() const { return operators_; }
  const std::vector<Row>& nodes() const { return nodes_; }

 private:
  void Tabulate(const StepProfile& profile,
                const std::vector<double>& by_activity) {
    std::map<std::string, Row> operators;
    std::map<std::string, Row> nodes;
    std::map<StepProfile::Kind, double> kinds;
    for (int a = 0; a < profile.activities_size(); ++a) {
      const StepProfile::Activity& activity = profile.activities(a);
      kinds[activity.kind()] += by_activity[a];
      if (activity.node().empty()) continue;
      operators[activity.op_type()].Add(activity.kind(), by_activity[a]);
      Row& node = nodes[activity.node()];
      if (node.op_type.empty()) ++operators[activity.op_type()].nodes;
      node.op_type = activity.op_type();
      node.Add(activity.kind(), by_activity[a]);
    }
    operators_ = Sorted(std::move(operators));
    nodes_ = Sorted(std::move(nodes));
    TabulateShares(kinds);
  }

  static std::vector<Row> Sorted(std::map<std::string, Row> rows) {
    std::vector<Row> sorted;
    for (auto& [name, row] : rows) {
      row.name = name;
      sorted.push_back(std::move(row));
    }
    SortBySeconds(&sorted, [](const Row& row) { return row.total(); });
    return sorted;
  }

  void TabulateShares(std::map<StepProfile::Kind, double> kinds) {
    shares_ = {
        {"forward", "operators", kinds[StepProfile::FORWARD]},
        {"backward", "operators", kinds[StepProfile::BACKWARD]},
        {"recomputed", "forward, once more", kinds[StepProfile::RECOMPUTED]},
        {"loss", "and its gradient", kinds[StepProfile::LOSS]},
        {"data", "waiting for the batch", kinds[StepProfile::DATA]},
        {"rows", "of tables: keys, and waiting for rows",
         kinds[StepProfile::ROWS]},
        {"push", "handing over gradients, until the last had left",
         kinds[StepProfile::PUSH]},
        {"wait", "for the ps, which wait for other workers",
         kinds[StepProfile::WAIT]},
        {"pull", "until the next values were here", kinds[StepProfile::PULL]},
    };
    double known = 0;
    for (const Share& share : shares_) known += share.seconds;
    shares_.push_back({"other", "", std::max(0.0, step_ - known)});
    SortBySeconds(&shares_, [](const Share& share) { return share.seconds; });
  }

  double step_ = 0;
  double samples_ = 0;
  std::vector<Share> shares_;
  std::vector<Row> operators_;
  std::vector<Row> nodes_;
};

double Percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

std::string Milliseconds(double seconds) {
  return absl::StrFormat("%.3f ms", 1e3 * seconds);
}

void AppendRows(const std::vector<Row>& rows, size_t most,
                const std::string& title, bool with_nodes, double step,
                std::string* out) {
  absl::StrAppendFormat(out, "\n  %-32s %6s %12s %12s %12s %7s\n", title,
                        with_nodes ? "nodes" : "", "forward", "backward",
                        "recomputed", "share");
  for (size_t i = 0; i < std::min(rows.size(), most); ++i) {
    const Row& row = rows[i];
    absl::StrAppendFormat(
        out, "  %-32s %6s %12s %12s %12s %6.1f%%\n",
        with_nodes ? row.name : absl::StrCat(row.name, " (", row.op_type, ")"),
        with_nodes ? absl::StrCat(row.nodes) : "", Milliseconds(row.forward),
        Milliseconds(row.backward), Milliseconds(row.recomputed),
        Percent(row.total(), step));
  }
}

void SetNumber(Struct* object, const std::string& key, double value) {
  (*object->mutable_fields())[key].set_number_value(value);
}

void SetRows(const std::vector<Row>& rows, const std::string& key,
             Struct* object) {
  ListValue* const list = (*object->mutable_fields())[key].mutable_list_value();
  for (const Row& row : rows) {
    Struct* const entry = list->add_values()->mutable_struct_value();
    SetField(entry, "name", row.name);
    if (row.nodes > 0) SetNumber(entry, "nodes", row.nodes);
    if (!row.op_type.empty()) SetField(entry, "op_type", row.op_type);
    SetNumber(entry, "forward_seconds", row.forward);
    SetNumber(entry, "backward_seconds", row.backward);
    SetNumber(entry, "recomputed_seconds", row.recomputed);
  }
}

// "name": ..., "cat": ... of a trace's event.
std::string TraceLabels(const StepProfile::Activity& activity) {
  const std::string kind =
      absl::AsciiStrToLower(StepProfile::Kind_Name(activity.kind()));
  google::protobuf::Value name;
  name.set_string_value(activity.node().empty() ? kind : activity.node());
  google::protobuf::Value category;
  category.set_string_value(activity.op_type().empty()
                                ? kind
                                : absl::StrCat(activity.op_type(), ",", kind));
  return absl::StrCat("\"name\":", ToJson(name), ",\"cat\":", ToJson(category));
}

// One complete event; times in microseconds.
void AppendEvent(const std::string& labels, int row, uint64_t begin_ns,
                 uint64_t duration_ns, std::string* out) {
  absl::StrAppendFormat(
      out, "{%s,\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f},\n",
      labels, row, 1e-3 * static_cast<double>(begin_ns),
      1e-3 * static_cast<double>(duration_ns));
}

}  // namespace

bool IsWellFormed(const StepProfile& profile) {
  const int intervals = profile.interval_activity_size();
  return profile.steps_size() > 0 &&
         profile.interval_begin_ns_size() == intervals &&
         profile.interval_duration_ns_size() == intervals &&
         std::all_of(profile.interval_activity().begin(),
                     profile.interval_activity().end(), [&](uint32_t activity) {
                       return activity <
                              static_cast<uint32_t>(profile.activities_size());
                     });
}

std::string ProfileText(const StepProfile& profile) {
  const Summary summary(profile);
  std::string out = absl::StrFormat(
      "Job %s, %s (rank %d): %s from clock %d, %s a step", profile.job_id(),
      profile.task(), profile.rank(),
      FormatAmount(static_cast<uint64_t>(profile.steps_size()), "step"),
      profile.steps(0).clock(), Milliseconds(summary.step()));
  if (summary.step() > 0) {
    absl::StrAppend(
        &out, ", ",
        FormatCount(static_cast<uint64_t>(summary.samples() / summary.step())),
        " samples/s");
  }
  absl::StrAppend(&out, "\n\n");
  for (const Share& share : summary.shares()) {
    if (share.seconds == 0) continue;
    absl::StrAppendFormat(&out, "  %-12s %12s %6.1f%%%s%s\n", share.name,
                          Milliseconds(share.seconds),
                          Percent(share.seconds, summary.step()),
                          share.about.empty() ? "" : "  ", share.about);
  }
  AppendRows(summary.operators(), summary.operators().size(), "operator", true,
             summary.step(), &out);
  AppendRows(summary.nodes(), kNodesShown, "slowest nodes", false,
             summary.step(), &out);
  if (profile.truncated()) {
    absl::StrAppend(&out,
                    "\nThere was too much to record: the last steps are "
                    "incomplete.\n");
  }
  return out;
}

Struct ProfileJson(const StepProfile& profile) {
  const Summary summary(profile);
  Struct object;
  SetField(&object, "job_id", profile.job_id());
  SetField(&object, "task", profile.task());
  SetNumber(&object, "threads", profile.threads());
  SetNumber(&object, "steps", profile.steps_size());
  SetNumber(&object, "first_clock",
            static_cast<double>(profile.steps(0).clock()));
  SetNumber(&object, "step_seconds", summary.step());
  SetNumber(&object, "samples", summary.samples());
  SetFlag(&object, "truncated", profile.truncated());
  Struct* const shares =
      (*object.mutable_fields())["seconds"].mutable_struct_value();
  for (const Share& share : summary.shares()) {
    SetNumber(shares, share.name, share.seconds);
  }
  SetRows(summary.operators(), "operators", &object);
  SetRows(summary.nodes(), "nodes", &object);
  return object;
}

std::string ChromeTrace(const StepProfile& profile) {
  constexpr int kSteps = 0;
  constexpr int kWork = 1;
  std::vector<std::string> labels;
  for (const StepProfile::Activity& activity : profile.activities()) {
    labels.push_back(TraceLabels(activity));
  }
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (const StepProfile::Step& step : profile.steps()) {
    AppendEvent(
        absl::StrCat("\"name\":\"clock ", step.clock(), "\",\"cat\":\"step\""),
        kSteps, step.begin_ns(), step.duration_ns(), &out);
  }
  for (int i = 0; i < profile.interval_activity_size(); ++i) {
    AppendEvent(labels[profile.interval_activity(i)], kWork,
                profile.interval_begin_ns(i), profile.interval_duration_ns(i),
                &out);
  }
  google::protobuf::Value process;
  process.set_string_value(
      absl::StrCat("job ", profile.job_id(), ", ", profile.task()));
  absl::StrAppend(&out,
                  "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,"
                  "\"args\":{\"name\":",
                  ToJson(process), "}}\n]}\n");
  return out;
}

}  // namespace syncline::ctl

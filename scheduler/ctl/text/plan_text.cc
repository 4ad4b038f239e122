#include "scheduler/ctl/text/plan_text.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "common/job/job_spec_validator.h"
#include "common/job/local_rules.h"
#include "common/job/strategy_rules.h"
#include "common/job/worker_groups.h"
#include "scheduler/ctl/text/job_text.h"
#include "scheduler/ctl/text/weights_text.h"

namespace syncline::ctl {
namespace {

using google::protobuf::ListValue;
using google::protobuf::Struct;

// One line of what a process takes.
struct Line {
  absl::string_view name;  // in JSON with _ for blanks
  int64_t bytes;
};

// Of the host; of a worker with a GPU, LinesOfGpu has the rest.
std::vector<Line> LinesOf(const WorkerPlan& worker) {
  const ExecutorPlan& executor = worker.executor;
  const bool is_host = executor.device.empty();
  std::vector<Line> lines = {
      {"parameters", executor.parameter_bytes},
      {"gradients", executor.gradient_bytes},
      {"training arena", is_host ? executor.training_arena_bytes : 0},
      {"evaluation arena", is_host ? executor.evaluation_arena_bytes : 0},
      {"table rows", worker.row_bytes},
      {"batches", worker.batch_bytes},
      {"messages", worker.message_bytes}};
  if (worker.residual_bytes > 0) {
    lines.push_back({"compression", worker.residual_bytes});
  }
  if (worker.round_bytes > 0) {
    lines.insert(lines.end(), {{"round values", worker.round_bytes},
                               {"optimizer state", worker.slot_bytes}});
  }
  if (worker.late_bytes > 0) {
    lines.push_back({"late values", worker.late_bytes});
  }
  if (worker.updated_bytes > 0) {
    lines.insert(lines.end(), {{"updated values", worker.updated_bytes},
                               {"optimizer state", worker.slot_bytes},
                               {"waiting gradients", worker.waiting_bytes},
                               {"checkpoint copies", worker.copy_bytes}});
  }
  if (worker.whole_bytes > 0) {
    lines.push_back({"whole values", worker.whole_bytes});
  }
  lines.push_back({"total", worker.memory_bytes()});
  return lines;
}

std::vector<Line> LinesOfGpu(const ExecutorPlan& executor) {
  std::vector<Line> lines = {
      {"parameters", executor.parameter_bytes},
      {"gradients", executor.gradient_bytes},
      {"training arena", executor.training_arena_bytes},
      {"evaluation arena", executor.evaluation_arena_bytes},
      {"inputs", executor.staged_bytes}};
  if (executor.local_bytes > 0) {
    lines.push_back({"local steps", executor.local_bytes});
  }
  if (executor.update_bytes > 0) {
    lines.push_back({"updates", executor.update_bytes});
  }
  lines.push_back({"total", executor.device_bytes()});
  return lines;
}

std::vector<Line> LinesOf(const PsPlan& ps) {
  return {{"parameters", ps.value_bytes},
          {"optimizer state", ps.slot_bytes},
          {"waiting gradients", ps.waiting_bytes},
          {"messages", ps.message_bytes},
          {"checkpoint copies", ps.copy_bytes},
          {"total", ps.memory_bytes()}};
}

absl::string_view Explain(absl::string_view name) {
  static constexpr struct {
    absl::string_view name, about;
  } kAbout[] = {
      {"training arena", "activations and workspaces; others lie in gradients"},
      {"evaluation arena", "in the same memory"},
      {"inputs", "batches, rows of tables, constants of the model"},
      {"table rows", "of the batches, and those that are kept"},
      {"batches", "read ahead; the data set itself is not in it"},
      {"messages", "on their way, at most"},
      {"compression", "residuals, and one compressed gradient"},
      {"local steps", "what a round begins with, and the optimizer's state"},
      {"updates", "values and the optimizer's state"},
      {"round values", "that a round of local steps begins with"},
      {"updated values", "of the rank's own blocks, or of all"},
      {"waiting gradients", "of other workers, and sums, at most"},
      {"checkpoint copies", "of blocks pushed before they are written"},
      {"whole values", "at the start, and at the chief to evaluate and export"},
  };
  for (const auto& entry : kAbout) {
    if (entry.name == name) return entry.about;
  }
  return "";
}

std::string Bytes(int64_t bytes) {
  return FormatBytes(static_cast<uint64_t>(bytes));
}

// Declared rows may be any number: what does not fit is the largest that does.
uint64_t Product(int64_t a, int64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product)
             ? std::numeric_limits<uint64_t>::max()
             : product;
}

// "1.23 GFLOP".
std::string Flops(double flops) {
  static constexpr absl::string_view kUnits[] = {"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  while (flops >= 1000 && unit + 1 < std::size(kUnits)) {
    flops /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.*f %sFLOP", unit == 0 ? 0 : 2, flops, kUnits[unit]);
}

void AppendHeading(const PlanReport& report, std::string* out) {
  const TrainingSpec& training = report.spec.training();
  absl::StrAppend(
      out, "Job ", report.spec.name(), ": ",
      FormatAmount(report.spec.resources().workers(), "worker"), ", ",
      IsWithoutPs(report.spec)
          ? absl::StrCat(Strategy_Name(report.spec.strategy()),
                         report.spec.resources().ps() == 0
                             ? " without ps"
                             : absl::StrCat(", ", report.spec.resources().ps(),
                                            " ps reserved"))
          : absl::StrCat(
                report.spec.resources().ps(), " ps",
                ReducesAmongWorkers(report.spec) ? " for rows of tables" : ""),
      ", batch ", training.batch_size());
  if (training.micro_batches() > 1) {
    absl::StrAppend(out, " in ", training.micro_batches(), " parts");
  }
  if (IsLocal(report.spec)) {
    absl::StrAppend(out, ", rounds of ", StepsOfClock(report.spec), " steps");
  }
  if (HasGroups(report.spec)) {
    const GroupSpec& groups = report.spec.groups();
    absl::StrAppend(out, groups.by_host()
                             ? ", a group on each host"
                             : absl::StrCat(", groups of ", groups.size()));
  }
  if (!report.plan.worker.executor.device.empty()) {
    absl::StrAppend(out, ", on GPUs");
  }
  if (training.recompute_segments() > 1) {
    absl::StrAppend(out, ", ", training.recompute_segments(),
                    " segments recomputed");
  }
  if (const auto precision = report.spec.precision();
      precision != PRECISION_UNSPECIFIED && precision != FLOAT32) {
    absl::StrAppend(out, ", precision ", Precision_Name(precision));
  }
  absl::StrAppend(out, "\n",
                  FormatCount(static_cast<uint64_t>(
                      report.plan.worker.executor.parameters)),
                  " parameters\n", WeightsText(report.training));
}

// `plain` may be empty: no second column.
void AppendLines(const std::vector<Line>& lines, const std::vector<Line>& plain,
                 std::string* out) {
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool nothing =
        lines[i].bytes == 0 && (plain.empty() || plain[i].bytes == 0);
    if (nothing) continue;
    absl::StrAppendFormat(out, "  %-18s %12s", std::string(lines[i].name),
                          Bytes(lines[i].bytes));
    if (!plain.empty()) {
      absl::StrAppendFormat(out, " %14s", Bytes(plain[i].bytes));
    }
    const std::string about(Explain(lines[i].name));
    if (!about.empty()) absl::StrAppend(out, "  ", about);
    absl::StrAppend(out, "\n");
  }
}

void AppendGpu(const ExecutorPlan& executor, const ExecutorPlan* plain,
               std::string* out) {
  if (executor.device.empty()) return;
  absl::StrAppend(out, "\nIts GPU, besides CUDA's own some 0.5 GiB\n");
  AppendLines(LinesOfGpu(executor),
              plain == nullptr ? std::vector<Line>() : LinesOfGpu(*plain), out);
}

void AppendLengths(const PlanReport& report, std::string* out) {
  const auto& lengths = report.plan.worker.executor.lengths;
  if (lengths.empty()) return;
  absl::StrAppend(out, "\nBatches by ",
                  report.spec.data().buckets().dimension(),
                  ", in the memory of the longest; all else is of these\n");
  absl::StrAppendFormat(out, "  %12s %14s %14s\n", "length", "training arena",
                        "a step");
  for (const PlannedLength& length : lengths) {
    absl::StrAppendFormat(out, "  %12d %14s %14s\n", length.length,
                          Bytes(length.arena_bytes), Flops(length.flops));
  }
}

// The cost of a smaller reserve of copies: in SYNC one step pushes all blocks.
void AppendStall(const JobSpec& spec, const PsPlan& ps, std::string* out) {
  constexpr double kDiskBytesPerSecond = 1e9;
  if (!spec.has_checkpoint() || !spec.checkpoint().has_copy_bytes()) return;
  const int64_t missing = ps.value_bytes + ps.slot_bytes - ps.copy_bytes;
  if (missing <= 0) return;
  absl::StrAppendFormat(
      out,
      "  checkpoint.copy_bytes is too little for all blocks: at each "
      "checkpoint "
      "pushes\n  wait until %s are written, %.1f s at 1 GB/s\n",
      Bytes(missing), static_cast<double>(missing) / kDiskBytesPerSecond);
}

void AppendPs(const JobSpec& spec, const std::vector<PsPlan>& all,
              std::string* out) {
  if (all.empty()) return;
  const auto most = std::max_element(
      all.begin(), all.end(), [](const PsPlan& a, const PsPlan& b) {
        return a.memory_bytes() < b.memory_bytes();
      });
  absl::StrAppend(out, all.size() == 1 ? "\nThe ps" : "\nThe largest ps",
                  ", without rows of tables, kept or waiting\n");
  AppendLines(LinesOf(*most), {}, out);
  AppendStall(spec, *most, out);
}

void AppendTables(const std::vector<PlannedTable>& tables, std::string* out) {
  if (tables.empty()) return;
  absl::StrAppend(out, "\nTables, over all ps\n");
  for (const PlannedTable& table : tables) {
    absl::StrAppendFormat(out, "  %-18s %12s a row", table.name,
                          Bytes(table.row_bytes));
    if (table.rows > 0) {
      absl::StrAppend(
          out, ", ", FormatCount(static_cast<uint64_t>(table.rows)),
          " rows: ", FormatBytes(Product(table.rows, table.row_bytes)));
    }
    absl::StrAppend(out, "\n");
  }
}

void AppendTensors(const PlanReport& report, std::string* out) {
  absl::StrAppend(out, "\nLargest tensors of a worker\n");
  const auto& tensors = report.plan.worker.executor.tensors;
  for (size_t i = 0; i < std::min(tensors.size(), report.tensors_max); ++i) {
    absl::StrAppendFormat(
        out, "  %12s  %-11s %s%s\n", Bytes(tensors[i].bytes), tensors[i].what,
        tensors[i].name,
        tensors[i].dims.empty()
            ? ""
            : absl::StrCat(" ", DimsToString(tensors[i].dims)));
  }
}

PlannedOperator Total(const ExecutorPlan& plan) {
  PlannedOperator total;
  total.op_type = "total";
  for (const PlannedOperator& op : plan.operators) {
    total.nodes += op.nodes;
    total.forward_flops += op.forward_flops;
    total.backward_flops += op.backward_flops;
    total.recomputed_flops += op.recomputed_flops;
  }
  return total;
}

void AppendOperators(const ExecutorPlan& plan, std::string* out) {
  const PlannedOperator total = Total(plan);
  absl::StrAppend(out, "\nA step of a worker computes\n");
  absl::StrAppendFormat(out, "  %-24s %6s %14s %14s %14s %7s\n", "operator",
                        "nodes", "forward", "backward", "recomputed", "share");
  const auto line = [&](const PlannedOperator& op) {
    absl::StrAppendFormat(
        out, "  %-24s %6d %14s %14s %14s %6.1f%%\n", op.op_type, op.nodes,
        Flops(op.forward_flops), Flops(op.backward_flops),
        Flops(op.recomputed_flops),
        total.flops() > 0 ? 100 * op.flops() / total.flops() : 0);
  };
  for (const PlannedOperator& op : plan.operators) {
    if (op.flops() > 0) line(op);
  }
  line(total);
}

// ---- JSON ----

Struct* AddObject(Struct* object, const std::string& key) {
  return (*object->mutable_fields())[key].mutable_struct_value();
}

ListValue* AddList(Struct* object, const std::string& key) {
  return (*object->mutable_fields())[key].mutable_list_value();
}

void SetNumber(Struct* object, const std::string& key, double value) {
  (*object->mutable_fields())[key].set_number_value(value);
}

void SetText(Struct* object, const std::string& key, const std::string& text) {
  (*object->mutable_fields())[key].set_string_value(text);
}

void SetLines(const std::vector<Line>& lines, Struct* object) {
  for (const Line& line : lines) {
    SetNumber(
        object,
        absl::StrCat(absl::StrReplaceAll(line.name, {{" ", "_"}}), "_bytes"),
        static_cast<double>(line.bytes));
  }
}

void SetOperator(const PlannedOperator& op, Struct* object) {
  SetText(object, "op_type", op.op_type);
  SetNumber(object, "nodes", op.nodes);
  SetNumber(object, "forward_flops", op.forward_flops);
  SetNumber(object, "backward_flops", op.backward_flops);
  SetNumber(object, "recomputed_flops", op.recomputed_flops);
}

void SetPlan(const JobPlan& plan, size_t tensors_max, Struct* object) {
  const ExecutorPlan& executor = plan.worker.executor;
  SetNumber(object, "parameters", static_cast<double>(executor.parameters));
  SetLines(LinesOf(plan.worker), AddObject(object, "worker"));
  if (!executor.device.empty()) {
    SetLines(LinesOfGpu(executor), AddObject(object, "worker_gpu"));
  }
  if (plan.evaluator) {
    SetLines(LinesOf(*plan.evaluator), AddObject(object, "evaluator"));
    if (!plan.evaluator->executor.device.empty()) {
      SetLines(LinesOfGpu(plan.evaluator->executor),
               AddObject(object, "evaluator_gpu"));
    }
  }
  ListValue* const lengths = AddList(object, "lengths");
  for (const PlannedLength& length : executor.lengths) {
    Struct* const entry = lengths->add_values()->mutable_struct_value();
    SetNumber(entry, "length", static_cast<double>(length.length));
    SetNumber(entry, "training_arena_bytes",
              static_cast<double>(length.arena_bytes));
    SetNumber(entry, "step_flops", length.flops);
  }
  ListValue* const ps = AddList(object, "ps");
  for (const PsPlan& shard : plan.ps) {
    SetLines(LinesOf(shard), ps->add_values()->mutable_struct_value());
  }
  ListValue* const tables = AddList(object, "tables");
  for (const PlannedTable& table : plan.tables) {
    Struct* const entry = tables->add_values()->mutable_struct_value();
    SetText(entry, "name", table.name);
    SetNumber(entry, "dim", static_cast<double>(table.dim));
    SetNumber(entry, "rows", static_cast<double>(table.rows));
    SetNumber(entry, "row_bytes", static_cast<double>(table.row_bytes));
  }
  ListValue* const tensors = AddList(object, "tensors");
  for (size_t i = 0; i < std::min(executor.tensors.size(), tensors_max); ++i) {
    const PlannedTensor& tensor = executor.tensors[i];
    Struct* const entry = tensors->add_values()->mutable_struct_value();
    SetText(entry, "name", tensor.name);
    SetText(entry, "what", tensor.what);
    SetNumber(entry, "bytes", static_cast<double>(tensor.bytes));
    ListValue* const dims = AddList(entry, "dims");
    for (const int64_t d : tensor.dims) {
      dims->add_values()->set_number_value(static_cast<double>(d));
    }
  }
  ListValue* const operators = AddList(object, "operators");
  for (const PlannedOperator& op : executor.operators) {
    SetOperator(op, operators->add_values()->mutable_struct_value());
  }
  SetOperator(Total(executor), AddObject(object, "step"));
}

}  // namespace

std::string PlanText(const PlanReport& report) {
  std::string out;
  AppendHeading(report, &out);
  for (const std::string& note : report.notes) {
    absl::StrAppend(
        &out, absl::StartsWith(note, "warning: ") ? "" : "note: ", note, "\n");
  }
  std::vector<Line> plain;
  if (report.plain) plain = LinesOf(report.plain->worker);
  absl::StrAppend(&out, "\nThe chief");
  if (!plain.empty()) absl::StrAppendFormat(&out, "%38s", "all at once");
  absl::StrAppend(&out, "\n");
  AppendLines(LinesOf(report.plan.worker), plain, &out);
  AppendGpu(report.plan.worker.executor,
            report.plain ? &report.plain->worker.executor : nullptr, &out);
  if (report.plan.evaluator) {
    absl::StrAppend(&out, "\nAn evaluator, if the cluster has one\n");
    AppendLines(LinesOf(*report.plan.evaluator), {}, &out);
    AppendGpu(report.plan.evaluator->executor, nullptr, &out);
  }
  AppendLengths(report, &out);
  AppendPs(report.spec, report.plan.ps, &out);
  AppendTables(report.plan.tables, &out);
  AppendTensors(report, &out);
  AppendOperators(report.plan.worker.executor, &out);
  return out;
}

Struct PlanJson(const PlanReport& report) {
  Struct object;
  const TrainingSpec& training = report.spec.training();
  SetText(&object, "name", report.spec.name());
  SetNumber(&object, "batch_size", training.batch_size());
  SetNumber(&object, "micro_batches", training.micro_batches());
  SetNumber(&object, "recompute_segments", training.recompute_segments());
  if (IsLocal(report.spec)) {
    SetNumber(&object, "local_steps", StepsOfClock(report.spec));
  }
  if (HasGroups(report.spec) && report.spec.groups().by_host()) {
    (*object.mutable_fields())["group_by_host"].set_bool_value(true);
  } else if (HasGroups(report.spec)) {
    SetNumber(&object, "group_size", report.spec.groups().size());
  }
  SetText(&object, "precision",
          Precision_Name(WithDefaults(report.spec).precision()));
  SetWeights(report.training, &object);
  if (!report.notes.empty()) {
    SetText(&object, "note", absl::StrJoin(report.notes, "; "));
  }
  SetPlan(report.plan, report.tensors_max, &object);
  if (report.plain) {
    SetPlan(*report.plain, report.tensors_max, AddObject(&object, "plain"));
  }
  return object;
}

}  // namespace syncline::ctl

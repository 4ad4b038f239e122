#include "common/model/training_tables.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/job/data_spec_validator.h"
#include "common/job/job_spec_fields.h"
#include "common/model/graph/describe.h"
#include "common/model/graph/graph.h"
#include "common/model/graph/value_index.h"

namespace syncline {
namespace {

constexpr int64_t kTableDimMax = 65'536;

class TableResolver {
 public:
  TableResolver(const std::string& path, const TableSpec& spec,
                const Graph& graph, const ValueIndex& index,
                absl::Span<const ValueId> feeds,
                std::vector<std::string>* problems)
      : path_(path),
        spec_(spec),
        graph_(graph),
        index_(index),
        feeds_(feeds),
        problems_(problems) {}

  TrainingTable Resolve() {
    table_.name = spec_.name();
    const ValueId id = index_.Find(spec_.name());
    if (id == kNoValue || graph_.values[id].initializer < 0) {
      Problem(".name",
              "is not a float32 initializer of the model, nor a graph "
              "input of shape [rows, dim]");
      return table_;
    }
    const Value& value = graph_.values[id];
    if (!HasTableShape(value)) return table_;
    table_.value = id;
    table_.initializer = value.initializer;
    table_.rows = value.dims[0];
    table_.dim = static_cast<uint32_t>(value.dims[1]);
    FindReaders();
    CheckBudget();
    return table_;
  }

 private:
  template <typename... Parts>
  void Problem(absl::string_view field, const Parts&... parts) {
    problems_->push_back(
        absl::StrCat(path_, field, ": ", Quote(spec_.name()), " ", parts...));
  }
  bool HasTableShape(const Value& value) {
    if (value.dtype != DType::kFloat32 || value.dims.size() != 2) {
      Problem(".name", "is ", DescribeTensor(value.dtype, value.dims),
              ", but a table is float32[rows,dim]");
      return false;
    }
    if (value.dims[1] < 1 || value.dims[1] > kTableDimMax) {
      Problem(".name", "has rows of ", value.dims[1], " elements, outside 1..",
              kTableDimMax);
      return false;
    }
    return true;
  }

  void FindReaders() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (absl::c_count(node.inputs, table_.value) == 0) continue;
      int feed = -1;
      if (CheckReader(node, &feed)) {
        table_.lookups.push_back({static_cast<int>(n), feed});
      }
    }
    if (absl::c_linear_search(graph_.outputs, table_.value)) {
      Problem(".name",
              "is a graph output, but a table is never in a worker's "
              "memory as a whole");
    }
    const bool read = absl::c_any_of(graph_.nodes, [&](const Node& node) {
      return absl::c_linear_search(node.inputs, table_.value);
    });
    if (!read) Problem(".name", "is read by no Gather");
  }

  // The feed that `id` is, perhaps under another shape; -1: none.
  int FeedOf(ValueId id) const {
    constexpr absl::string_view kViews[] = {"Flatten", "Identity", "Reshape",
                                            "Squeeze", "Unsqueeze"};
    while (id != kNoValue && graph_.values[id].producer >= 0) {
      const Node& node = graph_.nodes[graph_.values[id].producer];
      if (!absl::c_linear_search(kViews, node.op_type)) return -1;
      id = node.inputs[0];
    }
    const auto fed = absl::c_find(feeds_, id);
    return id == kNoValue || fed == feeds_.end()
               ? -1
               : static_cast<int>(fed - feeds_.begin());
  }

  bool CheckReader(const Node& node, int* feed) {
    if (node.op_type != "Gather" || node.inputs[0] != table_.value) {
      Problem(".name", "is read by ", node.name, " (", node.op_type,
              "), but only Gather may read a table");
      return false;
    }
    if (node.Int("axis", 0) != 0 && node.Int("axis", 0) != -2) {
      Problem(".name", "is read by ", node.name, " along axis ",
              node.Int("axis", 0), ", but the rows of a table are axis 0");
      return false;
    }
    const ValueId indices = node.inputs[1];
    *feed = FeedOf(indices);
    if (graph_.values[indices].dtype != DType::kInt64 || *feed < 0) {
      Problem(".name", "is read by ", node.name, " with indices ",
              Quote(graph_.values[indices].name),
              ", which are not an int64 graph input that data.feeds feeds");
      return false;
    }
    return true;
  }

  void CheckBudget() {
    const uint64_t row = TableRowBytes(spec_.optimizer().kind(), table_.dim);
    const uint64_t bytes = spec_.memory_bytes();
    if (bytes == 0 || bytes - spec_.admission().filter_bytes() >= row) return;
    Problem(".memory_bytes", "has rows of ", row, " bytes with optimizer ",
            "state, but only ", bytes - spec_.admission().filter_bytes(),
            " bytes for them");
  }

  const std::string path_;
  const TableSpec& spec_;
  const Graph& graph_;
  const ValueIndex& index_;
  const absl::Span<const ValueId> feeds_;
  std::vector<std::string>* const problems_;
  TrainingTable table_;
};

}  // namespace

std::vector<TrainingTable> ResolveTables(const JobSpec& spec,
                                         const Graph& graph,
                                         absl::Span<const ValueId> feeds,
                                         std::vector<std::string>* problems) {
  std::vector<TrainingTable> tables;
  if (spec.tables().empty()) return tables;
  const ValueIndex index(graph);
  for (int i = 0; i < spec.tables_size(); ++i) {
    tables.push_back(TableResolver(absl::StrCat("tables[", i, "]"),
                                   spec.tables(i), graph, index, feeds,
                                   problems)
                         .Resolve());
  }
  return tables;
}

std::vector<std::string> DescribePaddingRows(
    const JobSpec& spec, const Graph& graph, absl::Span<const ValueId> feeds,
    absl::Span<const TrainingTable> tables) {
  std::vector<std::string> lines;
  for (const TrainingTable& table : tables) {
    for (const TrainingTable::Lookup& lookup : table.lookups) {
      const Feed& feed = spec.data().feeds(lookup.feed);
      const int64_t padding = feed.padding();
      const Dims& dims =
          graph.values[feeds[static_cast<size_t>(lookup.feed)]].dims;
      const bool is_one_id = absl::c_all_of(
          absl::MakeSpan(dims).subspan(std::min<size_t>(1, dims.size())),
          [](int64_t dim) { return dim == 1; });
      const bool is_row = padding >= 0 && padding < table.rows;
      if (table.rows == 0 || is_row || is_one_id ||
          !IsListField(spec.data().train(), feed.field())) {
        continue;
      }
      const std::string what =
          padding < 0 && padding >= -table.rows
              ? absl::StrCat("takes it for row ", table.rows + padding, " of ",
                             table.rows,
                             ", so whoever pads batches for that model with it "
                             "gets other scores")
              : absl::StrCat("has ", table.rows,
                             " rows, and fails on batches that are padded "
                             "with it");
      lines.push_back(absl::StrCat(
          "data.feeds[", lookup.feed, "].padding: ", padding,
          " stands for no row of table ", Quote(table.name),
          " in this job; Gather, in the exported model, ", what,
          ". A number from 0 on that is no id, as 0 with ids from 1, is "
          "exported as a row of zeros"));
    }
  }
  return lines;
}

uint64_t TableRowBytes(OptimizerSpec::Kind optimizer, uint32_t dim) {
  const TableOptimizer* const found = FindTableOptimizer(optimizer);
  const TableOptimizer state = found != nullptr ? *found : TableOptimizer();
  return sizeof(int64_t) +
         sizeof(float) *
             (uint64_t{dim} * (1 + state.value_floats) + state.row_floats);
}

}  // namespace syncline

#include "common/model/zoo/click_features.h"

#include "absl/strings/str_cat.h"

namespace syncline {
namespace {

constexpr int64_t kTableBytesMax = int64_t{1} << 30;
constexpr float kDeviation = 0.01f;

}  // namespace

ClickFeatures::ClickFeatures(ZooSettings* settings)
    : dense_(settings->Int("dense", 13, 1, 65536)),
      categories_(settings->Int("categories", 26, 1, 4096)),
      rows_(settings->Int("rows", 0, 0, int64_t{1} << 32)),
      shared_(settings->Choice("tables", {"shared", "each"}) == "shared") {}

void ClickFeatures::CheckSize(int64_t row_floats, ZooSettings* settings) const {
  const int64_t row_bytes =
      row_floats * (shared_ ? 1 : categories_) * int64_t{sizeof(float)};
  if (rows_ <= kTableBytesMax / row_bytes) return;
  settings->Problem(absl::StrCat(
      "rows: ", rows_, " make tables of more than ", kTableBytesMax >> 20,
      " MiB, too many for a model file; 0 leaves them to the job's tables"));
}

void ClickFeatures::WriteInputs(GraphWriter* graph) {
  dense_input_ = graph->Input("dense", {dense_});
  if (shared_) {
    id_inputs_ = {graph->Input("categories", {categories_}, DType::kInt64)};
    return;
  }
  for (int64_t i = 1; i <= categories_; ++i) {
    id_inputs_.push_back(
        graph->Input(absl::StrCat("category", i), {1}, DType::kInt64));
  }
}

std::string ClickFeatures::Table(const std::string& name, int64_t dim,
                                 GraphWriter* graph) {
  return rows_ == 0 ? graph->OpenTable(name, dim)
                    : graph->Normal(name, {rows_, dim}, kDeviation);
}

std::string ClickFeatures::Rows(absl::string_view name, int64_t dim,
                                GraphWriter* graph) {
  const std::string all = absl::StrCat(name, ".rows");
  if (shared_) {
    return graph->Node(all, "Gather",
                       {Table(std::string(name), dim, graph), id_inputs_[0]});
  }
  std::vector<std::string> rows;
  for (size_t i = 0; i < id_inputs_.size(); ++i) {
    const std::string table = absl::StrCat(name, i + 1);
    rows.push_back(graph->Node(table + ".row", "Gather",
                               {Table(table, dim, graph), id_inputs_[i]}));
  }
  return graph->Node(all, "Concat", rows, {{"axis", int64_t{1}}});
}

std::string SumOfRows(absl::string_view name, const std::string& rows,
                      GraphWriter* graph) {
  return graph->Node(name, "ReduceSum",
                     {rows, graph->Integers(absl::StrCat(name, ".axis"), {1})},
                     {{"keepdims", int64_t{0}}});
}

}  // namespace syncline

#ifndef SYNCLINE_COMMON_MODEL_ZOO_CLICK_FEATURES_H_
#define SYNCLINE_COMMON_MODEL_ZOO_CLICK_FEATURES_H_

// The inputs of click-through models. Internal to this folder.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/model/zoo/graph_writer.h"
#include "common/model/zoo/zoo_settings.h"

namespace syncline {

// Numbers `dense` float32 [N, dense], and categories with their embeddings. By
// the setting `tables` categories are
//   shared  one input `categories` int64 [N, categories], and one table for all
//   each    inputs `category1` ... int64 [N, 1], and a table for each
// `rows` is a table's number of rows; 0 leaves it open, to a job that declares
// the table. Thread-compatible.
class ClickFeatures {
 public:
  // Asks for the settings. `dims` are of a row in each of the model's tables.
  explicit ClickFeatures(ZooSettings* settings);
  // A problem where the tables' values, in rows of `row_floats` together, do
  // not fit into a model file.
  void CheckSize(int64_t row_floats, ZooSettings* settings) const;

  void WriteInputs(GraphWriter* graph);

  int64_t dense() const { return dense_; }
  int64_t categories() const { return categories_; }
  const std::string& dense_input() const { return dense_input_; }
  // [N, categories, dim] of the table NAME, or of tables NAME1, NAME2 ...
  std::string Rows(absl::string_view name, int64_t dim, GraphWriter* graph);

 private:
  std::string Table(const std::string& name, int64_t dim, GraphWriter* graph);

  int64_t dense_, categories_, rows_;
  bool shared_;
  std::string dense_input_;
  std::vector<std::string> id_inputs_;
};

// [N, n, dim], summed over n: [N, dim].
std::string SumOfRows(absl::string_view name, const std::string& rows,
                      GraphWriter* graph);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_ZOO_CLICK_FEATURES_H_

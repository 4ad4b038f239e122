#ifndef SYNCLINE_COMMON_MODEL_TRAINING_TABLES_H_
#define SYNCLINE_COMMON_MODEL_TRAINING_TABLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/model/graph/node.h"
#include "proto/job_spec.pb.h"

namespace syncline {

struct Graph;

// How one embedding table of a job lies over the model.
struct TrainingTable {
  // A Gather that reads it.
  struct Lookup {
    int node = -1;  // index into Graph::nodes
    int feed = -1;  // whose ids it is given: DataSpec.feeds index
  };
  std::string name;
  ValueId value = kNoValue;  // kNoValue: not resolved
  int initializer = -1;      // index into Graph::initializers
  int64_t rows = 0;          // 0: open
  uint32_t dim = 0;
  std::vector<Lookup> lookups;  // nodes ascend
};

// Finds each table of `spec` in the graph: a float32 initializer, of the file
// or declared, of shape [rows, dim], dim 1 to 65,536, that nothing but Gather
// along axis 0 reads, with indices that are an int64 graph input among `feeds`,
// as it is or under another shape; no graph output. Appends one "field:
// problem" per problem and returns one entry per table, in the order of the
// spec.
std::vector<TrainingTable> ResolveTables(const JobSpec& spec,
                                         const Graph& graph,
                                         absl::Span<const ValueId> feeds,
                                         std::vector<std::string>* problems);

// Warnings, a line each: of tables with a known number of rows the paddings of
// ids that count from the table's end in the exported model. `tables` are those
// of ResolveTables.
std::vector<std::string> DescribePaddingRows(
    const JobSpec& spec, const Graph& graph, absl::Span<const ValueId> feeds,
    absl::Span<const TrainingTable> tables);

// Bytes of a row with its key and optimizer state, bookkeeping aside. An
// optimizer that is not for tables, which validation refuses, counts as SGD.
uint64_t TableRowBytes(OptimizerSpec::Kind optimizer, uint32_t dim);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_TRAINING_TABLES_H_

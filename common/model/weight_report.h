#ifndef SYNCLINE_COMMON_MODEL_WEIGHT_REPORT_H_
#define SYNCLINE_COMMON_MODEL_WEIGHT_REPORT_H_

// A report on the tensors that a job trains, those that it does not, and the
// reasons. It is written before the job runs.

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/training_graph.h"

namespace syncline {

// Initializers that have one reason in common.
struct WeightGroup {
  bool trained = false;
  std::string why;  // "the file calls them BUFFER"
  int64_t count = 0;
  int64_t numbers = 0;  // in all of them
  std::vector<std::string> names;
};

// Trained ones first. Rows of tables are in none.
std::vector<WeightGroup> GroupWeights(const TrainingGraph& training);

// The first names of a group, quoted, for people: "'a', 'b', ...".
std::string NamesText(const WeightGroup& group);

// One line for each group: "trained        12 (34567 numbers): ...". Names are
// left out where the reason is beyond doubt.
std::vector<std::string> DescribeWeights(const TrainingGraph& training);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_WEIGHT_REPORT_H_

#ifndef SYNCLINE_COMMON_JOB_AUC_H_
#define SYNCLINE_COMMON_JOB_AUC_H_

#include <optional>
#include <vector>

namespace syncline {

// Area under the ROC curve: the probability that a positive scores above a
// negative, ties counted half. Exact: pairs are counted in integers. Absent if
// either is empty. Scores are not NaN. Costs two sorts.
// Source: Hanley and McNeil, Radiology 143, 1982.
std::optional<double> Auc(std::vector<float> positive,
                          std::vector<float> negative);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_AUC_H_

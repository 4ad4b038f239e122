#ifndef SYNCLINE_WORKER_DATA_LABEL_MAP_H_
#define SYNCLINE_WORKER_DATA_LABEL_MAP_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "proto/job_spec.pb.h"

namespace syncline::worker {

// From the values in the data to class numbers (or, for regression, targets).
// Thread-safe.
class LabelMap {
 public:
  // `class_count` is 0 for regression.
  LabelMap(const Label& label, int64_t class_count);

  // InvalidArgument where `value` names none of the classes and is not
  // label.ignore, saying why.
  absl::Status Check(float value) const;
  // kIgnoredLabel of label.ignore. REQUIRES: Check(value) is OK.
  float Map(float value) const;

 private:
  std::vector<float> classes_;  // empty: the value is the class
  int64_t class_count_;
  std::optional<float> ignored_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_LABEL_MAP_H_

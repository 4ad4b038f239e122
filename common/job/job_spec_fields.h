#ifndef SYNCLINE_COMMON_JOB_JOB_SPEC_FIELDS_H_
#define SYNCLINE_COMMON_JOB_JOB_SPEC_FIELDS_H_

// Facts about the fields of a job specification. The code that checks a
// specification, the code that fills its defaults and the code that carries it
// out all use them.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "proto/job_spec.pb.h"

namespace syncline {

template <typename T>
bool IsOneOf(T value, std::initializer_list<T> values) {
  for (T v : values) {
    if (v == value) return true;
  }
  return false;
}

// An optimizer that rows of embedding tables may have, with the floats of
// optimizer state that a row has for each of its values, and for itself.
struct TableOptimizer {
  OptimizerSpec::Kind kind = OptimizerSpec::KIND_UNSPECIFIED;
  uint32_t value_floats = 0;
  uint32_t row_floats = 0;
};
inline constexpr TableOptimizer kTableOptimizers[] = {
    {OptimizerSpec::SGD, 0, 0},
    {OptimizerSpec::ADAGRAD, 1, 0},
    {OptimizerSpec::ROW_WISE_ADAGRAD, 0, 1},
    {OptimizerSpec::ADAM, 2, 1},  // the row's own number of updates
    {OptimizerSpec::FTRL, 2, 0},
};
// Null: `kind` is not for tables.
inline const TableOptimizer* FindTableOptimizer(OptimizerSpec::Kind kind) {
  for (const TableOptimizer& optimizer : kTableOptimizers) {
    if (optimizer.kind == kind) return &optimizer;
  }
  return nullptr;
}

// Which fields a learning-rate schedule reads.
inline bool ReadsWarmup(LearningRateSpec::Schedule schedule) {
  return IsOneOf(schedule, {LearningRateSpec::LINEAR_WARMUP,
                            LearningRateSpec::WARMUP_LINEAR_DECAY,
                            LearningRateSpec::ONE_CYCLE});
}
inline bool ReadsStart(LearningRateSpec::Schedule schedule) {
  return ReadsWarmup(schedule) || schedule == LearningRateSpec::RANGE_TEST;
}
inline bool ReadsFinal(LearningRateSpec::Schedule schedule) {
  return IsOneOf(schedule, {LearningRateSpec::COSINE,
                            LearningRateSpec::WARMUP_LINEAR_DECAY,
                            LearningRateSpec::ONE_CYCLE});
}
inline bool ReadsTotal(LearningRateSpec::Schedule schedule) {
  return ReadsFinal(schedule) || schedule == LearningRateSpec::RANGE_TEST;
}

inline std::string LabelField(const Label& label) {
  return label.field().empty() ? "label" : label.field();
}

// Of a feed's field "tokens#length", which is how many values a sample has in
// the field "tokens" of another feed or of the label, before padding: "tokens".
// Empty: the field is none of these.
inline absl::string_view MeasuredField(absl::string_view field) {
  return absl::ConsumeSuffix(&field, "#length") ? field : absl::string_view();
}

// Of LengthBuckets.lengths; a sample's bucket is a byte.
inline constexpr int kLengthBucketsMax = 64;

// Checks the rules for every field, whatever it means: numbers are finite, enum
// values known, text is UTF-8 without control characters and not too long,
// lists are not too long, and there is no field that this version does not
// know. Appends one "field.path: problem" each.
void CheckFieldValues(const google::protobuf::Message& message,
                      std::vector<std::string>* problems);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_JOB_SPEC_FIELDS_H_

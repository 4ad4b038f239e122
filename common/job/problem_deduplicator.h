#ifndef SYNCLINE_COMMON_JOB_PROBLEM_DEDUPLICATOR_H_
#define SYNCLINE_COMMON_JOB_PROBLEM_DEDUPLICATOR_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/job/job_spec_parser.h"
#include "google/protobuf/descriptor.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// Drops the problems of a job ("field.path: what is wrong") that follow from
// one reported before. A problem does if
//   - it is about a reported field, about one inside it or one around it;
//   - it names a reported field, or the list that has it;
//   - it is about a missing field that a reported unknown field resembles.
// A plain value; `spec` must outlive it.
class ProblemDeduplicator {
 public:
  explicit ProblemDeduplicator(const JobSpec& spec) : spec_(spec) {}
  // Takes the problems of reading a job file; `reading` must outlive it. If the
  // file could not be read to its end, problems about what is missing do not
  // count either.
  explicit ProblemDeduplicator(const JobReading& reading);

  bool complete() const { return complete_; }

  // The problems that say something new. Their fields are reported from now on.
  // Of very many problems only the first are looked at; the last line says how
  // many there are besides.
  std::vector<std::string> KeepNew(const std::vector<std::string>& problems);

 private:
  bool IsConsequence(absl::string_view problem) const;
  bool Explains(const std::string& reported, absl::string_view path) const;

  const JobSpec& spec_;
  bool complete_ = true;
  std::vector<std::string> paths_;
};

// The field of `message` that an unknown `name` probably means: that it is a
// misspelling of, or has half of its words in common with. Null: none.
const google::protobuf::FieldDescriptor* FindResembling(
    const google::protobuf::Descriptor& message, absl::string_view name);

// protobuf's complaint about the value of `field`, and if that is an
// enumeration, its values. Null: as it is.
std::string WithAcceptedValues(absl::string_view message,
                               const google::protobuf::FieldDescriptor* field);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_PROBLEM_DEDUPLICATOR_H_

#ifndef SYNCLINE_COMMON_JOB_NAME_RULE_H_
#define SYNCLINE_COMMON_JOB_NAME_RULE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/repeated_field.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// OK if the rule says a name for every name that its pattern matches. Errors:
// InvalidArgument, in words for the field.
absl::Status CheckNameRule(const NameRule& rule);

// The name that the rule makes of `name`; none: its pattern does not match.
// Where the text behind several "*" could be divided in several ways, each "*"
// but the last stands for as little as it can. REQUIRES: CheckNameRule.
std::optional<std::string> ApplyNameRule(const NameRule& rule,
                                         absl::string_view name);

// The same of the first rule that matches; `name` itself where none does.
// Empty: the tensor is left out.
std::string RenamedTensor(
    const google::protobuf::RepeatedPtrField<NameRule>& rules,
    absl::string_view name);

// "old.*=new.*", as `synctl submit --rename` takes it. Errors: InvalidArgument.
absl::StatusOr<NameRule> ParseNameRule(absl::string_view text);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_NAME_RULE_H_

#include "worker/data/reading/sample_table.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace syncline::worker {

void SampleTable::ReadInts(int field, absl::Span<const int64_t> samples,
                           int64_t* out) const {
  SYNCLINE_CHECK(false);  // its loader refuses integers
}

absl::Status NoSuchField(const FieldRequest& field, absl::string_view source,
                         absl::string_view fields) {
  return absl::InvalidArgumentError(
      absl::StrCat("no field \"", field.name, "\"; ", source, " has ", fields));
}

absl::Status NotIntegers(const FieldRequest& field, absl::string_view source) {
  return absl::InvalidArgumentError(
      absl::StrCat("field \"", field.name, "\" of ", source,
                   " cannot feed an int64 input: its values are not integers"));
}

}  // namespace syncline::worker

// Goal: no job file, whatever its bytes, crashes a process that reads it.
// Method: read as far as possible, and check what was read; what parses as a
// whole is validated; what is valid must stay valid and unchanged when its
// defaults are written out twice.

#include <cstdint>

#include "common/base/check.h"
#include "common/job/job_spec_parser.h"
#include "common/job/job_spec_validator.h"
#include "common/job/problem_deduplicator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const syncline::JobReading reading = syncline::ReadJobSpec(text, "job");
  syncline::ProblemDeduplicator deduplicator(reading);
  deduplicator.KeepNew(syncline::ValidateJobSpec(reading.spec));
  syncline::WithDefaults(reading.spec);
  const auto spec = syncline::ParseJobSpec(text, "job");
  SYNCLINE_CHECK(spec.ok() == reading.problems.empty());
  if (!spec.ok() || !syncline::ValidateJobSpec(*spec).empty()) return 0;
  const syncline::JobSpec full = syncline::WithDefaults(*spec);
  SYNCLINE_CHECK(syncline::ValidateJobSpec(full).empty());
  SYNCLINE_CHECK(syncline::WithDefaults(full).SerializeAsString() ==
                 full.SerializeAsString());
  return 0;
}

// Goal: no job file, whatever its bytes, crashes a process that reads it.
// Method: parse; what parses is validated; what is valid must stay valid and
// unchanged when its defaults are written out twice.

#include <cstdint>

#include "common/base/check.h"
#include "common/rpc/job_spec_validator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto spec = syncline::ParseJobSpec(
      {reinterpret_cast<const char*>(data), size}, "job");
  if (!spec.ok() || !syncline::ValidateJobSpec(*spec).empty()) return 0;
  const syncline::JobSpec full = syncline::WithDefaults(*spec);
  SYNCLINE_CHECK(syncline::ValidateJobSpec(full).empty());
  SYNCLINE_CHECK(syncline::WithDefaults(full).SerializeAsString() ==
                 full.SerializeAsString());
  return 0;
}

#ifndef SYNCLINE_WORKER_COMPUTE_INITIALIZERS_H_
#define SYNCLINE_WORKER_COMPUTE_INITIALIZERS_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/job_spec.pb.h"
#include "worker/compute/fans.h"

namespace syncline::worker {

// True if the scheme scales by fans.
bool LooksAtFans(InitializerRule::Scheme scheme);

// Fills `values` by `rule`. The values depend on the rule, `fans`, `seed` and
// `name` alone: neither on other parameters nor on the order of calls nor on
// the number of servers. REQUIRES: the rule is valid.
void InitializeParameter(const InitializerRule& rule, const Fans& fans,
                         uint64_t seed, absl::string_view name,
                         absl::Span<float> values);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_INITIALIZERS_H_

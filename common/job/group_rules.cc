#include "common/job/group_rules.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/job/compression_rules.h"
#include "common/job/job_spec_fields.h"
#include "common/job/worker_groups.h"

namespace syncline {
namespace {

using C = ConsistencySpec;

// The fields of `groups`, as far as they can be judged before it is known on
// which hosts the workers are.
void CheckFields(const JobSpec& spec, Problems* problems) {
  const GroupSpec& groups = spec.groups();
  const uint32_t workers = std::max(1u, spec.resources().workers());
  // All on one host.
  const std::vector<std::string> hosts(std::min(workers, 1024u), "host");
  const auto made = WorkerGroups::Of(groups, hosts);
  if (made.ok()) return;
  // "groups.size: why"
  const std::string text(made.status().message());
  const size_t colon = text.find(": ");
  problems->Add(text.substr(0, colon), text.substr(colon + 2));
}

// Fields that a group, one worker to the ps, would have to decide together.
void CheckDecidedTogether(const JobSpec& spec, Problems* problems) {
  if (spec.precision() == FLOAT16) {
    problems->Add("precision",
                  "FLOAT16 does not go with groups yet: each worker has a loss "
                  "scale of its own; use BFLOAT16");
  }
  if (spec.non_finite() == DROP_BLOCK) {
    problems->Add("non_finite",
                  "DROP_BLOCK does not go with groups yet: blocks are dropped "
                  "of the sum of a group, and not of one worker; use SKIP_STEP "
                  "or FAIL_JOB");
  }
  if (spec.training().sync_batch_statistics()) {
    problems->Add("training.sync_batch_statistics",
                  "does not go with groups yet: the ps fold statistics of "
                  "workers, and know groups alone");
  }
  if (spec.has_stop()) {
    problems->Add("stop",
                  "does not go with groups yet: no cut holds the members of "
                  "the chief's group until the evaluation has decided");
  }
}

}  // namespace

void CheckGroups(const JobSpec& spec, Problems* problems) {
  if (!spec.has_groups()) return;
  const size_t before = problems->size();
  CheckFields(spec, problems);
  if (!IsOneOf(spec.strategy(), {STRATEGY_UNSPECIFIED, PARAMETER_SERVER})) {
    problems->Add("groups", "is for strategy PARAMETER_SERVER only: by ",
                  Strategy_Name(spec.strategy()),
                  " workers reduce their gradients among themselves anyway");
  }
  if (problems->size() > before || !HasGroups(spec)) return;
  const C::Mode mode = spec.consistency().mode();
  if (C::Mode_IsValid(mode) &&
      !IsOneOf(mode, {C::MODE_UNSPECIFIED, C::SYNC, C::BOUNDED_STALENESS,
                      C::ASYNC})) {
    problems->Add("consistency.mode", C::Mode_Name(mode),
                  " does not go with groups; use SYNC, BOUNDED_STALENESS or "
                  "ASYNC, which is then among groups");
  }
  if (spec.tables_size() > 0) {
    problems->Add("tables",
                  "do not go with groups yet: rows are pushed by each worker; "
                  "leave out groups, or use HYBRID");
  }
  if (Compresses(spec)) {
    problems->Add("compression",
                  "does not go with groups yet: gradients are compressed where "
                  "they are computed; leave out groups or compression");
  }
  CheckDecidedTogether(spec, problems);
}

}  // namespace syncline

#include "common/job/hybrid_rules.h"

#include "common/job/job_spec_fields.h"

namespace syncline {
namespace {

using C = ConsistencySpec;

constexpr uint32_t kStalenessBoundMax = 1'000'000;  // as consistency's

void CheckTableConsistency(const JobSpec& spec, Problems* problems) {
  if (!spec.has_table_consistency()) return;
  const ConsistencySpec& rows = spec.table_consistency();
  if (!IsOneOf(rows.mode(), {C::MODE_UNSPECIFIED, C::SYNC, C::BOUNDED_STALENESS,
                             C::ASYNC})) {
    NotBuilt("table_consistency.mode", rows.mode(),
             "SYNC, BOUNDED_STALENESS or ASYNC", problems);
    return;  // the other fields are those of that mode
  }
  if (rows.staleness_bound() != 0 && C::Mode_IsValid(rows.mode()) &&
      rows.mode() != C::BOUNDED_STALENESS) {
    problems->Add("table_consistency.staleness_bound",
                  "is for BOUNDED_STALENESS only");
  }
  if (rows.mode() == C::BOUNDED_STALENESS) {
    problems->AtMost("table_consistency.staleness_bound",
                     rows.staleness_bound(), kStalenessBoundMax);
  }
  if (rows.needed() != 0 || rows.timeout_seconds() != 0 ||
      rows.late() != C::LATE_UNSPECIFIED || rows.compensation() != 0) {
    problems->Add("table_consistency",
                  "takes mode and staleness_bound only: rows have neither "
                  "SYNC_WITH_BACKUPS nor SYNC_WITH_TIMEOUT");
  }
}

// Refuses fields that the dense part and the rows would have to decide
// together: each part is reduced elsewhere, and neither knows of the other's.
void CheckDecidedTogether(const JobSpec& spec, Problems* problems) {
  if (spec.optimizer().clip_norm() != 0) {
    problems->Add("optimizer.clip_norm",
                  "is not built for HYBRID: the norm is of dense gradients and "
                  "rows together, and these are reduced in different places; "
                  "use clip_value, or PARAMETER_SERVER");
  }
  if (IsOneOf(spec.non_finite(), {SKIP_STEP, DROP_BLOCK})) {
    problems->Add("non_finite", NonFinitePolicy_Name(spec.non_finite()),
                  " is not built for HYBRID: the dense part and the rows would "
                  "have to leave out the same; use FAIL_JOB, or "
                  "PARAMETER_SERVER");
  }
  if (spec.precision() == FLOAT16) {
    problems->Add("precision",
                  "FLOAT16 is not built for HYBRID: its loss scale skips steps "
                  "of the dense part and the rows together; use BFLOAT16, or "
                  "PARAMETER_SERVER");
  }
  if (spec.optimizer().kind() == OptimizerSpec::LAMB) {
    problems->Add("optimizer.kind",
                  "LAMB is not built for HYBRID yet; use ADAMW, or "
                  "PARAMETER_SERVER");
  }
  if (spec.has_stop()) {
    problems->Add("stop",
                  "is not built for HYBRID yet: no cut holds the dense part "
                  "until the evaluation has decided; use PARAMETER_SERVER");
  }
}

}  // namespace

const ConsistencySpec& RowConsistency(const JobSpec& spec) {
  return spec.has_table_consistency() ? spec.table_consistency()
                                      : spec.consistency();
}

const char* RowConsistencyField(const JobSpec& spec) {
  return spec.has_table_consistency() ? "table_consistency" : "consistency";
}

void CheckTablesApart(const JobSpec& spec, bool apart, Problems* problems) {
  if (!apart) {
    if (spec.has_table_consistency()) {
      problems->Add("table_consistency",
                    "is for strategy HYBRID only; others have consistency");
    }
    return;
  }
  if (spec.tables_size() == 0) {
    problems->Add("strategy",
                  "HYBRID is for jobs with tables, whose rows are on the ps; "
                  "this one has none: use ALL_REDUCE");
  }
  CheckTableConsistency(spec, problems);
  CheckDecidedTogether(spec, problems);
}

void FillTablesApart(JobSpec* spec) {
  if (!spec->has_table_consistency()) {
    spec->mutable_table_consistency()->set_mode(spec->consistency().mode());
  }
  if (spec->table_consistency().mode() == C::MODE_UNSPECIFIED) {
    spec->mutable_table_consistency()->set_mode(C::SYNC);
  }
}

}  // namespace syncline

#ifndef SYNCLINE_COMMON_JOB_HYBRID_RULES_H_
#define SYNCLINE_COMMON_JOB_HYBRID_RULES_H_

#include "common/job/job_spec_problems.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// The rules of HYBRID, whose workers reduce the dense parameters among
// themselves while ps hold the rows of tables (ADR 073). strategy_rules.h has
// those that all strategies have.

// When rows of tables are read and written: `table_consistency` where the job
// has one, else `consistency`.
const ConsistencySpec& RowConsistency(const JobSpec& spec);

// The name of the field that RowConsistency is.
const char* RowConsistencyField(const JobSpec& spec);

// `apart`: the strategy is HYBRID. Refuses a job without tables, and by name
// whatever needs the dense part and the rows to decide together; else
// table_consistency.
void CheckTablesApart(const JobSpec& spec, bool apart, Problems* problems);

// The fields that depend on HYBRID: table_consistency. REQUIRES: `consistency`
// has its defaults.
void FillTablesApart(JobSpec* spec);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_HYBRID_RULES_H_

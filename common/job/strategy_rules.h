#ifndef SYNCLINE_COMMON_JOB_STRATEGY_RULES_H_
#define SYNCLINE_COMMON_JOB_STRATEGY_RULES_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "common/job/job_spec_problems.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// The rules of a strategy that is built: the one table of them, for those who
// check a job and those who carry it out. docs/jobs.md has it for users.
struct StrategyRule {
  Strategy strategy = PARAMETER_SERVER;
  // False: the workers exchange parameters among themselves.
  bool has_ps = true;
  absl::Span<const ConsistencySpec::Mode> modes;
  bool has_tables = true;
  // Rows of tables are on the ps, and have modes of their own (hybrid_rules.h);
  // the workers reduce the dense parameters among themselves. Without tables
  // the job has no use for it.
  bool tables_apart = false;
  // A job's strategy changes from and to it with 16 bits on the wire, too: each
  // worker has whole values, or they are at ps.
  bool changes_with_16_bits = true;
  // Of ShardingSpec; 0: the strategy has none.
  uint32_t sharding_stages = 0;
};

// PARAMETER_SERVER's where the strategy is unspecified; null: it is not built.
const StrategyRule* FindStrategyRule(Strategy strategy);

// True if the job begins without ps: it is trained by workers alone, until a
// change of its strategy (strategy_change.h), for which it has reserved ps.
// False too where its strategy is not built.
bool IsWithoutPs(const JobSpec& spec);

// True if the workers reduce the dense parameters among themselves: without ps,
// or with ps for the rows alone.
bool ReducesAmongWorkers(const JobSpec& spec);

// The strategy, and whatever the strategy does not go with.
void CheckStrategy(const JobSpec& spec, Problems* problems);

// The fields that depend on the strategy: strategy, resources.ps, sharding.
void FillStrategy(JobSpec* spec);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_STRATEGY_RULES_H_

#ifndef SYNCLINE_COMMON_UPDATE_UPDATE_SPEC_H_
#define SYNCLINE_COMMON_UPDATE_UPDATE_SPEC_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/regime/regime_schedule.h"
#include "common/update/dense_updater.h"
#include "common/update/row_expiry.h"
#include "kernels/optimizer/finite.h"
#include "kernels/optimizer/learning_rate.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/row_initializer.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// How a job's spec says that parameters are updated, for whoever updates them.
// REQUIRES, here and below: the spec has its defaults. Errors are
// InvalidArgument and name the field: a value that is not built.

// Of dense blocks, by who owns them. A schedule that ends with the job may lack
// its end: EndsWithTheJob, and total_clocks is 0. `regimes` are the job's.
absl::StatusOr<DenseUpdater::Options> ReadUpdate(const JobSpec& spec,
                                                 const RegimeSchedule& regimes);
// In LOCAL, of the steps that workers make within a round, by the job's
// `optimizer` and learning rate; ReadUpdate is then consistency.local's, whose
// gradients are the changes of rounds.
absl::StatusOr<DenseUpdater::Options> ReadLocalUpdate(
    const JobSpec& spec, const RegimeSchedule& regimes);

// `field` names the spec in errors.
absl::StatusOr<OptimizerParams> ReadOptimizer(absl::string_view field,
                                              const OptimizerSpec& spec);
// Of the rows of table `table`.
absl::StatusOr<OptimizerParams> ReadTableOptimizer(const JobSpec& spec,
                                                   int table);
// Its rows before their first push; `dim`: elements of one.
absl::StatusOr<RowInitializer> ReadRowInitializer(const JobSpec& spec,
                                                  int table, size_t dim);
// When they go. Where min_score is set, REQUIRES: decay_clocks > 0.
ExpiryOptions ReadExpiry(const ExpirySpec& spec);
absl::StatusOr<OnNonFinite> ReadNonFinite(NonFinitePolicy policy);
// Of gradients: the job's policy, but with a dynamic loss scale kSkipStep. What
// the job's policy is about is then an overflow at the smallest scale, which
// the worker deals with.
absl::StatusOr<OnNonFinite> ReadGradientPolicy(const JobSpec& spec);

// For a spec that passed validation. `total_clocks` is the job's, for a
// schedule that does not name its end.
LearningRate LearningRateOf(const LearningRateSpec& spec, int64_t total_clocks);
OnNonFinite NonFiniteOf(NonFinitePolicy policy);
// As ReadGradientPolicy, for a spec that passed validation.
OnNonFinite GradientPolicyOf(const JobSpec& spec);
// The job's loss scale changes as gradients overflow: FLOAT16 without
// loss_scale.fixed.
bool HasDynamicLossScale(const JobSpec& spec);

// The schedule needs total_clocks.
bool EndsWithTheJob(LearningRate::Schedule schedule);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_UPDATE_UPDATE_SPEC_H_

#ifndef SYNCLINE_WORKER_JOB_UPDATE_PLACE_H_
#define SYNCLINE_WORKER_JOB_UPDATE_PLACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/element_type.h"
#include "common/model/training_graph.h"
#include "common/regime/regime_schedule.h"
#include "kernels/device/device.h"
#include "kernels/optimizer/optimizer.h"
#include "proto/job_spec.pb.h"

namespace syncline::worker {

// Where the ranks of a job that reduce among themselves make their updates: on
// the GPU that computes their gradients, or on their processors. The one table
// of that, for those who plan a job and those who carry it out; docs/jobs.md
// has it for users. Both give the same bits.

// The settings that decide it, of the job as it trains from some clock on.
struct UpdateRule {
  Strategy strategy = ALL_REDUCE;
  ElementType wire_type = ElementType::kFloat32;
  bool compresses = false;
  OptimizerKind optimizer = OptimizerKind::kSgd;
};

// Why a worker's processors make the updates, and not its `device`, in words
// that begin with a field of the job; empty: the device makes them.
std::string WhyOnProcessors(const JobSpec& spec, const UpdateRule& rule,
                            Device& device);

// The strategies that a job trains by, each once: `first`, by which it begins
// or goes on, those that its rules lead to and those that it tries.
std::vector<Strategy> StrategiesOf(const JobSpec& spec, Strategy first);

// Bytes of `device` that the updates of the rank that takes most need by all of
// `strategies`, between which a job changes that begins, or goes on, by the
// last of `regimes`; 0: its processors make them. REQUIRES: `spec` has its
// defaults. Errors: those of reading it.
absl::StatusOr<uint64_t> UpdateBytesOn(Device& device, const JobSpec& spec,
                                       const RegimeSchedule& regimes,
                                       absl::Span<const Strategy> strategies,
                                       const TrainingGraph& training);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_UPDATE_PLACE_H_

#include "common/job/step_shares.h"

#include <algorithm>

#include "common/job/lease_rules.h"

namespace syncline {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

StepShares SharesOf(const JobSpec& spec, uint32_t workers) {
  const TrainingSpec& training = spec.training();
  if (LeasesData(spec)) workers = 1;
  const int64_t batch = training.batch_size();
  // 0 in what a scheduler of before they were known fills in.
  const int64_t micro_batches = std::max<int64_t>(1, training.micro_batches());
  if (training.global_batch() == 0) {
    return {
        .samples = batch * workers, .largest = batch, .parts = micro_batches};
  }
  const int64_t largest = CeilDiv(training.global_batch(), workers);
  const int64_t at_once = std::max<int64_t>(1, CeilDiv(batch, micro_batches));
  return {.samples = training.global_batch(),
          .largest = largest,
          .parts = CeilDiv(largest, at_once)};
}

StepShares SharesOf(const JobSpec& spec) {
  return SharesOf(spec, std::max(1u, spec.resources().workers()));
}

JobSpec SpecForWorkers(JobSpec spec, uint32_t workers) {
  if (spec.resources().workers() == workers) return spec;
  if (spec.training().global_batch() == 0 && !LeasesData(spec)) {
    spec.mutable_training()->set_global_batch(spec.training().batch_size() *
                                              spec.resources().workers());
  }
  spec.mutable_resources()->set_workers(workers);
  return spec;
}

}  // namespace syncline

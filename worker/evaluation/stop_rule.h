#ifndef SYNCLINE_WORKER_EVALUATION_STOP_RULE_H_
#define SYNCLINE_WORKER_EVALUATION_STOP_RULE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"

namespace syncline::worker {

// Decides after each evaluation whether a job ends early (StopSpec). It counts
// the evaluations of one attempt: a job that goes on from a checkpoint begins
// to count anew. Thread-compatible.
class StopRule {
 public:
  // None: the job never ends early.
  explicit StopRule(std::optional<StopSpec> spec) : spec_(std::move(spec)) {}
  static StopRule Of(const JobSpec& spec) {
    return StopRule(spec.has_stop() ? std::make_optional(spec.stop())
                                    : std::nullopt);
  }

  // To be called with each evaluation, in order. Returns why the job ends after
  // this one, for people; empty: it goes on. An evaluation whose value is
  // absent or not a number is not better.
  std::string Offer(const Evaluation& evaluation);

 private:
  struct Best {
    double score = 0;  // larger is better
    double value = 0;  // of the metric
    uint32_t epoch = 0;
  };

  std::optional<StopSpec> spec_;
  std::optional<Best> best_;
  uint32_t not_better_ = 0;  // evaluations in a row
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EVALUATION_STOP_RULE_H_

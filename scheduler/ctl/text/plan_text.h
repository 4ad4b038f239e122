#ifndef SYNCLINE_SCHEDULER_CTL_TEXT_PLAN_TEXT_H_
#define SYNCLINE_SCHEDULER_CTL_TEXT_PLAN_TEXT_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/model/job_plan.h"
#include "common/model/training_graph.h"
#include "google/protobuf/struct.pb.h"
#include "proto/job_spec.pb.h"

namespace syncline::ctl {

struct PlanReport {
  JobSpec spec;  // with its defaults
  JobPlan plan;
  TrainingGraph training;  // what is trained
  // The same job with its batch in one part and nothing recomputed, where it
  // has it otherwise.
  std::optional<JobPlan> plain;
  size_t tensors_max = 10;
  std::vector<std::string> notes = {};  // JobFile::notes
};

// For people: memory by role, the largest tensors, FLOPs by operator.
std::string PlanText(const PlanReport& report);

// All of it, in bytes and FLOPs.
google::protobuf::Struct PlanJson(const PlanReport& report);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TEXT_PLAN_TEXT_H_

#ifndef SYNCLINE_TESTS_TESTING_ASSIGNED_JOB_H_
#define SYNCLINE_TESTS_TESTING_ASSIGNED_JOB_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/job/job_spec_validator.h"
#include "common/model/training_graph.h"
#include "gtest/gtest.h"
#include "proto/job.pb.h"

namespace syncline {

// A job of one worker and one ps, as the scheduler assigns it.
struct AssignedJob {
  JobAssignment assignment;
  std::shared_ptr<const Model> model;
  TrainingGraph training;
};

inline AssignedJob AssignToOne(const JobSpec& spec,
                               const std::string& model_text) {
  AssignedJob job;
  *job.assignment.mutable_spec() = WithDefaults(spec);
  job.assignment.add_workers();
  job.assignment.add_ps();
  auto model = ParseJobModel(job.assignment.spec(), model_text, "model");
  EXPECT_TRUE(model.ok()) << model.status();
  job.model = *std::move(model);
  std::vector<std::string> problems;
  job.training =
      ResolveTrainingGraph(job.assignment.spec(), *job.model, &problems);
  for (const auto& parameter : job.training.parameters) {
    ParameterInfo* const info = job.assignment.add_parameters();
    info->set_name(parameter.name);
    for (const int64_t dim : parameter.dims) info->add_dims(dim);
  }
  return job;
}

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_ASSIGNED_JOB_H_

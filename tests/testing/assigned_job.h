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
#include "tests/testing/assignment_builder.h"

namespace syncline {

// The parameters and tables of a model, as the chief reports them.
inline void AddModel(const TrainingGraph& graph, uint32_t ps,
                     AssignmentBuilder* job) {
  for (const TrainingGraph::Parameter& parameter : graph.parameters) {
    job->Parameter(parameter.name, parameter.dims, parameter.momentum);
  }
  for (const TrainingTable& table : graph.tables) {
    job->Table(table.name, static_cast<uint32_t>(table.dim), ps);
  }
}

// A job of one worker and one ps, with its model.
struct AssignedJob {
  JobAssignment assignment;
  std::shared_ptr<const Model> model;
  TrainingGraph training;
};

inline AssignedJob AssignToOne(const JobSpec& spec,
                               const std::string& model_text) {
  const JobSpec full = WithDefaults(spec);
  AssignedJob job;
  auto model = ParseJobModel(full, model_text, "model");
  EXPECT_TRUE(model.ok()) << model.status();
  job.model = *std::move(model);
  std::vector<std::string> problems;
  job.training = ResolveTrainingGraph(full, *job.model, &problems);
  AssignmentBuilder builder(full);
  AddModel(job.training, /*ps=*/1, &builder);
  job.assignment = builder.Workers(1).Ps(1).Build();
  return job;
}

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_ASSIGNED_JOB_H_

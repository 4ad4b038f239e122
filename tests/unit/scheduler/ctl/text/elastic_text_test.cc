// Goal: a user reads how many workers a job has and should have. Method: jobs
// with each combination.

#include "scheduler/ctl/text/elastic_text.h"

#include <string>

#include "gtest/gtest.h"

namespace syncline::ctl {
namespace {

std::string Text(JobState state, uint32_t workers, uint32_t scaled, int had) {
  JobStatus job;
  job.set_state(state);
  job.mutable_spec()->mutable_resources()->set_workers(workers);
  job.set_wanted_workers(scaled);
  for (int i = 0; i < had; ++i) job.add_workers();
  return ElasticText(job);
}

TEST(ElasticTextTest, OnlyWhatDiffersIsSaid) {
  EXPECT_EQ(Text(RUNNING, 3, 0, 3), "");
  EXPECT_EQ(Text(RUNNING, 3, 2, 2), "");
  EXPECT_EQ(Text(QUEUED, 3, 2, 3), "") << "it says what it waits for";
  EXPECT_EQ(Text(SUCCEEDED, 3, 0, 2), "");
  EXPECT_EQ(Text(RUNNING, 3, 0, 2),
            "has 2 of the 3 workers that it should have; it takes more when "
            "they are free and no job waits for them, --grow-pause-seconds of "
            "the scheduler (two minutes) after its last start or loss at the "
            "earliest");
  EXPECT_EQ(Text(RUNNING, 3, 5, 3),
            "has 3 of the 5 workers that it should have; it takes more when "
            "they are free and no job waits for them");
  EXPECT_EQ(Text(RUNNING, 3, 1, 3),
            "has 3 workers, and goes on with 1 from its next checkpoint on");
  EXPECT_EQ(Text(PREPARING, 3, 0, 5),
            "has 5 workers, 2 more than resources.workers; it gives them back "
            "when a job waits for them");
}

}  // namespace
}  // namespace syncline::ctl

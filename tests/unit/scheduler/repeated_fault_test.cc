// Goal: the same fault of the same work at the same clock is recognised in
// another run, and nothing else is taken for it. Method: reasons as the
// scheduler writes them.

#include "scheduler/repeated_fault.h"

#include <string>

#include "gtest/gtest.h"

namespace syncline {
namespace {

JobStatus Failed(const std::string& reason) {
  JobStatus job;
  job.set_state(FAILED);
  job.add_transitions()->set_reason(reason);
  return job;
}

TEST(RepeatedFaultTest, WhatDiffersBetweenRunsDoesNotCount) {
  const std::string fault = FaultOf(
      Failed("worker 1 at 10.0.0.5:4000 (incarnation 0x00c0ffee00c0ffee) was "
             "lost: stream closed; last clock 231"));
  EXPECT_EQ(fault, "worker 1 at was lost: stream closed; last clock 231");
  EXPECT_EQ(FaultOf(Failed(
                "worker 1 at node-7:4001 (incarnation 0x00c0ffee00c0ffff) was "
                "lost: stream closed; last clock 231\nthe same has happened "
                "to job j-0003, ...")),
            fault);
  EXPECT_EQ(FaultOf(Failed("chief 0 at h:1 has not come forward for 11.0 s; it "
                           "is at clock 3")),
            FaultOf(Failed("chief 0 at h:2 has not come forward for 10.2 s; it "
                           "is at clock 3")));
}

TEST(RepeatedFaultTest, AnotherMemberClockOrCauseIsAnotherFault) {
  const std::string fault =
      FaultOf(Failed("worker 1 at h:1 was lost: stream closed; last clock 9"));
  for (const char* other :
       {"worker 2 at h:1 was lost: stream closed; last clock 9",
        "worker 1 at h:1 was lost: stream closed; last clock 10",
        "worker 1 at h:1 was lost: it opened another session; last clock 9"}) {
    EXPECT_NE(FaultOf(Failed(other)), fault) << other;
  }
}

TEST(RepeatedFaultTest, WithoutAClockNothingIsKnown) {
  EXPECT_EQ(FaultOf(Failed("the scheduler was restarted while the job was "
                           "running")),
            "");
  EXPECT_EQ(FaultOf(Failed("ps 0 at h:1 was lost: silent for 5.2 s; last "
                           "clock 3")),
            "")
      << "the network's";
  JobStatus running = Failed("clock 3");
  running.set_state(RUNNING);
  EXPECT_EQ(FaultOf(running), "");
  EXPECT_EQ(FaultOf(JobStatus()), "");
}

TEST(RepeatedFaultTest, TheSameWorkHasTheSameModelAndSpec) {
  JobStatus a;
  a.mutable_spec()->set_name("x");
  Artifact* model = a.add_artifacts();
  model->set_name("model.onnx");
  model->set_crc32c(7);
  JobStatus b = a;
  EXPECT_TRUE(IsSameWork(a, b));
  b.mutable_artifacts(0)->set_crc32c(8);
  EXPECT_FALSE(IsSameWork(a, b));
  b = a;
  b.mutable_spec()->set_name("y");
  EXPECT_FALSE(IsSameWork(a, b));
}

}  // namespace
}  // namespace syncline

// Goal: the same fault of the same work at the same clock is recognised in
// another run, and nothing else is taken for it. Method: reasons as the
// scheduler writes them.

#include "scheduler/core/repeated_fault.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
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

// In sync mode the others notice it before the scheduler does, each in its own
// words.
TEST(RepeatedFaultTest, AMemberThatWasWaitedForInVain) {
  const std::string fault = FaultOf(Failed(
      "chief 0 at h:1: ps:0 at h:3, job j-0042, clock 5, PushPull (2 "
      "attempts): "
      "job j-0042: pull of clock 6 by chief:0 at h:1 ran out of time waiting "
      "for the pushes before it; missing: worker:1 at h:2 (clock 5, 3 of 10 "
      "blocks)"));
  EXPECT_EQ(fault, "missing: worker:1 clock 5");
  for (const char* same :
       {"worker 2 at h:7: ps:1 at h:8, job j-0043, clock 5, PushPull: job "
        "j-0043: pull of clock 6 by worker:2 at h:7 ran out of time waiting "
        "for the pushes before it; missing: worker:1 at h:9 (clock 5, nothing "
        "of it yet; last heard of evaluating clock 4, 3 of 9)",
        "worker 2 at h:7: ps:1 at h:8: job j-0043: push of clock 6 by "
        "worker:2 at h:7 ran out of time waiting for clock 5; missing: "
        "worker:1 at h:9 (clock 5, 9 of 10 blocks)",
        "chief 0 at h:1: ps:0 at h:3: job j-0044: the batch statistics of "
        "clock 5, fold 2 ran out of time; missing: worker:1 at h:2 (not heard "
        "of yet)"}) {
    EXPECT_EQ(FaultOf(Failed(same)), fault) << same;
  }
  EXPECT_EQ(FaultOf(Failed("chief 0 at h:1: ps:0 at h:3: j: the global norm of "
                           "clock 7 ran out of time; missing: ps:1, ps:3")),
            "missing: ps:1 clock 7, ps:3 clock 7");
  EXPECT_EQ(
      FaultOf(Failed("chief 0 at h:1: ps:0: pull of clock 6 by chief:0 at h:1 "
                     "ran out of time waiting for the epoch cut at clock "
                     "6; missing: worker:1 at "
                     "h:2 (clock 4, 1 of 2 blocks), worker:2 at h:3 (clock 5, "
                     "nothing of it yet)")),
      "missing: worker:1 clock 4, worker:2 clock 5");
}

TEST(RepeatedFaultTest, AnEvaluationThatHoldsItsCut) {
  EXPECT_EQ(FaultOf(Failed("worker 1 at h:1: ps:0: push of clock 8 by worker:1 "
                           "at h:1 ran out of time waiting for the end of the "
                           "epoch cut at clock 8 by evaluator:0 at h:5 "
                           "(last heard of evaluating "
                           "clock 8, 3 of 9)")),
            FaultOf(Failed("worker 2 at h:2: ps:1: push of clock 8 by worker:2 "
                           "at h:2 ran out of time waiting for the end of the "
                           "epoch cut at clock 8 by evaluator:0 at h:6")));
}

TEST(RepeatedFaultTest, AMemberThatDoesNotGetPrepared) {
  const std::string fault =
      FaultOf(Failed("not prepared within 10m: worker 1 at h:1: reading a.csv, "
                     "5 MiB of it so far, ps 0 at h:2"));
  EXPECT_EQ(fault, "not prepared: worker 1, ps 0");
  EXPECT_EQ(FaultOf(Failed("not prepared within 10m: worker 1 at h:7: reading "
                           "b.csv, 99 MiB of it so far, ps 0 at h:8")),
            fault);
  EXPECT_NE(FaultOf(Failed("not prepared within 10m: worker 1 at h:7")), fault);
}

TEST(RepeatedFaultTest, WhatAMemberSaidLastIsNotItsFault) {
  const auto fault = [](const std::string& seconds, const std::string& last) {
    return FaultOf(Failed(absl::StrCat(
        "chief 0 at h:1 has not come forward for ", seconds,
        " s, though it answers; it has closed clock 9, its last one, but is "
        "not done; it said last: ",
        last, "; the limit is 600.0 s, ten times ",
        "limits.step_timeout_seconds")));
  };
  EXPECT_NE(fault("601.0", "writing trained.onnx, 10 bytes so far"), "");
  EXPECT_EQ(fault("601.0", "writing trained.onnx, 10 bytes so far"),
            fault("600.2", "writing trained.onnx, 12 bytes so far"));
}

TEST(RepeatedFaultTest, TheNetworkIsNoFaultOfAMember) {
  for (const char* reason :
       {"worker 1 at h:2 cannot reach ps 0 at h:3 since 60.2 s: connection "
        "refused; chief 0 at h:1: ps:0 at h:3: pull of clock 6 by chief:0 ran "
        "out of time waiting for the pushes before it; missing: worker:1 at "
        "h:2 (clock 5, 3 of 10 blocks)",
        "worker 1 at h:2 (incarnation 0x1) was lost: it answers at its "
        "address, "
        "but has not registered again within 10.0 s of the end of its stream; "
        "last clock 9",
        "worker 1 at h:2: trained.onnx is missing: see the log"}) {
    EXPECT_EQ(FaultOf(Failed(reason)), "") << reason;
  }
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
  b = a;
  Artifact* const weights = b.add_artifacts();
  weights->set_name("start.safetensors");
  weights->set_crc32c(9);
  EXPECT_FALSE(IsSameWork(a, b));
  a = b;
  EXPECT_TRUE(IsSameWork(a, b));
  b.mutable_artifacts(1)->set_crc32c(10);
  EXPECT_FALSE(IsSameWork(a, b));
}

}  // namespace
}  // namespace syncline::scheduler

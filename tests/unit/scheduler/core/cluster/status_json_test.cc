// Goal: the page's JSON has what there is, numbers that are none are null or
// missing, and it stays JSON whatever users and daemons write. Method: made up
// clusters, hostile ones among them, read back by protobuf's parser.

#include "scheduler/core/cluster/status_json.h"

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A running job with two workers.
JobStatus Running() {
  JobStatus job;
  job.set_job_id("j-0007");
  job.set_state(RUNNING);
  job.set_attempt(2);
  job.set_trace_id("4bf92f3577b34da6a3ce929d0e0e4736");
  job.mutable_spec()->set_name("mnist");
  JobTransition* const transition = job.add_transitions();
  transition->set_state(RUNNING);
  transition->mutable_time()->set_seconds(3600);
  JobProgress* const progress = job.mutable_progress();
  progress->set_clock(50);
  progress->set_clocks_total(200);
  progress->set_epoch(2);
  progress->set_epochs_total(5);
  progress->set_loss(0.25);
  progress->set_samples_per_second(1234);
  progress->set_seconds_left(61);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    Participant* const worker = job.add_workers();
    worker->set_rank(rank);
    worker->mutable_member()->mutable_task()->set_type(WORKER);
    worker->mutable_member()->mutable_task()->set_index(rank);
  }
  WorkerProgress* const worker = progress->add_workers();
  worker->set_rank(1);
  worker->set_clock(50);
  worker->set_wait_seconds(1.5);
  return job;
}

JobData DataOf(const JobStatus& job) {
  return {.status = job,
          .curve = {{0, 2.0},
                    {10, std::numeric_limits<double>::quiet_NaN()},
                    {20, 1.0}},
          .may_read_logs = true,
          .now = absl::UnixEpoch() + absl::Hours(2)};
}

// Parsed and printed again; empty: it is no JSON.
std::string Parsed(const std::string& json) {
  google::protobuf::Struct object;
  if (!google::protobuf::util::JsonStringToMessage(json, &object).ok()) {
    return "";
  }
  std::string text;
  return google::protobuf::util::MessageToJsonString(object, &text).ok() ? text
                                                                         : "";
}

TEST(StatusJsonTest, AnEmptyClusterHasEmptyLists) {
  const std::string json = StatusJson({});
  EXPECT_THAT(json, AllOf(HasSubstr("\"jobs\":[]"), HasSubstr("\"members\":[]"),
                          HasSubstr("\"more_members\":0")));
  EXPECT_NE(Parsed(json), "");
}

TEST(StatusJsonTest, ARunningJobHasItsProgress) {
  const std::string json = JobJson(DataOf(Running()));
  EXPECT_NE(Parsed(json), "") << json;
  EXPECT_THAT(
      json,
      AllOf(HasSubstr("\"id\":\"j-0007\""), HasSubstr("\"state\":\"running\""),
            HasSubstr("\"state_seconds\":3600"), HasSubstr("\"loss\":0.25"),
            HasSubstr("\"seconds_left\":61"),
            HasSubstr("\"trace\":\"4bf92f3577b34da6a3ce929d0e0e4736\""),
            HasSubstr("\"curve\":[[0,2],[20,1]]"),
            HasSubstr("{\"rank\":0,\"task\":\"worker:0\",\"address\":\"\"}"),
            HasSubstr("\"wait\":1.5")));
}

TEST(StatusJsonTest, AWorkerThatTheJobGoesOnWithoutIsMarked) {
  JobStatus job = Running();
  EXPECT_THAT(JobJson(DataOf(job)), Not(HasSubstr("\"lost\"")));
  job.add_lost_workers()->set_rank(0);
  EXPECT_THAT(JobJson(DataOf(job)),
              HasSubstr("{\"rank\":0,\"task\":\"worker:0\",\"address\":"
                        "\"\",\"lost\":true}"));
}

TEST(StatusJsonTest, NumbersThatAreNoneAreNone) {
  JobStatus job = Running();
  job.mutable_progress()->set_loss(std::numeric_limits<double>::quiet_NaN());
  job.mutable_progress()->set_seconds_left(-1);
  std::string json = JobJson(DataOf(job));
  EXPECT_NE(Parsed(json), "");
  EXPECT_THAT(json,
              AllOf(HasSubstr("\"loss\":null"), Not(HasSubstr("seconds_left")),
                    Not(HasSubstr("nan"))));
  job.mutable_progress()->clear_loss();
  EXPECT_THAT(JobJson(DataOf(job)), Not(HasSubstr("\"loss\"")));
}

TEST(StatusJsonTest, EventsComeByTime) {
  JobStatus job = Running();
  CheckpointInfo* const checkpoint = job.add_checkpoints();
  checkpoint->set_clock(40);
  checkpoint->mutable_time()->set_seconds(4000);
  Evaluation* const evaluation = job.add_evaluations();
  evaluation->set_epoch(1);
  evaluation->set_loss(0.5);
  evaluation->set_accuracy(0.975);
  evaluation->mutable_time()->set_seconds(3800);
  const std::string json = JobJson(DataOf(job));
  const size_t began = json.find("\"kind\":\"state\",\"text\":\"running\"");
  const size_t evaluated = json.find(
      "\"kind\":\"evaluation\",\"text\":\"after epoch 1: loss 0.5, accuracy "
      "0.975\"");
  const size_t stored = json.find("\"kind\":\"checkpoint\"");
  EXPECT_LT(began, evaluated) << json;
  EXPECT_LT(evaluated, stored) << json;
  EXPECT_NE(stored, json.npos);
}

TEST(StatusJsonTest, AJobThatTrainsNothingHasNoEpochsAndSteps) {
  JobStatus job = Running();
  job.mutable_spec()->mutable_evaluate()->set_only(true);
  Evaluation* const evaluation = job.add_evaluations();
  evaluation->set_epoch(1);
  evaluation->set_clock(50);
  evaluation->set_loss(0.5);
  EXPECT_THAT(JobJson(DataOf(job)),
              AllOf(HasSubstr("\"text\":\"at clock 50: loss 0.5\""),
                    HasSubstr("\"clock\":50"), Not(HasSubstr("epoch")),
                    Not(HasSubstr("clocks_total"))));
}

TEST(StatusJsonTest, ChangesOfTheRegimeSayWhatTo) {
  JobStatus job = Running();
  EXPECT_THAT(JobJson(DataOf(job)), HasSubstr("\"regime\":\"SYNC\""));
  RegimeTransition* change = job.add_regimes();
  change->set_reason("synctl regime: slow host");
  change->mutable_regime()->set_first_clock(40);
  ConsistencySpec* const consistency =
      change->mutable_regime()->mutable_consistency();
  consistency->set_mode(ConsistencySpec::BOUNDED_STALENESS);
  consistency->set_staleness_bound(4);
  change = job.add_regimes();
  change->set_reason("synctl regime");
  change->set_error("the job ended first");
  std::string json = JobJson(DataOf(job));
  EXPECT_NE(Parsed(json), "") << json;
  EXPECT_THAT(
      json,
      AllOf(HasSubstr("\"regime\":\"BOUNDED_STALENESS, bound 4\""),
            HasSubstr("\"text\":\"BOUNDED_STALENESS, bound 4 from clock 40 on: "
                      "synctl regime: slow host\""),
            HasSubstr("\"text\":\"synctl regime was not made: the job ended "
                      "first\"")));
  change = job.add_regimes();
  *change->mutable_regime() = job.regimes(0).regime();
  change->set_reason("auto: it was the fastest");
  EXPECT_THAT(JobJson(DataOf(job)),
              HasSubstr("\"text\":\"stays BOUNDED_STALENESS, bound 4: auto: "
                        "it was the fastest\""));
  job.set_state(SUCCEEDED);
  EXPECT_THAT(JobJson(DataOf(job)), HasSubstr("\"regime\":\"BOUNDED"));
  job.set_attempt(0);
  EXPECT_THAT(JobJson(DataOf(job)), Not(HasSubstr("\"regime\":\"BOUNDED")))
      << "it has never trained";
}

TEST(StatusJsonTest, WhatUsersAndDaemonsWriteStaysText) {
  const std::string hostile =
      "</script><img src=x onerror='a()'>\"\\\n\x01\xff";
  JobStatus job = Running();
  job.set_state(FAILED);
  job.mutable_spec()->set_name(hostile);
  job.mutable_transitions(0)->set_reason(hostile);
  StatusData data;
  data.jobs.push_back(job);
  ClusterStatus::Entry* const entry = data.cluster.add_members();
  entry->mutable_member()->set_hostname(hostile);
  entry->set_job_id(hostile);
  entry->set_use(SetMemberUseRequest::CORDON);
  entry->set_use_reason(hostile);
  const std::string json = StatusJson(data);
  EXPECT_NE(Parsed(json), "") << json;
  EXPECT_THAT(json, HasSubstr("\"use\":\"cordon\""));
  EXPECT_NE(Parsed(JobJson(DataOf(job))), "");
}

TEST(StatusJsonTest, ManyMembersAreCounted) {
  StatusData data;
  for (int i = 0; i < kStatusMembersMax + 7; ++i) data.cluster.add_members();
  data.cluster.mutable_members(0)->set_job_id("j-0001");
  data.cluster.mutable_members(1)->set_use(SetMemberUseRequest::DRAIN);
  EXPECT_THAT(StatusJson(data),
              AllOf(HasSubstr("\"more_members\":7"),
                    HasSubstr(absl::StrCat("\"free_members\":",
                                           kStatusMembersMax + 5))));
}

}  // namespace
}  // namespace syncline::scheduler

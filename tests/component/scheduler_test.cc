// Goal: the scheduler as its users see it, over gRPC: jobs from submission to
// their end. (scheduler_files_test has their files, scheduler_members_test the
// daemons.) Method: a real scheduler on a free port with a state directory of
// its own, daemons that are sessions with scripted answers, and a client of the
// Jobs service.

#include "scheduler/service/scheduler.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "common/base/incarnation.h"
#include "common/model/model.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/scheduler_fixture.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FakeDaemon;
using ::testing::HasSubstr;
using testing::kTinyModel;
using ::testing::Not;
using testing::SchedulerFixture;
using testing::TinyJob;

class SchedulerTest : public SchedulerFixture {};

TEST_F(SchedulerTest, AJobRunsAndSucceeds) {
  FakeDaemon* ps = AddDaemon(PS, 0);
  AddDaemon(WORKER, 0);
  FakeDaemon* chief = AddDaemon(CHIEF, 0);
  const std::string job_id = MustSubmit(TinyJob(2, 1));
  EXPECT_EQ(job_id, "j-0001");
  const JobStatus status = AwaitState(job_id, SUCCEEDED);
  EXPECT_EQ(status.exit_code(), 0);
  std::vector<JobState> states;
  for (const auto& transition : status.transitions()) {
    states.push_back(transition.state());
  }
  EXPECT_THAT(states, ElementsAre(QUEUED, PREPARING, RUNNING, SUCCEEDED));
  // The chief has rank 0, whatever the order of registration.
  EXPECT_EQ(status.workers(0).member().task().type(), CHIEF);
  EXPECT_EQ(status.workers(1).member().task().type(), WORKER);
  EXPECT_EQ(status.progress().clock(), 5);
  EXPECT_EQ(status.progress().loss(), 0.5);
  EXPECT_EQ(status.progress().samples_per_second(), 200);

  const auto commands = chief->commands.Await(3);
  ASSERT_EQ(commands.size(), 3);
  const JobAssignment& assignment = commands[0].prepare().assignment();
  EXPECT_EQ(assignment.job_id(), job_id);
  EXPECT_EQ(assignment.workers_size(), 2);
  EXPECT_EQ(assignment.ps_size(), 1);
  EXPECT_EQ(assignment.parameters_size(), 2);
  EXPECT_EQ(assignment.parameters(0).name(), "w");
  EXPECT_EQ(assignment.spec().training().batch_size(), 32);  // the default
  EXPECT_EQ(assignment.model_artifact(), "model.onnx");
  EXPECT_TRUE(commands[1].has_run());
  EXPECT_TRUE(commands[2].has_stop());
  ASSERT_EQ(ps->AwaitStops(1).size(), 1);
  AwaitFree(3);
}

TEST_F(SchedulerTest, BadJobsAreRefusedWithAllProblemsAtOnce) {
  JobSpec spec = TinyJob(1, 1);
  spec.mutable_learning_rate()->set_base(-1);
  spec.set_strategy(HYBRID);
  const absl::Status status = Submit(spec, "this is no model").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("learning_rate.base"), HasSubstr("strategy"),
                    HasSubstr("tiny.onnxtxt")));
  JobSpec misfit = TinyJob(1, 1);
  misfit.mutable_data()->mutable_feeds(0)->set_input("no_such_input");
  const absl::Status no_input = Submit(misfit).status();
  EXPECT_EQ(no_input.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(no_input.message(), HasSubstr("no_such_input"));
  // Nothing is left of them.
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "state/jobs"));
  EXPECT_EQ(Get("j-0001").status().code(), absl::StatusCode::kNotFound);
}

// ONNX lets any bytes be a name; a record with such a name could be written but
// not be read again.
TEST_F(SchedulerTest, AParameterWhoseNameIsNotTextIsRefused) {
  std::string text = absl::StrReplaceAll(
      kTinyModel,
      {{"[4, 1] w =", "[4, 1] wxy ="}, {"(x, w, b)", "(x, wxy, b)"}});
  const auto model = Model::Parse(text, "tiny");
  ASSERT_TRUE(model.ok()) << model.status();
  const std::string binary = absl::StrReplaceAll(
      (*model)->WithWeights({}).value(), {{"wxy", "w\xffy"}});
  const absl::Status status = Submit(TinyJob(1, 1), binary).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("w\\xffy' is not UTF-8"));
  RestartScheduler();
}

TEST_F(SchedulerTest, ProblemsOfPreparingFailTheJobAndFreeAll) {
  AddDaemon(PS, 0);
  AddDaemon(WORKER, 0, {.problems = {"data.train: t: no such file", "more"}});
  AddDaemon(WORKER, 1, {.problems = {"data.train: t: no such file"}});
  const JobStatus status = AwaitState(MustSubmit(TinyJob(2, 1)), FAILED);
  EXPECT_EQ(status.exit_code(), 1);
  EXPECT_EQ(LastReason(status),
            "worker 0 at 10.0.0.1:7000: data.train: t: no such file\n"
            "worker 0 at 10.0.0.1:7000: more\n"
            "worker 1 at 10.0.0.2:7000: data.train: t: no such file");
  AwaitFree(3);
}

TEST_F(SchedulerTest, ALostDaemonFailsItsJobByNameAndFreesTheOthers) {
  FakeDaemon* ps = AddDaemon(PS, 0);
  AddDaemon(PS, 1);
  FakeDaemon* worker = AddDaemon(WORKER, 0, {.finishes = false, .clock = 231});
  const std::string job_id = MustSubmit(TinyJob(1, 1));
  WatchUntil(job_id, [](const JobStatus& status) {
    return status.progress().clock() == 231;
  });
  const std::string incarnation = IncarnationText(ps->incarnation());
  const absl::Time killed = absl::Now();
  Kill(ps);
  const JobStatus status = AwaitState(job_id, FAILED);
  EXPECT_LT(absl::Now() - killed, absl::Seconds(10));
  EXPECT_EQ(LastReason(status),
            absl::StrCat("ps 0 at 10.0.0.1:7000 (incarnation ", incarnation,
                         ") was lost: stream closed; last clock 231"));
  EXPECT_EQ(status.exit_code(), 138);
  EXPECT_THAT(worker->AwaitStops(1)[0].reason(), HasSubstr("ps 0"));
  AwaitFree(2);
  // The cluster takes the next job.
  const std::string next = MustSubmit(TinyJob(1, 1));
  AwaitState(next, RUNNING);
}

TEST_F(SchedulerTest, JobsAreCancelledInEachState) {
  const std::string queued = MustSubmit(TinyJob(1, 1));
  EXPECT_TRUE(Cancel(queued).ok());
  EXPECT_EQ(LastReason(AwaitState(queued, CANCELLED)), "not needed");
  EXPECT_EQ(Cancel(queued).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Cancel("j-4711").code(), absl::StatusCode::kNotFound);

  AddDaemon(PS, 0);
  FakeDaemon* slow = AddDaemon(WORKER, 0, {.prepares = false});
  const std::string preparing = MustSubmit(TinyJob(1, 1));
  AwaitState(preparing, PREPARING);
  EXPECT_TRUE(Cancel(preparing).ok());
  AwaitState(preparing, CANCELLED);
  AwaitFree(2);
  Kill(slow);
  AwaitFree(1);

  AddDaemon(WORKER, 1, {.finishes = false});
  const std::string running = MustSubmit(TinyJob(1, 1));
  AwaitState(running, RUNNING);
  EXPECT_TRUE(Cancel(running).ok());
  AwaitState(running, CANCELLED);
  AwaitFree(2);
}

TEST_F(SchedulerTest, JobsRunInTheOrderOfTheirSubmission) {
  const std::string first = MustSubmit(TinyJob(2, 1));
  const std::string second = MustSubmit(TinyJob(1, 1));
  AddDaemon(PS, 0);
  AddDaemon(WORKER, 0);
  // The second one would fit, but does not overtake: more may be on their way.
  const JobStatus waiting = Get(first).value();
  EXPECT_EQ(waiting.state(), QUEUED);
  EXPECT_THAT(waiting.waiting_for(),
              AllOf(HasSubstr("needs 2 workers and 1 ps; free: 1 worker, 1 ps"),
                    HasSubstr("more than this cluster has (1 worker, 1 ps)"),
                    HasSubstr("resources.workers")));
  const JobStatus behind = Get(second).value();
  EXPECT_EQ(behind.state(), QUEUED);
  EXPECT_EQ(behind.queue_position(), 1);
  AddDaemon(WORKER, 1);
  const JobStatus a = AwaitState(first, SUCCEEDED);
  const JobStatus b = AwaitState(second, SUCCEEDED);
  const auto& start_a = a.transitions(1).time();
  const auto& start_b = b.transitions(1).time();
  EXPECT_LE(std::make_pair(start_a.seconds(), start_a.nanos()),
            std::make_pair(start_b.seconds(), start_b.nanos()));
}

TEST_F(SchedulerTest, ARestartedSchedulerKnowsEveryJob) {
  AddDaemon(PS, 0);
  AddDaemon(WORKER, 0);
  const std::string done = MustSubmit(TinyJob(1, 1));
  AwaitState(done, SUCCEEDED);
  FakeDaemon* endless = AddDaemon(WORKER, 1, {.finishes = false});
  const std::string running = MustSubmit(TinyJob(2, 1));
  AwaitState(running, RUNNING);
  const std::string queued = MustSubmit(TinyJob(3, 1));

  RestartScheduler();
  EXPECT_EQ(Get(done)->state(), SUCCEEDED);
  EXPECT_EQ(Get(running)->state(), RUNNING);
  EXPECT_EQ(Get(running)->attempt(), 1u);
  // The daemons come back, and it goes on with them until the user ends it.
  EXPECT_EQ(endless->registered.Await(2).size(), 2);
  EXPECT_GT(endless->registered.Await(2)[1].scheduler_epoch(),
            endless->registered.Await(2)[0].scheduler_epoch());
  EXPECT_TRUE(Cancel(running).ok());
  AwaitState(running, CANCELLED);
  AddDaemon(WORKER, 2);
  AwaitState(queued, RUNNING);
  EXPECT_EQ(Get(queued)->spec().name(), "tiny");
  EXPECT_EQ(MustSubmit(TinyJob(1, 1)), "j-0004");
}

TEST_F(SchedulerTest, AClientsKeyOutlivesTheScheduler) {
  const auto submit = [&](const std::string& key) {
    const auto submission =
        scheduler_->Submit(TinyJob(1, 1), kTinyModel, key, "");
    EXPECT_TRUE(submission.ok()) << submission.status();
    return *submission;
  };
  const std::string first = submit("nightly").job_id;
  RestartScheduler();
  EXPECT_EQ(submit("nightly").job_id, first);
  EXPECT_TRUE(submit("nightly").repeated);
  EXPECT_NE(submit("weekly").job_id, first);
}

TEST_F(SchedulerTest, InProcessSubmitWaitAndShutdown) {
  AddDaemon(PS, 0);
  FakeDaemon* worker = AddDaemon(WORKER, 0);
  const auto submitted = scheduler_->Submit(TinyJob(1, 1), kTinyModel, "", "");
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  const auto status =
      scheduler_->WaitFor(submitted->job_id, absl::Now() + kPatience);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->state(), SUCCEEDED);
  const std::string queued =
      scheduler_->Submit(TinyJob(9, 1), kTinyModel, "", "")->job_id;
  // Not over by the deadline: its latest status, if there was time for one.
  const auto waiting =
      scheduler_->WaitFor(queued, absl::Now() + absl::Milliseconds(100));
  if (waiting.ok()) {
    EXPECT_EQ(waiting->state(), QUEUED);
  } else {
    EXPECT_EQ(waiting.status().code(), absl::StatusCode::kDeadlineExceeded);
  }
  EXPECT_EQ(
      scheduler_->Submit(TinyJob(1, 1), "nonsense", "", "").status().code(),
      absl::StatusCode::kInvalidArgument);

  scheduler_->ShutdownCluster(3, "done", /*members=*/0, absl::Now());
  const auto commands = worker->commands.AwaitThat([](const auto& seen) {
    return !seen.empty() && seen.back().has_shutdown();
  });
  EXPECT_EQ(commands.back().shutdown().exit_code(), 3);
  EXPECT_EQ(Submit(TinyJob(1, 1)).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(SchedulerTest, DrainEndsStreamsAndWatches) {
  AddDaemon(WORKER, 0);
  const std::string job_id = MustSubmit(TinyJob(1, 1));
  const auto context = MakeContext(absl::Now() + kPatience);
  WatchRequest request;
  request.set_job_id(job_id);
  const auto reader = jobs_->Watch(context.get(), request);
  JobStatus status;
  ASSERT_TRUE(reader->Read(&status));
  scheduler_->Drain(absl::Now() + kPatience);
  while (reader->Read(&status)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(Submit(TinyJob(1, 1)).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(SchedulerTest, PagesShowJobs) {
  AddDaemon(PS, 0);
  AddDaemon(WORKER, 0, {.problems = {"<script>alert(1)</script>"}});
  AwaitState(MustSubmit(TinyJob(1, 1)), FAILED);
  const auto pages = scheduler_->Pages();
  // The document is the same for all: what it shows comes as JSON.
  const HttpServer::Response page = pages.at("/")({});
  EXPECT_EQ(page.code, 200);
  EXPECT_THAT(page.body, AllOf(HasSubstr("</html>"), HasSubstr("status.json"),
                               Not(HasSubstr("j-0001"))));
  EXPECT_THAT(page.headers.at("Content-Security-Policy"),
              HasSubstr("default-src 'none'"));
  const HttpServer::Response status = pages.at("/status.json")({});
  EXPECT_THAT(status.body,
              AllOf(HasSubstr("\"id\":\"j-0001\""), HasSubstr(server_.address),
                    HasSubstr("<script>alert(1)</script>")));
  EXPECT_EQ(status.content_type, "application/json");
  const HttpServer::Response of_job =
      pages.at("/jobs/")({.path = "/jobs/j-0001.json"});
  EXPECT_THAT(of_job.body, AllOf(HasSubstr("\"events\":[{\"time\":"),
                                 HasSubstr("\"task\":\"worker:0\"")));
  EXPECT_EQ(pages.at("/jobs/")({.path = "/jobs/j-0009.json"}).code, 404);
  EXPECT_EQ(pages.at("/jobs/")({.path = "/jobs/../x"}).code, 404);
  const HttpServer::Request logs = {.path = "/jobs/j-0001/logs.json",
                                    .from_loopback = true};
  EXPECT_EQ(pages.at("/jobs/")({.path = logs.path}).code, 403);
  // The page asks again and again; the audit log says so once.
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(pages.at("/jobs/")(logs).body,
                HasSubstr("\"task\":\"worker:0\""));
  }
  const std::string read = "\"action\":\"logs\",\"job\":\"j-0001\"";
  const std::string audit =
      ReadFile(dir_ / "state/audit.log", 1 << 20).value_or("");
  EXPECT_THAT(audit, HasSubstr(read));
  EXPECT_EQ(audit.find(read), audit.rfind(read));
  const HttpServer::Response json = pages.at("/jobs.json")({});
  EXPECT_EQ(json.content_type, "application/json");
  EXPECT_THAT(json.body, HasSubstr("\"job_id\":\"j-0001\""));
  // It shows only the name of a spec, and no zeros for fields that are not set.
  EXPECT_THAT(json.body, HasSubstr("\"spec\":{\"name\":\"tiny\"}"));
}

// Jobs that ended with a long reason, more of them than a message takes.
TEST_F(SchedulerTest, AListOfLongJobsComesInPages) {
  constexpr int kJobs = 270;
  CancelRequest cancel;
  cancel.set_reason(std::string(16 << 10, 'x'));
  for (int i = 0; i < kJobs; ++i) {
    const auto job =
        scheduler_->Submit(TinyJob(1, 1), kTinyModel, /*client_key=*/"", "");
    ASSERT_TRUE(job.ok()) << job.status();
    cancel.set_job_id(job->job_id);
    JobStatus status;
    const auto context = MakeContext(absl::Now() + kPatience);
    ASSERT_TRUE(jobs_->Cancel(context.get(), cancel, &status).ok());
  }
  ListRequest request;
  request.set_limit(1000);
  std::vector<std::string> listed;
  int pages = 0;
  do {
    ListResponse page;
    const auto context = MakeContext(absl::Now() + kPatience);
    const grpc::Status status = jobs_->List(context.get(), request, &page);
    ASSERT_TRUE(status.ok()) << status.error_message();
    for (const JobStatus& job : page.jobs()) listed.push_back(job.job_id());
    request.set_page_token(page.next_page_token());
    ++pages;
    // A job that comes meanwhile moves no page.
    if (pages == 1) MustSubmit(TinyJob(1, 1));
  } while (!request.page_token().empty() && pages < kJobs);
  EXPECT_EQ(pages, 2);
  ASSERT_EQ(listed.size(), kJobs);
  EXPECT_EQ(listed.front(), "j-0270");
  EXPECT_EQ(listed.back(), "j-0001");

  request.set_page_token("nonsense");
  ListResponse none;
  const auto context = MakeContext(absl::Now() + kPatience);
  const absl::Status refused =
      FromGrpcStatus(jobs_->List(context.get(), request, &none));
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("page_token: \"nonsense\""));
  // The page of the HTTP server likewise.
  const auto json = scheduler_->Pages().at("/jobs.json");
  EXPECT_THAT(json({}).body, HasSubstr("\"next_page_token\":\"j-0172\""));
  EXPECT_THAT(json({.query = "page_token=j-0002"}).body, HasSubstr("j-0001"));
  EXPECT_EQ(json({.query = "page_token=x"}).code, 400);
}

TEST_F(SchedulerTest, AJobThatFitsIntoNoMessageIsRefusedWithTheNumber) {
  JobSpec spec = TinyJob(1, 1);
  spec.mutable_data()->mutable_train()->mutable_libsvm()->set_path(
      std::string(3'500'000, 't'));
  const absl::Status refused = Submit(spec).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("3500000"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "state/jobs"));
}

TEST_F(SchedulerTest, ReadyIsSaidOnlyWhileItIsTrue) {
  EXPECT_TRUE(scheduler_->Ready().ok()) << scheduler_->Ready();
  std::filesystem::rename(dir_ / "state/incoming", dir_ / "state/away");
  const absl::Status gone = scheduler_->Ready();
  EXPECT_FALSE(gone.ok());
  EXPECT_THAT(gone.message(), HasSubstr("state/incoming"));
  // Submitting says the same instead of failing half-way.
  EXPECT_FALSE(Submit(TinyJob(1, 1)).ok());
  std::filesystem::rename(dir_ / "state/away", dir_ / "state/incoming");
  EXPECT_TRUE(scheduler_->Ready().ok()) << scheduler_->Ready();
  scheduler_->Drain(absl::Now() + kPatience);
  EXPECT_EQ(scheduler_->Ready().code(), absl::StatusCode::kUnavailable);
}

TEST_F(SchedulerTest, TheStateBelongsToOneScheduler) {
  const auto second = scheduler::Scheduler::Create(options_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(),
              AllOf(HasSubstr(options_.state_dir), HasSubstr("in use")));
}

}  // namespace
}  // namespace syncline

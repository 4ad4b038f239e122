// Goal: synctl does what its user expects of it, and its exit codes and JSON
// can be relied on. Method: one small cluster, the real synctl.

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "scheduler/ctl/folder_claim.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The weights of MlpModel(784, 32, 10), as synctl lists them before the reason.
constexpr char kWeightsLine[] = "  trained         4 (25450 numbers): ";

class CommandsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    cluster_ = std::make_unique<TestCluster>(
        TestCluster::Options{.ps = 1, .workers = 2});
    ASSERT_OK(cluster_->Start());
  }
  static void TearDownTestSuite() { cluster_.reset(); }

  static std::string Write(const JobSpec& job) {
    return WriteJob(cluster_->dir(), job, MlpModel(784, 32, 10));
  }

  static JobSpec EvaluatedJob(const std::string& name) {
    JobSpec job = DigitsJob();
    job.set_name(name);
    job.mutable_training()->set_epochs(2);
    auto* test = job.mutable_data()->mutable_test()->mutable_digits();
    test->set_count(200);
    test->set_seed(2);
    return job;
  }

  static std::unique_ptr<TestCluster> cluster_;
};

std::unique_ptr<TestCluster> CommandsTest::cluster_;

TEST_F(CommandsTest, SubmitWatchShowsProgressAndSucceeds) {
  ASSERT_OK_AND_ASSIGN(
      const auto result,
      cluster_->Synctl({"submit", Write(EvaluatedJob("watched")), "--watch"}));
  EXPECT_EQ(result.exit.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("submitted j-"));
  EXPECT_THAT(result.out, HasSubstr(kWeightsLine));
  EXPECT_THAT(result.out, HasSubstr("epoch 1: test loss"));
  EXPECT_THAT(result.out, HasSubstr("epoch 2: test loss"));
  EXPECT_THAT(result.out, HasSubstr("succeeded"));
  EXPECT_THAT(result.out, Not(HasSubstr("\r"))) << "plain lines in a file";
}

TEST_F(CommandsTest, AnUnknownCommandIsNamed) {
  for (const auto& [words, message] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"submti", "job.textproto"},
            "'submti' is not a command of synctl; did you mean 'submit'?\n"
            "synctl --help lists the commands\n"},
           {{"frobnicate"},
            "'frobnicate' is not a command of synctl\n"
            "synctl --help lists the commands\n"},
           {{"generate", "critoe"},
            "'critoe' is not a command of synctl generate; did you mean "
            "'criteo'?\nsynctl generate --help lists the commands\n"}}) {
    ASSERT_OK_AND_ASSIGN(const auto result, cluster_->Synctl(words));
    EXPECT_EQ(result.exit.code, 2);
    EXPECT_EQ(result.err, message);
  }
}

// A stray word does not hide what is missing.
TEST_F(CommandsTest, AMissingOptionIsNamedBesideAStrayWord) {
  for (const auto& [words, missing] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"tf-config", "worker:1"}, "--task"},
           {{"generate", "criteo", "foo"}, "--rows"}}) {
    ASSERT_OK_AND_ASSIGN(const auto result, cluster_->Synctl(words));
    EXPECT_EQ(result.exit.code, 2);
    EXPECT_THAT(result.err, HasSubstr(missing));
    EXPECT_THAT(result.err, HasSubstr("required"));
    EXPECT_THAT(result.err, Not(HasSubstr("is not a command")));
  }
}

// The same option in each command that takes a job file.
TEST_F(CommandsTest, SettingsGoOverTheJobFile) {
  JobSpec spec = EvaluatedJob("set");
  spec.mutable_training()->set_epochs(1000000);
  const std::string file = Write(spec);
  ASSERT_OK_AND_ASSIGN(
      const auto plan,
      cluster_->Synctl({"plan", "--set", "training.batch_size=16", file}));
  EXPECT_EQ(plan.exit.code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("batch 16"));

  ASSERT_OK_AND_ASSIGN(const auto result,
                       cluster_->Synctl({"submit", "--set", "training.epochs=1",
                                         "--set", "learning_rate.base=0.25",
                                         file, "--watch", "--output", "json"}));
  EXPECT_EQ(result.exit.code, 0) << result.err;
  SubmitResponse submitted;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  ASSERT_TRUE(
      google::protobuf::util::JsonStringToMessage(
          result.out.substr(0, result.out.find('\n')), &submitted, options)
          .ok())
      << result.out;
  ASSERT_OK_AND_ASSIGN(const JobStatus job, cluster_->Get(submitted.job_id()));
  EXPECT_EQ(job.spec().training().epochs(), 1u);
  EXPECT_EQ(job.spec().learning_rate().base(), 0.25f);
  EXPECT_EQ(job.spec().training().batch_size(), 32u) << "as the file has it";
}

TEST_F(CommandsTest, WatchInJsonIsOneStatusPerLine) {
  ASSERT_OK_AND_ASSIGN(const auto result,
                       cluster_->Synctl({"submit", Write(EvaluatedJob("json")),
                                         "--watch", "--output", "json"}));
  EXPECT_EQ(result.exit.code, 0) << result.err;
  const std::vector<std::string> lines =
      absl::StrSplit(result.out, '\n', absl::SkipEmpty());
  ASSERT_GE(lines.size(), 2u);
  // The answer also lists the weights that are trained.
  SubmitResponse submitted;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  ASSERT_TRUE(
      google::protobuf::util::JsonStringToMessage(lines[0], &submitted, options)
          .ok());
  google::protobuf::Struct said;
  ASSERT_TRUE(
      google::protobuf::util::JsonStringToMessage(lines[0], &said).ok());
  ASSERT_EQ(said.fields().count("weights"), 1u) << lines[0];
  const auto& weights = said.fields().at("weights").list_value().values();
  ASSERT_EQ(weights.size(), 1);
  EXPECT_EQ(weights[0].struct_value().fields().at("count").number_value(), 4);
  for (size_t i = 1; i < lines.size(); ++i) {
    JobStatus job;
    ASSERT_TRUE(
        google::protobuf::util::JsonStringToMessage(lines[i], &job).ok())
        << lines[i];
    EXPECT_EQ(job.job_id(), submitted.job_id());
    EXPECT_EQ(job.state() == SUCCEEDED, i + 1 == lines.size());
  }
}

TEST_F(CommandsTest, ADownloadBringsTheResults) {
  ASSERT_OK_AND_ASSIGN(const JobStatus job,
                       cluster_->Train(Write(EvaluatedJob("download"))));
  const std::string to = cluster_->dir().File("download");
  ASSERT_OK_AND_ASSIGN(
      const auto all, cluster_->Synctl({"download", job.job_id(), "--to", to}));
  EXPECT_EQ(all.exit.code, 0) << all.err;
  ASSERT_OK_AND_ASSIGN(const Weights weights,
                       ReadWeights(to + "/trained.onnx"));
  EXPECT_EQ(weights.at("w1").size(), 784u * 32);
  EXPECT_TRUE(std::filesystem::exists(to + "/metrics.json"));
  EXPECT_FALSE(std::filesystem::is_empty(to + "/logs"));
  EXPECT_FALSE(std::filesystem::exists(to + "/model.onnx"));

  ASSERT_OK_AND_ASSIGN(
      const auto submitted,
      cluster_->Synctl({"download", job.job_id(), "model.onnx", "--to", to}));
  EXPECT_EQ(submitted.exit.code, 0) << submitted.err;
  EXPECT_EQ(*ReadFile(to + "/model.onnx", 10000), MlpModel(784, 32, 10));

  ASSERT_OK_AND_ASSIGN(
      const auto unknown,
      cluster_->Synctl({"download", job.job_id(), "nothing", "--to", to}));
  EXPECT_EQ(unknown.exit.code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("it has: "));
  EXPECT_THAT(unknown.err, HasSubstr("trained.onnx"));

  ASSERT_OK_AND_ASSIGN(const ctl::FolderClaim other,
                       ctl::FolderClaim::Take(to));
  ASSERT_OK_AND_ASSIGN(
      const auto second,
      cluster_->Synctl({"download", job.job_id(), "--to", to}));
  EXPECT_EQ(second.exit.code, 1);
  EXPECT_THAT(second.err,
              HasSubstr(absl::StrCat("another synctl (pid ", getpid(),
                                     ") writes to ", to)));
}

TEST_F(CommandsTest, ATrainedModelOfManyChunksIsAModelToSubmit) {
  JobSpec job = DigitsJob();
  job.set_name("large");
  job.mutable_training()->set_max_clocks(1);
  ASSERT_OK_AND_ASSIGN(
      const JobStatus first,
      cluster_->Train(WriteJob(cluster_->dir(), job, MlpModel(784, 4096, 10))));
  ASSERT_OK_AND_ASSIGN(const std::string file,
                       cluster_->FetchModel(first.job_id()));
  ASSERT_OK_AND_ASSIGN(const std::string bytes, ReadFile(file, 1 << 30));
  EXPECT_GT(bytes.size(), 12u << 20);

  // The model keeps its values where no rule replaces them. A step of almost no
  // length leaves them as they are.
  job.set_name("large-again");
  job.mutable_model()->clear_initialize();
  job.mutable_learning_rate()->set_base(1e-30f);
  ASSERT_OK_AND_ASSIGN(const JobStatus second,
                       cluster_->Train(WriteJob(cluster_->dir(), job, bytes)));
  ASSERT_OK_AND_ASSIGN(const std::string again,
                       cluster_->FetchModel(second.job_id()));
  ASSERT_OK_AND_ASSIGN(const Weights before, ReadWeights(file));
  ASSERT_OK_AND_ASSIGN(const Weights after, ReadWeights(again));
  EXPECT_EQ(before.size(), 4u);
  EXPECT_EQ(LargestDifference(before, after), 0);
}

TEST_F(CommandsTest, CancelEndsAJobAndFreesItsTasks) {
  ASSERT_OK_AND_ASSIGN(const std::string job_id,
                       cluster_->Submit(Write(EndlessJob())));
  ASSERT_OK(cluster_->WaitForClock(job_id, 1, absl::Seconds(60)));
  ASSERT_OK_AND_ASSIGN(auto watch, cluster_->StartSynctl({"watch", job_id}));
  ASSERT_TRUE(Eventually(absl::Seconds(30), [&] {
    return watch->out().find("running") != std::string::npos;
  }));
  ASSERT_OK_AND_ASSIGN(
      const auto cancel,
      cluster_->Synctl({"cancel", job_id, "--reason", "changed my mind"}));
  EXPECT_EQ(cancel.exit.code, 0) << cancel.err;
  ASSERT_OK_AND_ASSIGN(const auto watched, watch->Finish(absl::Seconds(30)));
  EXPECT_EQ(watched.exit.code, 130);
  EXPECT_THAT(watched.err, HasSubstr("changed my mind"));
  EXPECT_OK(cluster_->WaitForFreeMembers(3, absl::Seconds(30)));

  ASSERT_OK_AND_ASSIGN(const auto again, cluster_->Synctl({"cancel", job_id}));
  EXPECT_EQ(again.exit.code, 1) << "it has ended";
}

TEST_F(CommandsTest, CtrlCOnAWatchLeavesTheJobRunning) {
  ASSERT_OK_AND_ASSIGN(
      auto submit,
      cluster_->StartSynctl({"submit", Write(EndlessJob()), "--watch"}));
  ASSERT_TRUE(Eventually(absl::Seconds(60), [&] {
    return submit->out().find("running") != std::string::npos;
  })) << submit->out();
  submit->process().Signal(SIGINT);
  ASSERT_OK_AND_ASSIGN(const auto result, submit->Finish(absl::Seconds(30)));
  EXPECT_EQ(result.exit.code, 130);
  EXPECT_THAT(result.err, HasSubstr("goes on"));
  const size_t at = result.out.find("j-");
  ASSERT_NE(at, std::string::npos);
  const std::string job_id =
      result.out.substr(at, result.out.find(' ', at) - at);
  EXPECT_THAT(result.err, HasSubstr("synctl cancel " + job_id));
  ASSERT_OK_AND_ASSIGN(const JobStatus job, cluster_->Get(job_id));
  EXPECT_EQ(job.state(), RUNNING);
  ASSERT_OK(cluster_->Synctl({"cancel", job_id}));
  EXPECT_OK(cluster_->WaitForFreeMembers(3, absl::Seconds(30)));
}

TEST_F(CommandsTest, ListGetAndClusterShowWhatThereIs) {
  ASSERT_OK_AND_ASSIGN(const JobStatus job,
                       cluster_->Train(Write(EvaluatedJob("listed"))));
  ASSERT_OK_AND_ASSIGN(const auto list,
                       cluster_->Synctl({"list", "--state", "succeeded"}));
  EXPECT_EQ(list.exit.code, 0);
  EXPECT_THAT(list.out, HasSubstr(job.job_id()));
  EXPECT_THAT(list.out, HasSubstr("listed"));
  ASSERT_OK_AND_ASSIGN(const auto queued,
                       cluster_->Synctl({"list", "--state", "queued"}));
  EXPECT_THAT(queued.out, Not(HasSubstr(job.job_id())));
  ASSERT_OK_AND_ASSIGN(const auto get, cluster_->Synctl({"get", job.job_id()}));
  EXPECT_EQ(get.exit.code, 0);
  EXPECT_THAT(get.out, HasSubstr("trained.onnx"));
  EXPECT_THAT(get.out, HasSubstr("chief:0"));
  ASSERT_OK_AND_ASSIGN(const auto cluster, cluster_->Synctl({"cluster"}));
  EXPECT_EQ(cluster.exit.code, 0);
  for (const char* task : {"ps:0", "chief:0", "worker:0"}) {
    EXPECT_THAT(cluster.out, HasSubstr(task));
  }
}

TEST_F(CommandsTest, TopShowsJobsAndMembersOnceWhereThereIsNoTerminal) {
  ASSERT_OK_AND_ASSIGN(const auto text, cluster_->Synctl({"top"}));
  EXPECT_EQ(text.exit.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("JOB        NAME"));
  EXPECT_THAT(text.out, HasSubstr("members 3"));
  EXPECT_THAT(text.out, HasSubstr("worker:0"));
  EXPECT_THAT(text.out, Not(HasSubstr("\x1b")));
  ASSERT_OK_AND_ASSIGN(const auto json,
                       cluster_->Synctl({"top", "--output", "json"}));
  EXPECT_EQ(json.exit.code, 0) << json.err;
  EXPECT_THAT(json.out, HasSubstr("\"members\":["));
  ASSERT_OK_AND_ASSIGN(const auto wrong,
                       cluster_->Synctl({"top", "--period", "nan"}));
  EXPECT_EQ(wrong.exit.code, 2);
}

TEST_F(CommandsTest, UnknownJobsAreNamed) {
  for (const char* command : {"get", "watch", "cancel", "download"}) {
    ASSERT_OK_AND_ASSIGN(const auto result,
                         cluster_->Synctl({command, "j-9999"}));
    EXPECT_EQ(result.exit.code, 1) << command;
    EXPECT_THAT(result.err, HasSubstr("j-9999")) << command;
  }
}

TEST_F(CommandsTest, MoreWorkersThanThereAreWaitsAndSaysForWhat) {
  JobSpec job = DigitsJob();
  job.set_name("greedy");
  job.mutable_resources()->set_workers(5);
  ASSERT_OK_AND_ASSIGN(const std::string job_id, cluster_->Submit(Write(job)));
  ASSERT_OK_AND_ASSIGN(const JobStatus waiting, cluster_->Get(job_id));
  EXPECT_EQ(waiting.state(), QUEUED);
  EXPECT_THAT(waiting.waiting_for(), HasSubstr("5"));
  EXPECT_THAT(waiting.waiting_for(), HasSubstr("2"));
  ASSERT_OK_AND_ASSIGN(const auto cancel, cluster_->Synctl({"cancel", job_id}));
  EXPECT_EQ(cancel.exit.code, 0) << cancel.err;
  EXPECT_OK(cluster_->Train(Write(DigitsJob())));
}

TEST_F(CommandsTest, JobsRunOneAfterTheOther) {
  ASSERT_OK_AND_ASSIGN(const std::string endless,
                       cluster_->Submit(Write(EndlessJob())));
  JobSpec job = DigitsJob();
  job.mutable_resources()->set_workers(2);
  ASSERT_OK_AND_ASSIGN(const std::string next, cluster_->Submit(Write(job)));
  ASSERT_OK(cluster_->WaitForClock(endless, 1, absl::Seconds(60)));
  ASSERT_OK_AND_ASSIGN(const JobStatus waiting, cluster_->Get(next));
  EXPECT_EQ(waiting.state(), QUEUED);
  ASSERT_OK(cluster_->Synctl({"cancel", endless}));
  ASSERT_OK_AND_ASSIGN(const JobStatus done,
                       cluster_->WaitForEnd(next, absl::Seconds(60)));
  EXPECT_EQ(done.state(), SUCCEEDED);
}

TEST_F(CommandsTest, DoctorAndTfConfigAgree) {
  ASSERT_OK_AND_ASSIGN(const auto written,
                       cluster_->Synctl({"tf-config", "--task", "ps:0"}));
  ASSERT_EQ(written.exit.code, 0) << written.err;
  // The task is taken, and doctor must say so; offline it cannot know.
  const std::string synctl = BinaryDir() + "/synctl";
  ASSERT_OK_AND_ASSIGN(
      auto online,
      RunningProgram::Start(cluster_->dir().path(), {synctl, "doctor"},
                            {{"TF_CONFIG", written.out}}));
  ASSERT_OK_AND_ASSIGN(const auto taken, online->Finish(absl::Seconds(60)));
  EXPECT_EQ(taken.exit.code, 1);
  EXPECT_THAT(taken.out, HasSubstr("ps:0 is already taken by process"));
  EXPECT_THAT(taken.out, HasSubstr("is in use"));
  ASSERT_OK_AND_ASSIGN(auto offline,
                       RunningProgram::Start(cluster_->dir().path(),
                                             {synctl, "doctor", "--offline"},
                                             {{"TF_CONFIG", written.out}}));
  ASSERT_OK_AND_ASSIGN(const auto usable, offline->Finish(absl::Seconds(60)));
  EXPECT_EQ(usable.exit.code, 0) << usable.out;
}

TEST_F(CommandsTest, WrongUsageAndNoSchedulerHaveTheirOwnCodes) {
  ASSERT_OK_AND_ASSIGN(const auto usage, cluster_->Synctl({"submit"}));
  EXPECT_EQ(usage.exit.code, 2);
  ASSERT_OK_AND_ASSIGN(const auto command, cluster_->Synctl({"no-such"}));
  EXPECT_EQ(command.exit.code, 2);
  const std::string unused = absl::StrCat("127.0.0.1:", UnusedPort());
  ASSERT_OK_AND_ASSIGN(
      const auto gone,
      cluster_->Synctl({"list", "--scheduler", unused}, absl::Seconds(30)));
  EXPECT_EQ(gone.exit.code, 3);
  EXPECT_THAT(gone.err, HasSubstr(unused));
  ASSERT_OK_AND_ASSIGN(
      const auto json,
      cluster_->Synctl({"list", "--scheduler", unused, "--output", "json"}));
  EXPECT_EQ(json.exit.code, 3);
  google::protobuf::Struct error;
  EXPECT_TRUE(
      google::protobuf::util::JsonStringToMessage(json.out, &error).ok());
  EXPECT_TRUE(error.fields().contains("error")) << json.out;
}

TEST_F(CommandsTest, TheSchedulerMayBeNamedBeforeTheCommand) {
  const std::string no_scheduler = absl::StrCat("127.0.0.1:", UnusedPort());
  const std::string& here = cluster_->scheduler_address();
  ASSERT_OK_AND_ASSIGN(const auto before,
                       cluster_->Synctl({"--scheduler", here, "list"}));
  EXPECT_EQ(before.exit.code, 0) << before.err;
  ASSERT_OK_AND_ASSIGN(const auto both,
                       cluster_->Synctl({"--scheduler", no_scheduler, "list",
                                         "--scheduler", here}));
  EXPECT_EQ(both.exit.code, 0) << "what is said last counts: " << both.err;
  ASSERT_OK_AND_ASSIGN(const auto other,
                       cluster_->Synctl({"--scheduler", no_scheduler, "list"}));
  EXPECT_EQ(other.exit.code, 3);
  ASSERT_OK_AND_ASSIGN(
      const auto unused,
      cluster_->Synctl({"--scheduler", here, "local", "job.textproto"}));
  EXPECT_EQ(unused.exit.code, 2);
  EXPECT_THAT(unused.err, HasSubstr("synctl local asks no scheduler"));
  ASSERT_OK_AND_ASSIGN(const auto no_port,
                       cluster_->Synctl({"--scheduler", "foo", "list"}));
  EXPECT_EQ(no_port.exit.code, 2);
  EXPECT_THAT(no_port.err, HasSubstr("\"foo\" has no port; give host:port, as "
                                     "in foo:7070"));
}

TEST_F(CommandsTest, WrongUsageIsJsonWhereJsonIsAskedFor) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{
           {"submit", "-o", "json"},
           {"list", "--no-such", "--output=json"},
           {"list", "--state", "odd", "-o", "json"}}) {
    ASSERT_OK_AND_ASSIGN(const auto usage, cluster_->Synctl(arguments));
    EXPECT_EQ(usage.exit.code, 2);
    EXPECT_EQ(usage.err, "");
    google::protobuf::Struct object;
    ASSERT_TRUE(
        google::protobuf::util::JsonStringToMessage(usage.out, &object).ok())
        << usage.out;
    EXPECT_EQ(object.fields()
                  .at("error")
                  .struct_value()
                  .fields()
                  .at("code")
                  .string_value(),
              "INVALID_ARGUMENT");
  }
}

TEST_F(CommandsTest, AListInJsonHasNoInventedSpecs) {
  ASSERT_OK(cluster_->Train(Write(EvaluatedJob("elided"))));
  ASSERT_OK_AND_ASSIGN(const auto list,
                       cluster_->Synctl({"list", "-o", "json"}));
  EXPECT_THAT(list.out, HasSubstr(R"("spec":{"name":"elided"})"));
  ListResponse parsed;
  EXPECT_TRUE(
      google::protobuf::util::JsonStringToMessage(list.out, &parsed).ok());
  EXPECT_GT(parsed.jobs_size(), 0);
}

// The job is queued, its author is told, and the next job does not wait.
TEST_F(CommandsTest, AJobLargerThanTheClusterIsToldAndOvertaken) {
  JobSpec job = EvaluatedJob("large");
  job.mutable_resources()->set_workers(7);
  ASSERT_OK_AND_ASSIGN(const auto submit,
                       cluster_->Synctl({"submit", Write(job)}));
  EXPECT_EQ(submit.exit.code, 0);
  EXPECT_THAT(submit.err,
              HasSubstr("needs 7 workers and 1 ps, but the cluster has 2 "
                        "workers (2 free) and 1 ps (1 free)"));
  ASSERT_OK(cluster_->Train(Write(EvaluatedJob("small"))));
  const size_t at = submit.out.find("j-");
  const std::string large =
      submit.out.substr(at, submit.out.find(' ', at) - at);
  ASSERT_OK_AND_ASSIGN(const JobStatus waiting, cluster_->Get(large));
  EXPECT_EQ(waiting.state(), QUEUED);
  EXPECT_THAT(waiting.waiting_for(), HasSubstr("more than this cluster has"));
  EXPECT_OK(cluster_->Synctl({"cancel", large}));
}

// A step takes long enough for a thousand of them to outlast a test.
JobSpec SlowEndlessJob(const std::string& name) {
  JobSpec job = EndlessJob();
  job.set_name(name);
  job.mutable_training()->set_batch_size(512);
  return job;
}

TEST_F(CommandsTest, ProfileShowsWhereTheStepsOfARunningJobGo) {
  JobSpec job = EndlessJob();
  job.set_name("profiled");
  job.mutable_resources()->set_workers(2);
  ASSERT_OK_AND_ASSIGN(const std::string id, cluster_->Submit(Write(job)));
  ASSERT_OK(cluster_->WaitForClock(id, 3, absl::Seconds(60)));
  const std::string trace = cluster_->dir().File("trace.json");
  ASSERT_OK_AND_ASSIGN(const auto result,
                       cluster_->Synctl({"profile", id, "--rank", "1",
                                         "--steps", "7", "--trace", trace}));
  EXPECT_EQ(result.exit.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("(rank 1): 7 steps from clock "));
  for (const char* part : {"Gemm", "Relu", "forward", "backward", "push"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  google::protobuf::Struct events;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(
                  *ReadFile(trace, 10 << 20), &events)
                  .ok());
  // Of each step itself and of three nodes, forward and backward.
  EXPECT_GT(events.fields().at("traceEvents").list_value().values_size(),
            7 * 7);

  ASSERT_OK_AND_ASSIGN(const auto json,
                       cluster_->Synctl({"profile", id, "--output", "json"}));
  google::protobuf::Struct object;
  ASSERT_TRUE(
      google::protobuf::util::JsonStringToMessage(json.out, &object).ok());
  EXPECT_EQ(object.fields().at("steps").number_value(), 20);
  EXPECT_GT(object.fields().at("step_seconds").number_value(), 0);
  EXPECT_GT(object.fields().at("threads").number_value(), 0);

  ASSERT_OK_AND_ASSIGN(const auto unknown,
                       cluster_->Synctl({"profile", id, "--rank", "2"}));
  EXPECT_EQ(unknown.exit.code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("has no worker 2; it has 2"));
  EXPECT_OK(cluster_->Synctl({"cancel", id}));
  ASSERT_OK_AND_ASSIGN(const auto over, cluster_->Synctl({"profile", id}));
  EXPECT_EQ(over.exit.code, 1);
  EXPECT_THAT(over.err, HasSubstr("is CANCELLED; only a running job"));
}

TEST_F(CommandsTest, AProfileThatDoesNotComeIsNotWaitedForForEver) {
  ASSERT_OK_AND_ASSIGN(
      const std::string id,
      cluster_->Submit(WriteJob(cluster_->dir(), SlowEndlessJob("slow"),
                                MlpModel(784, 1024, 10))));
  ASSERT_OK(cluster_->WaitForClock(id, 1, absl::Seconds(60)));
  ASSERT_OK_AND_ASSIGN(
      const auto late,
      cluster_->Synctl({"profile", id, "--steps", "1000", "--timeout", "1"}));
  EXPECT_EQ(late.exit.code, 1);
  EXPECT_THAT(late.err, HasSubstr("no profile of 1000 steps from worker 0 "
                                  "within 1s"));
  ASSERT_OK_AND_ASSIGN(
      const auto waiting,
      cluster_->StartSynctl({"profile", id, "--steps", "1000"}));
  // synctl has asked for the profile, or its request fails at once.
  ASSERT_OK(cluster_->Synctl({"cancel", id}));
  ASSERT_OK_AND_ASSIGN(const auto ended, waiting->Finish(absl::Seconds(30)));
  EXPECT_EQ(ended.exit.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("is CANCELLED"));
}

TEST_F(CommandsTest, HelpTeaches) {
  ASSERT_OK_AND_ASSIGN(const auto help, cluster_->Synctl({"--help"}));
  EXPECT_EQ(help.exit.code, 0);
  EXPECT_THAT(help.out, HasSubstr("Exit codes"));
  for (const char* command :
       {"submit", "watch", "list", "get", "cancel", "download", "local",
        "cluster", "doctor", "tf-config", "tables", "plan", "profile",
        "version", "help"}) {
    EXPECT_THAT(help.out, HasSubstr(command));
    ASSERT_OK_AND_ASSIGN(const auto sub, cluster_->Synctl({command, "--help"}));
    EXPECT_EQ(sub.exit.code, 0) << command;
    EXPECT_THAT(sub.out, HasSubstr("--output")) << command;
    EXPECT_THAT(sub.out, HasSubstr("Exit codes")) << command;
    EXPECT_THAT(sub.out, HasSubstr(absl::StrCat("  synctl ", command)))
        << "its own examples";
    EXPECT_THAT(sub.out, Not(HasSubstr("synctl list --state running")))
        << command << " repeats the general ones";
  }
  ASSERT_OK_AND_ASSIGN(const auto all, cluster_->Synctl({"help"}));
  EXPECT_EQ(all.out, help.out);
  ASSERT_OK_AND_ASSIGN(const auto list, cluster_->Synctl({"help", "list"}));
  EXPECT_THAT(list.out, AllOf(HasSubstr("Usage: synctl list [OPTIONS]"),
                              HasSubstr("synctl list --state queued")));
  ASSERT_OK_AND_ASSIGN(const auto job,
                       cluster_->Synctl({"help", "job", "optimizer"}));
  EXPECT_EQ(job.exit.code, 0) << job.err;
  EXPECT_THAT(job.out, HasSubstr("clip_norm"));
  for (const std::vector<std::string>& unknown :
       std::vector<std::vector<std::string>>{{"help", "no-such"},
                                             {"help", "list", "limit"},
                                             {"help", "job", "optimiser"}}) {
    ASSERT_OK_AND_ASSIGN(const auto nothing, cluster_->Synctl(unknown));
    EXPECT_EQ(nothing.exit.code, 2) << nothing.out;
    EXPECT_THAT(nothing.err, HasSubstr(unknown.back()));
  }
}

TEST_F(CommandsTest, CompletionKnowsTopicsAndValues) {
  ASSERT_OK_AND_ASSIGN(const auto script,
                       cluster_->Synctl({"completion", "bash"}));
  EXPECT_THAT(
      script.out,
      AllOf(HasSubstr("\"regime --mode\") words=\"sync bounded-staleness "
                      "async\""),
            HasSubstr("\"list --output\") words=\"text json\""),
            HasSubstr("job submit resume"), HasSubstr("--strategy"),
            HasSubstr("\"regime --wire-type\") words=\"float32 bfloat16 "
                      "float16\"")));
}

TEST_F(CommandsTest, NumbersAndTasksThatSayTooLittleAreWrongUsage) {
  for (const auto& [words, message] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"logs", "j-0001", "--tail", "0"}, "--tail: 0 lines are none"},
           {{"drain", "worker"},
            "which worker? Give its index too, as in "
            "worker:0"},
           {{"cordon", "ps"}, "which ps? "}}) {
    ASSERT_OK_AND_ASSIGN(const auto result, cluster_->Synctl(words));
    EXPECT_EQ(result.exit.code, 2);
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

}  // namespace
}  // namespace syncline

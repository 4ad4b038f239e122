// Goal: the client of the Jobs service ends every call, moves files whole, and
// rides over a stream that breaks. Method: a fake service in this process, on
// a port the system picks.

#include "scheduler/ctl/jobs_client.h"

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/crc32c.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/user_calls.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/temp_dir.h"

namespace syncline::ctl {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Serves one file, keeps what is submitted, and breaks the first watch.
class FakeJobs : public Jobs::Service {
 public:
  grpc::Status Submit(grpc::ServerContext*,
                      grpc::ServerReader<SubmitRequest>* reader,
                      SubmitResponse* response) override {
    SubmitRequest request;
    while (reader->Read(&request)) {
      if (request.has_begin()) {
        name_ = request.begin().spec().name();
        keys.push_back(request.begin().client_key());
      }
      if (request.has_model()) model_ += request.model().data();
      last_chunk_ = request.model();
    }
    response->set_job_id("j-0001");
    response->set_repeated_submission(keys.size() > 1);
    if (lose_answers > 0) {
      --lose_answers;
      return {grpc::StatusCode::UNAVAILABLE, "lost"};
    }
    return grpc::Status::OK;
  }
  grpc::Status GetCluster(grpc::ServerContext* context,
                          const GetClusterRequest*, ClusterStatus*) override {
    const auto found = context->client_metadata().find("authorization");
    if (found != context->client_metadata().end()) {
      authorization_.assign(found->second.data(), found->second.size());
    }
    return grpc::Status::OK;
  }
  grpc::Status Watch(grpc::ServerContext* context, const WatchRequest* request,
                     grpc::ServerWriter<JobStatus>* writer) override {
    JobStatus job;
    job.set_job_id(request->job_id());
    job.set_state(RUNNING);
    if (request->job_id() == "stopping") return watch_ends_with;
    writer->Write(job);
    if (request->job_id() == "silent") {
      Eventually(absl::Minutes(1), [&] { return context->IsCancelled(); });
    }
    if (++watches_ == 1) return {grpc::StatusCode::UNAVAILABLE, "restart"};
    job.set_state(SUCCEEDED);
    writer->Write(job);
    return grpc::Status::OK;
  }
  grpc::Status Download(grpc::ServerContext*, const DownloadRequest* request,
                        grpc::ServerWriter<FileChunk>* writer) override {
    FileChunk chunk;
    chunk.set_data("half ");
    writer->Write(chunk);
    if (request->name() == "cut off") return grpc::Status::OK;
    chunk.set_offset(5);
    chunk.set_data("whole");
    chunk.set_last(true);
    chunk.set_crc32c(request->name() == "damaged" ? 1 : Crc32c("half whole"));
    writer->Write(chunk);
    return grpc::Status::OK;
  }

  int lose_answers = 0;
  std::vector<std::string> keys;  // of the submissions
  grpc::Status watch_ends_with;

  const std::string& name() const { return name_; }
  const std::string& model() const { return model_; }
  const FileChunk& last_chunk() const { return last_chunk_; }
  int watches() const { return watches_; }
  const std::string& authorization() const { return authorization_; }

 private:
  // One call at a time in these tests, each answered before it is looked at.
  std::string name_;
  std::string model_;
  FileChunk last_chunk_;
  int watches_ = 0;
  std::string authorization_;  // of the last GetCluster that had one
};

class JobsClientTest : public testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.RegisterService(&jobs_);
    auto server = StartServer(&builder, "127.0.0.1:0");
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = std::make_unique<JobsClient>(server_.address);
  }

  absl::Status Download(const std::string& name) {
    Artifact artifact;
    artifact.set_name(name);
    artifact.set_size_bytes(10);
    return client_->Download("j-0001", artifact, dir_.File("file"),
                             [](uint64_t, uint64_t) { return true; });
  }

  const TempDir dir_;
  InterruptSignals interrupts_;
  FakeJobs jobs_;
  ListeningServer server_;
  std::unique_ptr<JobsClient> client_;
};

TEST_F(JobsClientTest, SubmitSendsTheModelInChunksWithItsChecksum) {
  std::string model;
  for (int i = 0; model.size() < (5u << 20); ++i) absl::StrAppend(&model, i);
  JobSpec spec;
  spec.set_name("chunked");
  uint64_t done = 0;
  const auto id = client_->Submit(spec, dir_.Write("model", model), "",
                                  [&](uint64_t sent, uint64_t total) {
                                    done = sent;
                                    EXPECT_EQ(total, model.size());
                                    return true;
                                  });
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(id->job_id(), "j-0001");
  EXPECT_EQ(jobs_.name(), "chunked");
  EXPECT_TRUE(jobs_.model() == model);
  EXPECT_TRUE(jobs_.last_chunk().last());
  EXPECT_EQ(jobs_.last_chunk().crc32c(), Crc32c(model));
  EXPECT_GT(done, 0u);
}

TEST_F(JobsClientTest, ATokenGoesInPlainTextToLoopbackAlone) {
  SetCallToken("secret");
  EXPECT_TRUE(client_->GetCluster().ok());
  EXPECT_EQ(jobs_.authorization(), "Bearer secret");
  // An address for documentation: nobody answers there.
  const auto refused = JobsClient("192.0.2.1:7070").GetCluster().status();
  SetCallToken("");
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("in plain text to 192.0.2.1:7070"));
}

TEST_F(JobsClientTest, AnInterruptedUploadSubmitsNothing) {
  const auto id = client_->Submit(JobSpec(), dir_.Write("model", "bytes"), "",
                                  [](uint64_t, uint64_t) { return false; });
  EXPECT_TRUE(absl::IsCancelled(id.status())) << id.status();
}

TEST_F(JobsClientTest, ALostAnswerIsAskedForAgainWithTheSameKey) {
  jobs_.lose_answers = 2;
  const auto submitted =
      client_->Submit(JobSpec(), dir_.Write("model", "bytes"), "nightly",
                      [](uint64_t, uint64_t) { return true; });
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  EXPECT_EQ(submitted->job_id(), "j-0001");
  EXPECT_FALSE(submitted->repeated_submission()) << "that was this one";
  EXPECT_THAT(jobs_.keys, ElementsAre("nightly", "nightly", "nightly"));
  // Without a key a repeat might be a second job.
  jobs_.lose_answers = 1;
  EXPECT_FALSE(client_
                   ->Submit(JobSpec(), dir_.Write("model", "bytes"), "",
                            [](uint64_t, uint64_t) { return true; })
                   .ok());
}

TEST_F(JobsClientTest, AWatchKnowsASchedulerThatStopsFromOneThatIsLost) {
  for (const auto code :
       {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::CANCELLED}) {
    jobs_.watch_ends_with = {code, "the scheduler is stopping"};
    JobsClient::WatchOptions options;
    options.on_status = [](const JobStatus&) {};
    options.on_idle = [] { return absl::OkStatus(); };
    options.reconnect_for = absl::Milliseconds(500);
    const auto end = client_->Watch("stopping", options, &interrupts_);
    EXPECT_TRUE(absl::IsAborted(end.status())) << end.status();
    EXPECT_THAT(std::string(end.status().message()),
                HasSubstr("the scheduler is stopping"));
  }
}

TEST_F(JobsClientTest, ADownloadIsWholeOrNotThere) {
  ASSERT_TRUE(Download("good").ok());
  EXPECT_EQ(*ReadFile(dir_.File("file"), 100), "half whole");
  std::filesystem::remove(dir_.File("file"));
  for (const char* name : {"damaged", "cut off"}) {
    const absl::Status status = Download(name);
    EXPECT_TRUE(absl::IsDataLoss(status)) << name << ": " << status;
    EXPECT_TRUE(std::filesystem::is_empty(dir_.path())) << name;
  }
}

TEST_F(JobsClientTest, TwoDownloadsOfOneFileDoNotMix) {
  Artifact artifact;
  artifact.set_name("good");
  artifact.set_size_bytes(10);
  int inner = 0;
  const absl::Status outer = client_->Download(
      "j-0001", artifact, dir_.File("file"), [&](uint64_t, uint64_t) {
        ++inner;
        EXPECT_TRUE(Download("good").ok());
        EXPECT_EQ(*ReadFile(dir_.File("file"), 100), "half whole");
        return true;
      });
  EXPECT_TRUE(outer.ok()) << outer;
  EXPECT_EQ(inner, 2);
  EXPECT_EQ(*ReadFile(dir_.File("file"), 100), "half whole");
  std::filesystem::remove(dir_.File("file"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(JobsClientTest, WatchRidesOverABrokenStream) {
  int statuses = 0;
  JobsClient::WatchOptions options;
  options.on_status = [&](const JobStatus&) { ++statuses; };
  options.on_idle = [] { return absl::OkStatus(); };
  const auto job = client_->Watch("j-0001", options, &interrupts_);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->state(), SUCCEEDED);
  EXPECT_EQ(jobs_.watches(), 2);
  EXPECT_EQ(statuses, 3);
}

TEST_F(JobsClientTest, WatchEndsWhereItsOwnerSaysSo) {
  JobsClient::WatchOptions options;
  options.on_status = [](const JobStatus&) {};
  options.on_idle = [] { return absl::CancelledError("enough"); };
  const auto job = client_->Watch("j-0001", options, &interrupts_);
  EXPECT_TRUE(absl::IsCancelled(job.status())) << job.status();
}

TEST_F(JobsClientTest, ASchedulerThatSaysNothingIsReportedThenLeft) {
  std::vector<absl::Duration> silences;
  JobsClient::WatchOptions options;
  options.on_status = [](const JobStatus&) {};
  options.on_idle = [] { return absl::OkStatus(); };
  options.on_silence = [&](absl::Duration s) { silences.push_back(s); };
  options.silence_told = absl::Milliseconds(300);
  options.silence_max = absl::Milliseconds(1500);
  const auto job = client_->Watch("silent", options, &interrupts_);
  EXPECT_TRUE(absl::IsUnavailable(job.status())) << job.status();
  EXPECT_THAT(std::string(job.status().message()),
              testing::AllOf(HasSubstr(server_.address), HasSubstr("no news")));
  ASSERT_GE(silences.size(), 2);
  EXPECT_GE(silences[0], absl::Milliseconds(300));
}

// As a ps or a worker answers.
TEST_F(JobsClientTest, WhoIsNoSchedulerIsNamed) {
  const auto job = client_->Cancel("j-0001", "");
  EXPECT_EQ(job.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(
      std::string(job.status().message()),
      AllOf(HasSubstr(absl::StrCat("no scheduler answers at ", server_.address,
                                   ": what answers there")),
            HasSubstr("another kind of daemon")));
}

TEST_F(JobsClientTest, ASchedulerThatIsGoneIsNamed) {
  const std::string address = server_.address;
  server_.server->Shutdown(absl::ToChronoTime(absl::Now()));
  server_.server.reset();
  const auto job = JobsClient(address).Get("j-0001");
  EXPECT_TRUE(absl::IsUnavailable(job.status())) << job.status();
  EXPECT_THAT(std::string(job.status().message()), HasSubstr(address));

  JobsClient::WatchOptions options;
  options.on_status = [](const JobStatus&) {};
  options.on_idle = [] { return absl::OkStatus(); };
  options.reconnect_for = absl::Milliseconds(300);
  EXPECT_TRUE(absl::IsUnavailable(
      JobsClient(address).Watch("j-0001", options, &interrupts_).status()));
}

}  // namespace
}  // namespace syncline::ctl

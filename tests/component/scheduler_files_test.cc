// Goal: the files of jobs come back as they were stored, from whoever may store
// them, and nothing is left of an upload that fails. Method: a real scheduler
// over gRPC (scheduler_fixture.h), uploads by its own client and by hand.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/cluster/declared_size.h"
#include "common/cluster/file_chunks.h"
#include "common/cluster/scheduler_session.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/cluster/transfer_queue.h"
#include "scheduler/service/scheduler.h"
#include "tests/testing/scheduler_fixture.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using testing::FakeDaemon;
using ::testing::HasSubstr;
using testing::kTinyModel;
using testing::SchedulerFixture;
using testing::TinyJob;

class SchedulerFilesTest : public SchedulerFixture {
 protected:
  // The answer to a submission whose metadata say that the model has `declared`
  // bytes, and that sends `model` if it is not refused before.
  absl::Status SubmitDeclared(uint64_t declared, const std::string& model) {
    const auto context = MakeContext(absl::Now() + kPatience);
    DeclareFileBytes(declared, context.get());
    SubmitResponse response;
    const auto writer = jobs_->Submit(context.get(), &response);
    SubmitRequest request;
    *request.mutable_begin()->mutable_spec() = TinyJob(1, 1);
    writer->Write(request);
    if (!model.empty()) {
      request.mutable_model()->set_data(model);
      request.mutable_model()->set_last(true);
      request.mutable_model()->set_crc32c(Crc32c(model));
      writer->Write(request);
      writer->WritesDone();
    }
    return FromGrpcStatus(writer->Finish());
  }
};

TEST_F(SchedulerFilesTest, TheMembersOfAJobAloneFetchItsModel) {
  const auto fetch = [&](const DownloadRequest& download) {
    return FetchArtifact(server_.address, download, dir_ / "model",
                         absl::Now() + kPatience);
  };
  const std::string job_id = MustSubmit(TinyJob(1, 1));
  DownloadRequest early;
  early.set_job_id(job_id);
  early.set_name("model.onnx");
  EXPECT_EQ(fetch(early).code(), absl::StatusCode::kFailedPrecondition);
  AddDaemon(PS, 0);
  FakeDaemon* worker = AddDaemon(WORKER, 0, {.finishes = false});
  AwaitState(job_id, RUNNING);
  const DownloadRequest right = worker->Download(job_id, "model.onnx");
  for (const std::string& secret : {std::string(), std::string(16, '\0')}) {
    DownloadRequest wrong = right;
    wrong.set_job_secret(secret);
    const absl::Status refused = fetch(wrong);
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(refused.message(), HasSubstr("secret of attempt 1"));
  }
  DownloadRequest of_another = right;
  of_another.set_attempt(2);
  EXPECT_EQ(fetch(of_another).code(), absl::StatusCode::kFailedPrecondition);
  DownloadRequest of_none = right;
  of_none.set_job_id("j-0002");
  EXPECT_EQ(fetch(of_none).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "model"));
  EXPECT_THAT(ReadFile(dir_ / "state/audit.log", 1 << 20).value_or(""),
              HasSubstr("\"action\":\"fetch\",\"job\":\"j-0001\","
                        "\"outcome\":\"PERMISSION_DENIED\""));
  const absl::Status status = fetch(right);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(*ReadFile(dir_ / "model", 1 << 20), kTinyModel);
}

TEST_F(SchedulerFilesTest, UploadsThatBreakOffAreRefused) {
  const auto context = MakeContext(absl::Now() + kPatience);
  SubmitResponse response;
  const auto writer = jobs_->Submit(context.get(), &response);
  SubmitRequest request;
  *request.mutable_begin()->mutable_spec() = TinyJob(1, 1);
  writer->Write(request);
  request.mutable_model()->set_data("half");
  writer->Write(request);
  writer->WritesDone();
  EXPECT_EQ(writer->Finish().error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "state/incoming"));
}

TEST_F(SchedulerFilesTest, ABadChunkIsNoticedBeforeTheEnd) {
  const auto context = MakeContext(absl::Now() + kPatience);
  SubmitResponse response;
  const auto writer = jobs_->Submit(context.get(), &response);
  SubmitRequest request;
  *request.mutable_begin()->mutable_spec() = TinyJob(1, 1);
  writer->Write(request);
  request.mutable_model()->set_data("first");
  request.mutable_model()->set_crc32c(Crc32c("another"));
  writer->Write(request);
  // Not the last chunk, and the call is answered all the same.
  const absl::Status refused = FromGrpcStatus(writer->Finish());
  EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(refused.message(), HasSubstr("checksum mismatch after 5 bytes"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "state/incoming"));
}

TEST_F(SchedulerFilesTest, FilesOutliveTheRecordsOfTheirJobs) {
  const std::string lost = MustSubmit(TinyJob(1, 1));
  const std::filesystem::path model = dir_ / "state/jobs" / lost / "model.onnx";
  StopScheduler();
  std::filesystem::remove_all(dir_ / "state/db");
  StartScheduler(server_.address);
  EXPECT_FALSE(Get(lost).ok());
  EXPECT_TRUE(std::filesystem::exists(model));
  // Nor does another job get its number and replace them.
  EXPECT_NE(MustSubmit(TinyJob(1, 1)), lost);
  RestartScheduler();
  EXPECT_EQ(*ReadFile(model, 1 << 20), kTinyModel);
}

// Answered although no part of the model was sent, nor its end.
TEST_F(SchedulerFilesTest, AModelThatIsDeclaredTooLargeIsRefusedAtOnce) {
  const uint64_t limit = options_.model_bytes_max;
  const absl::Status large = SubmitDeclared(limit + 1, "");
  EXPECT_EQ(large.code(), absl::StatusCode::kResourceExhausted) << large;
  EXPECT_THAT(large.message(), AllOf(HasSubstr("model.path"),
                                     HasSubstr(absl::StrCat(limit + 1))));
  const absl::Status larger = SubmitDeclared(~0ull, "");
  EXPECT_EQ(larger.code(), absl::StatusCode::kResourceExhausted) << larger;
  EXPECT_THAT(larger.message(), HasSubstr("No space left"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "state/incoming"));
}

TEST_F(SchedulerFilesTest, AModelHasAsManyBytesAsWereDeclared) {
  const std::string model = kTinyModel;
  const absl::Status longer = SubmitDeclared(model.size() - 1, model);
  EXPECT_EQ(longer.code(), absl::StatusCode::kInvalidArgument) << longer;
  EXPECT_THAT(longer.message(), HasSubstr("model.path: file goes on after"));
  const absl::Status shorter = SubmitDeclared(model.size() + 1, model);
  EXPECT_EQ(shorter.code(), absl::StatusCode::kInvalidArgument) << shorter;
  EXPECT_THAT(shorter.message(), HasSubstr("model.path: file ends after"));
  EXPECT_TRUE(SubmitDeclared(model.size(), model).ok());

  const auto context = MakeContext(absl::Now() + kPatience);
  context->AddMetadata("syncline-file-bytes", "many");
  SubmitResponse response;
  const auto writer = jobs_->Submit(context.get(), &response);
  SubmitRequest request;
  *request.mutable_begin()->mutable_spec() = TinyJob(1, 1);
  writer->Write(request);
  const absl::Status nonsense = FromGrpcStatus(writer->Finish());
  EXPECT_EQ(nonsense.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(nonsense.message(), HasSubstr("syncline-file-bytes"));
}

// A sparse file takes no disk here, and no byte of it is sent.
TEST_F(SchedulerFilesTest, AResultLargerThanTheDiskIsRefusedAtOnce) {
  AddDaemon(PS, 0);
  FakeDaemon* worker = AddDaemon(WORKER, 0, {.finishes = false});
  const std::string job_id = MustSubmit(TinyJob(1, 1));
  AwaitState(job_id, RUNNING);
  const std::string path = dir_ / "sparse";
  ASSERT_TRUE(WriteFileAtomically(path, "").ok());
  const auto upload = [&](const std::string& name, uint64_t bytes) {
    std::filesystem::resize_file(path, bytes);
    return UploadArtifact(server_.address, worker->Upload(job_id, name), path,
                          absl::Now() + kPatience);
  };
  constexpr uint64_t kLarge = uint64_t{1} << 42;
  const absl::Status model = upload("trained.onnx", kLarge);
  EXPECT_EQ(model.code(), absl::StatusCode::kResourceExhausted) << model;
  EXPECT_THAT(model.message(), HasSubstr(absl::StrCat(kLarge)));
  const absl::Status rows = upload("tables/emb", kLarge);
  EXPECT_EQ(rows.code(), absl::StatusCode::kResourceExhausted) << rows;
  EXPECT_THAT(rows.message(),
              AllOf(HasSubstr("tables/emb"), HasSubstr("No space left")));
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "state/incoming"));
}

TEST_F(SchedulerFilesTest, FilesOfAnySizeComeBack) {
  AddDaemon(PS, 0);
  FakeDaemon* worker = AddDaemon(WORKER, 0, {.finishes = false});
  const std::string job_id = MustSubmit(TinyJob(1, 1));
  AwaitState(job_id, RUNNING);
  std::string content(50 << 20, '\0');
  Random random(1);
  for (size_t i = 0; i < content.size(); i += 4096) {
    content[i] = static_cast<char>(random.Next());
  }
  ASSERT_TRUE(WriteFileAtomically(dir_ / "big", content).ok());
  const absl::Time deadline = absl::Now() + kPatience;
  const auto upload = [&](const UploadBegin& begin) {
    return UploadArtifact(server_.address, begin, dir_ / "big", deadline);
  };
  EXPECT_EQ(upload(worker->Upload(job_id, "../../etc/passwd")).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(upload(worker->Upload(job_id, "model.onnx")).code(),
            absl::StatusCode::kInvalidArgument);
  const absl::Status stored = upload(worker->Upload(job_id, "trained.onnx"));
  ASSERT_TRUE(stored.ok()) << stored;
  worker->SendDone(job_id, false);
  const JobStatus status = AwaitState(job_id, SUCCEEDED);
  ASSERT_EQ(status.artifacts_size(), 2);
  EXPECT_EQ(status.artifacts(1).size_bytes(), content.size());
  EXPECT_EQ(status.artifacts(1).crc32c(), Crc32c(content));

  const auto context = MakeContext(deadline);
  DownloadRequest request;
  request.set_job_id(job_id);
  request.set_name("trained.onnx");
  const auto reader = jobs_->Download(context.get(), request);
  std::string received;
  for (FileChunk chunk; reader->Read(&chunk);) {
    EXPECT_LE(chunk.data().size(), kFileChunkBytesMax);
    received += chunk.data();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(received == content);

  request.set_name("nothing");
  FileChunk chunk;
  const auto missing_context = MakeContext(deadline);
  const auto missing = jobs_->Download(missing_context.get(), request);
  EXPECT_FALSE(missing->Read(&chunk));
  const absl::Status why = FromGrpcStatus(missing->Finish());
  EXPECT_EQ(why.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(why.message(), HasSubstr("model.onnx, trained.onnx"));

  // A download is recorded with its outcome.
  const std::string audit =
      ReadFile(dir_ / "state/audit.log", 1 << 20).value_or("");
  EXPECT_THAT(audit, HasSubstr(absl::StrCat("\"download\",\"job\":\"", job_id,
                                            "\",\"outcome\":\"OK\"")));
  EXPECT_THAT(audit, HasSubstr(absl::StrCat("\"download\",\"job\":\"", job_id,
                                            "\",\"outcome\":\"NOT_FOUND")));
}

TEST_F(SchedulerFilesTest, AnUploadNamesTheSecretOfItsStream) {
  AddDaemon(PS, 0);
  FakeDaemon* worker = AddDaemon(WORKER, 0, {.finishes = false});
  FakeDaemon* other = AddDaemon(WORKER, 1);
  const std::string job_id = MustSubmit(TinyJob(1, 1));
  AwaitState(job_id, RUNNING);
  ASSERT_TRUE(WriteFileAtomically(dir_ / "file", "content").ok());
  const auto upload = [&](const UploadBegin& begin) {
    return UploadArtifact(server_.address, begin, dir_ / "file",
                          absl::Now() + kPatience);
  };
  const UploadBegin right = worker->Upload(job_id, "trained.onnx");
  EXPECT_EQ(right.session_secret().size(), 16);
  for (const std::string& secret :
       {std::string(), std::string(16, '\0'),
        other->Upload(job_id, "").session_secret()}) {
    UploadBegin wrong = right;
    wrong.set_session_secret(secret);
    const absl::Status refused = upload(wrong);
    // A process whose stream broke tries again with its next secret.
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(refused.message(), HasSubstr("secret"));
  }
  EXPECT_EQ(right.job_secret().size(), 16);
  UploadBegin outsider = right;
  outsider.set_job_secret(std::string(16, '\0'));
  EXPECT_EQ(upload(outsider).code(), absl::StatusCode::kPermissionDenied);
  UploadBegin stranger = right;
  stranger.set_incarnation(1);
  EXPECT_EQ(upload(stranger).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(upload(right).ok());
}

TEST_F(SchedulerFilesTest, ASpoiledFileIsNotSent) {
  AddDaemon(PS, 0);
  FakeDaemon* worker = AddDaemon(WORKER, 0, {.finishes = false});
  const std::string job_id = MustSubmit(TinyJob(1, 1));
  AwaitState(job_id, RUNNING);
  const std::string path = dir_ / "state/jobs" / job_id / "model.onnx";
  std::string content = *ReadFile(path, 1 << 20);
  content[10] ^= 1;
  ASSERT_TRUE(WriteFileAtomically(path, content).ok());
  EXPECT_EQ(
      FetchArtifact(server_.address, worker->Download(job_id, "model.onnx"),
                    dir_ / "model", absl::Now() + kPatience)
          .code(),
      absl::StatusCode::kDataLoss);
}

TEST_F(SchedulerFilesTest, OldFilesAreDeletedAndTheJobIsKept) {
  StopScheduler();
  options_.keep = absl::Milliseconds(1);
  StartScheduler(server_.address);
  const std::string job_id = MustSubmit(TinyJob(1, 1));
  ASSERT_TRUE(Cancel(job_id).ok());
  RestartScheduler();  // which looks at once
  const std::filesystem::path files = dir_ / "state/jobs" / job_id;
  const absl::Time deadline = absl::Now() + kPatience;
  while (std::filesystem::exists(files) && absl::Now() < deadline) {
    EXPECT_TRUE(Get(job_id).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(files));
  EXPECT_EQ(Get(job_id)->artifacts_size(), 0);
  EXPECT_EQ(Get(job_id)->state(), CANCELLED);
  const auto context = MakeContext(deadline);
  DownloadRequest request;
  request.set_job_id(job_id);
  request.set_name("model.onnx");
  const auto reader = jobs_->Download(context.get(), request);
  FileChunk chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_THAT(FromGrpcStatus(reader->Finish()).message(), HasSubstr("deleted"));
  // One that dies before it has deleted them leaves that to the next.
  StopScheduler();
  ASSERT_TRUE(MakeDirs(files).ok());
  StartScheduler(server_.address);
  EXPECT_FALSE(std::filesystem::exists(files));
}

// More uploads than are read at a time, all of which stall: the next one waits
// for its turn, and gets it when one of them ends.
TEST_F(SchedulerFilesTest, StalledUploadsAreFewInHandAndOthersGetTheirTurn) {
  const scheduler::TransferQueue::Options limits;
  struct Stalled {
    std::unique_ptr<grpc::ClientContext> context;
    SubmitResponse response;
    std::unique_ptr<grpc::ClientWriter<SubmitRequest>> writer;
  };
  std::vector<Stalled> stalled(limits.reading_per_client_max);
  SubmitRequest request;
  *request.mutable_begin()->mutable_spec() = TinyJob(1, 1);
  for (Stalled& one : stalled) {
    one.context = MakeContext(absl::Now() + 2 * kPatience);
    one.writer = jobs_->Submit(one.context.get(), &one.response);
    ASSERT_TRUE(one.writer->Write(request));
  }
  // All of them have their turn: their files are there.
  const absl::Time deadline = absl::Now() + kPatience;
  const auto incoming = [&] {
    return static_cast<size_t>(std::distance(
        std::filesystem::directory_iterator(dir_ / "state/incoming"), {}));
  };
  while (incoming() < stalled.size() && absl::Now() < deadline) {
  }
  ASSERT_EQ(incoming(), stalled.size());
  // One more is not read yet, so it has no file.
  Stalled next;
  next.context = MakeContext(absl::Now() + 2 * kPatience);
  next.writer = jobs_->Submit(next.context.get(), &next.response);
  ASSERT_TRUE(next.writer->Write(request));
  request.mutable_model()->set_data(kTinyModel);
  request.mutable_model()->set_last(true);
  request.mutable_model()->set_crc32c(Crc32c(kTinyModel));
  next.writer->Write(request);
  next.writer->WritesDone();
  EXPECT_EQ(incoming(), stalled.size());
  stalled.front().context->TryCancel();
  const grpc::Status done = next.writer->Finish();
  EXPECT_TRUE(done.ok()) << done.error_message();
  for (Stalled& one : stalled) {
    one.context->TryCancel();
    one.writer->Finish();
  }
}

}  // namespace
}  // namespace syncline

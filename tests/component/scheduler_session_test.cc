// Goal: a daemon's session and the transfer of files work over a real
// connection. Method: a scripted Daemons service in this process, on a free
// port; each wait is for a condition, with a deadline.

#include "common/cluster/scheduler_session.h"

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/cluster/file_chunks.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"
#include "tests/testing/fakes/wait_log.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

// Answers Register by `on_register`, then says `commands` and reads until the
// client leaves or says `done`, upon which the stream ends.
class ScriptedDaemons final : public Daemons::Service {
 public:
  using Stream = grpc::ServerReaderWriter<SchedulerMessage, DaemonMessage>;

  std::function<absl::Status(const Register&)> on_register =
      [](const Register&) { return absl::OkStatus(); };
  std::vector<SchedulerMessage> commands;
  WaitLog<DaemonMessage> received;
  std::map<std::string, std::string> files;  // set before the server starts
  bool spoil_checksum = false;
  WaitLog<std::pair<std::string, std::string>> uploads;
  // Transfers of "stalled" move nothing until `released`.
  WaitLog<bool> stalled, released;

  void StallIf(const std::string& name) {
    if (name != "stalled") return;
    stalled.Add(true);
    released.Await(1);
  }

  grpc::Status Session(grpc::ServerContext*, Stream* stream) override {
    DaemonMessage message;
    while (stream->Read(&message)) {
      if (message.has_register_()) {
        const absl::Status status = on_register(message.register_());
        received.Add(message);
        if (!status.ok()) return ToGrpcStatus(status);
        SchedulerMessage reply;
        *reply.mutable_registered()->mutable_task() =
            message.register_().member().task();
        reply.mutable_registered()->set_heartbeat_seconds(0.1);
        reply.mutable_registered()->set_lease_seconds(5);
        stream->Write(reply);
        for (const SchedulerMessage& command : commands) {
          stream->Write(command);
        }
      } else {
        received.Add(message);
      }
      if (message.has_done()) return grpc::Status::OK;
    }
    return grpc::Status::OK;
  }

  grpc::Status FetchArtifact(grpc::ServerContext*,
                             const DownloadRequest* request,
                             grpc::ServerWriter<FileChunk>* writer) override {
    StallIf(request->name());
    if (!files.contains(request->name())) {
      return ToGrpcStatus(absl::NotFoundError("no such artifact"));
    }
    auto reader = FileChunkReader::Open(files.at(request->name()));
    if (!reader.ok()) return ToGrpcStatus(reader.status());
    for (FileChunk chunk; !chunk.last();) {
      const absl::Status status = (*reader)->Next(&chunk);
      if (!status.ok()) return ToGrpcStatus(status);
      if (spoil_checksum) chunk.set_crc32c(chunk.crc32c() + 1);
      writer->Write(chunk);
    }
    return grpc::Status::OK;
  }

  grpc::Status UploadArtifact(grpc::ServerContext*,
                              grpc::ServerReader<UploadRequest>* reader,
                              UploadResponse*) override {
    UploadRequest request;
    reader->Read(&request);
    const std::string name = request.begin().name();
    StallIf(name);
    if (request.begin().incarnation() != 7 ||
        request.begin().session_secret() != "abc") {
      return ToGrpcStatus(absl::FailedPreconditionError("not this daemon's"));
    }
    std::string content;
    while (reader->Read(&request)) content += request.chunk().data();
    uploads.Add({name, content});
    return grpc::Status::OK;
  }
};

class SchedulerSessionTest : public ::testing::Test {
 protected:
  void StartServer(const std::string& listen = "127.0.0.1:0") {
    grpc::ServerBuilder builder;
    builder.RegisterService(&daemons_);
    auto server = syncline::StartServer(&builder, listen);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }
  void StopServer() {
    server_.server->Shutdown(absl::ToChronoTime(absl::Now()));
    server_.server.reset();
  }
  SchedulerSession::Options Options() const {
    SchedulerSession::Options options;
    options.scheduler_address = server_.address;
    options.self.mutable_task()->set_type(PS);
    options.self.set_incarnation(7);
    return options;
  }
  std::unique_ptr<SchedulerSession> Start() {
    return SchedulerSession::Start(
        Options(),
        {.on_command = [this](const auto& m) { commands_.Add(m); },
         .on_registered = [this](const auto& r) { registered_.Add(r); },
         .on_lost = [this](const auto& s) { lost_.Add(s); },
         .on_rejected = [this](const auto& s) { rejected_.Add(s); }});
  }
  static SchedulerMessage Run(const std::string& job_id) {
    SchedulerMessage message;
    message.mutable_run()->set_job_id(job_id);
    return message;
  }
  static DaemonMessage Prepared(const std::string& job_id) {
    DaemonMessage message;
    message.mutable_prepared()->set_job_id(job_id);
    return message;
  }
  static DaemonMessage Done(const std::string& job_id) {
    DaemonMessage message;
    message.mutable_done()->set_job_id(job_id);
    return message;
  }

  const TempDir temp_;
  const std::filesystem::path dir_ = temp_.path();
  ScriptedDaemons daemons_;
  ListeningServer server_;
  WaitLog<SchedulerMessage> commands_;
  WaitLog<Registered> registered_;
  WaitLog<absl::Status> lost_;
  WaitLog<absl::Status> rejected_;
};

TEST_F(SchedulerSessionTest, CommandsArriveInOrderAndHeartbeatsFlow) {
  for (int i = 0; i < 50; ++i)
    daemons_.commands.push_back(Run(absl::StrCat(i)));
  StartServer();
  const auto session = Start();
  const auto commands = commands_.Await(50);
  ASSERT_EQ(commands.size(), 50);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(commands[i].run().job_id(), absl::StrCat(i));
  }
  const auto received = daemons_.received.Await(4);
  ASSERT_EQ(received.size(), 4);
  EXPECT_TRUE(received[0].has_register_());
  for (int i = 1; i < 4; ++i) EXPECT_TRUE(received[i].has_heartbeat());
}

TEST_F(SchedulerSessionTest, EventsKeepTheirOrder) {
  StartServer();
  const auto session = Start();
  registered_.Await(1);
  for (int i = 0; i < 100; ++i) session->Send(Prepared(absl::StrCat(i)));
  int next = 0;
  for (size_t count = 101; next < 100; ++count) {
    const auto received = daemons_.received.Await(count);
    ASSERT_GE(received.size(), count);
    const DaemonMessage& message = received[count - 1];
    if (!message.has_prepared()) continue;
    next = std::stoi(message.prepared().job_id()) + 1;
  }
  const auto received = daemons_.received.Await(101);
  int expected = 0;
  for (const DaemonMessage& message : received) {
    if (!message.has_prepared()) continue;
    EXPECT_EQ(message.prepared().job_id(), absl::StrCat(expected++));
  }
}

TEST_F(SchedulerSessionTest, ABrokenStreamIsOpenedAgainWithTheRunningJob) {
  StartServer();
  const auto session = Start();
  registered_.Await(1);
  session->SetRunningJob("j-0009");
  session->Send(Done("j-0009"));  // the script ends the stream
  registered_.Await(2);
  std::vector<Register> hellos;
  for (const DaemonMessage& message : daemons_.received.Await(3)) {
    if (message.has_register_()) hellos.push_back(message.register_());
  }
  ASSERT_EQ(hellos.size(), 2);
  EXPECT_EQ(hellos[0].job_id(), "");
  EXPECT_EQ(hellos[1].job_id(), "j-0009");
}

TEST_F(SchedulerSessionTest, ASchedulerThatIsRestartedIsFoundAgain) {
  StartServer();
  const auto session = Start();
  registered_.Await(1);
  const std::string address = server_.address;
  StopServer();
  // A message that is sent before the break is noticed may be lost.
  lost_.Await(1);
  session->Send(Prepared("kept"));
  StartServer(address);
  registered_.Await(2);
  bool found = false;
  for (size_t count = 2; !found; ++count) {
    const auto received = daemons_.received.Await(count);
    ASSERT_GE(received.size(), count) << "it did not arrive";
    found = received[count - 1].prepared().job_id() == "kept";
  }
}

TEST_F(SchedulerSessionTest, ARejectionArrivesWithItsMessage) {
  daemons_.on_register = [](const Register&) {
    return absl::InvalidArgumentError("version 9 is not 0.1");
  };
  StartServer();
  const auto session = Start();
  const auto rejected = rejected_.Await(1);
  ASSERT_EQ(rejected.size(), 1);
  EXPECT_EQ(rejected[0], absl::InvalidArgumentError("version 9 is not 0.1"));
}

TEST_F(SchedulerSessionTest, ClosingNeverHangs) {
  StartServer();
  for (int i = 0; i < 20; ++i) {
    auto session = Start();
    if (i % 2 == 0) session->Send(Prepared("x"));
    if (i % 3 == 0) registered_.Await(1);
    session.reset();
  }
  StopServer();
  Start().reset();  // no server listens
}

UploadBegin Upload(uint64_t incarnation, const std::string& name) {
  UploadBegin upload;
  upload.set_job_id("j-1");
  upload.set_name(name);
  upload.set_incarnation(incarnation);
  upload.set_session_secret("abc");
  return upload;
}

DownloadRequest Download(const std::string& name) {
  DownloadRequest download;
  download.set_job_id("j-1");
  download.set_name(name);
  return download;
}

TEST_F(SchedulerSessionTest, FilesTravelBothWays) {
  std::string content(5'000'000, '\0');
  Random random(3);
  for (char& c : content) c = static_cast<char>(random.Next());
  ASSERT_TRUE(WriteFileAtomically(dir_ / "in", content).ok());
  ASSERT_TRUE(WriteFileAtomically(dir_ / "empty", "").ok());
  daemons_.files = {{"model.onnx", dir_ / "in"}, {"empty", dir_ / "empty"}};
  StartServer();
  const absl::Time deadline = absl::Now() + kPatience;
  for (const std::string name : {"model.onnx", "empty"}) {
    const absl::Status status =
        FetchArtifact(server_.address, Download(name), dir_ / "out", deadline);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(*ReadFile(dir_ / "out", 1 << 30),
              *ReadFile(daemons_.files[name], 1 << 30));
  }
  const absl::Status status = UploadArtifact(
      server_.address, Upload(7, "trained.onnx"), dir_ / "in", deadline);
  ASSERT_TRUE(status.ok()) << status;
  const auto uploads = daemons_.uploads.Await(1);
  ASSERT_EQ(uploads.size(), 1);
  EXPECT_EQ(uploads[0].first, "trained.onnx");
  EXPECT_TRUE(uploads[0].second == content);
}

TEST_F(SchedulerSessionTest, ATransferEndsWhenItIsCancelled) {
  ASSERT_TRUE(WriteFileAtomically(dir_ / "in", std::string(100, 'x')).ok());
  StartServer();
  const absl::Time deadline = MonotonicNow() + 3 * kPatience;
  for (const bool fetches : {true, false}) {
    Cancellation cancellation;
    const size_t before = fetches ? 0 : 1;
    std::thread canceller([&] {
      daemons_.stalled.Await(before + 1);
      cancellation.Cancel();
    });
    const absl::Status status =
        fetches ? FetchArtifact(server_.address, Download("stalled"),
                                dir_ / "out", deadline, &cancellation)
                : UploadArtifact(server_.address, Upload(7, "stalled"),
                                 dir_ / "in", deadline, &cancellation);
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
    canceller.join();
  }
  EXPECT_FALSE(std::filesystem::exists(dir_ / "out"));
  daemons_.released.Add(true);
}

TEST_F(SchedulerSessionTest, ATransferThatFailsSaysWhatAndLeavesNothing) {
  ASSERT_TRUE(WriteFileAtomically(dir_ / "in", std::string(100, 'x')).ok());
  daemons_.files = {{"model.onnx", dir_ / "in"}};
  daemons_.spoil_checksum = true;
  StartServer();
  const absl::Time deadline = absl::Now() + kPatience;
  const absl::Status missing =
      FetchArtifact(server_.address, Download("none"), dir_ / "out", deadline);
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("none of job j-1"));
  EXPECT_EQ(FetchArtifact(server_.address, Download("model.onnx"), dir_ / "out",
                          deadline)
                .code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(
      UploadArtifact(server_.address, Upload(8, "a"), dir_ / "in", deadline)
          .code(),
      absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      UploadArtifact(server_.address, Upload(7, "a"), dir_ / "no", deadline)
          .code(),
      absl::StatusCode::kNotFound);
  // Only the source is there: no result, no temporary file.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_), {}), 1);
}

}  // namespace
}  // namespace syncline

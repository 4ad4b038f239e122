// Goal: a result is on this machine until the scheduler has it, whatever the
// scheduler's disk or the network do, and what was given up is named with host
// and path. Method: uploads to a fake scheduler that fails as often as the test
// says.

#include "worker/export/result_upload.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/fake_artifacts.h"
#include "tests/testing/fakes/wait_log.h"
#include "tests/testing/temp_dir.h"

namespace syncline::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ResultUploadTest : public ::testing::Test {
 protected:
  // By default it says nothing of what takes a while.
  void Begin(absl::Duration limit = absl::Minutes(10),
             absl::Duration say_period = absl::Hours(1),
             absl::Duration pause = absl::Milliseconds(1)) {
    upload_ = std::make_unique<ResultUpload>(
        ResultUpload::Options{.job_id = "j-0001",
                              .hostname = "host-a",
                              .folder = dir_.File("job/results"),
                              .kept_folder = dir_.File("kept/j-0001"),
                              .limit = limit,
                              .backoff = {.initial = pause, .max = 2 * pause},
                              .say_period = say_period},
        &scheduler_, [this](const std::string& text) {
          activities_.push_back(text);
          if (on_activity_) on_activity_(text);
        });
  }
  absl::Status Put(const std::string& name, const std::string& content) {
    return upload_->Put(name, [&](const std::string& path) {
      return WriteFileAtomically(path, content);
    });
  }

  const TempDir dir_;
  FakeArtifacts scheduler_;
  // Calls do not overlap.
  std::vector<std::string> activities_;
  std::function<void(const std::string&)> on_activity_ = nullptr;
  std::unique_ptr<ResultUpload> upload_;
};

TEST_F(ResultUploadTest, NothingIsLeftOfWhatIsStored) {
  Begin();
  ASSERT_TRUE(Put("trained.onnx", "model").ok());
  ASSERT_TRUE(Put("tables/t.safetensors", "rows").ok());
  EXPECT_TRUE(upload_->Finish().ok());
  EXPECT_EQ(scheduler_.OfJob("j-0001").at("trained.onnx"), "model");
  EXPECT_EQ(scheduler_.OfJob("j-0001").at("tables/t.safetensors"), "rows");
  EXPECT_THAT(activities_, IsEmpty());
  EXPECT_EQ(upload_->LeftFolder(), "");
  EXPECT_FALSE(fs::exists(dir_.File("kept")));
  EXPECT_FALSE(fs::exists(dir_.File("job/results/trained.onnx")));
}

TEST_F(ResultUploadTest, AFullDiskIsWaitedForAndItIsSaidWhereTheFileIs) {
  Begin();
  scheduler_.upload_failures = 3;
  scheduler_.on_upload = [&] {
    // At each attempt the file is at the place that messages name.
    const std::string path = scheduler_.upload_attempts == 1
                                 ? "job/results/trained.onnx"
                                 : "kept/j-0001/trained.onnx";
    EXPECT_TRUE(fs::exists(dir_.File(path))) << path;
  };
  ASSERT_TRUE(Put("trained.onnx", "model").ok());
  EXPECT_TRUE(upload_->Finish().ok());
  EXPECT_EQ(scheduler_.upload_attempts, 4);
  EXPECT_EQ(scheduler_.OfJob("j-0001").at("trained.onnx"), "model");
  ASSERT_EQ(activities_.size(), 4u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(activities_[i],
                AllOf(HasSubstr("host-a"), HasSubstr("disk full"),
                      HasSubstr(dir_.File("kept/j-0001/trained.onnx"))));
  }
  EXPECT_EQ(activities_[3], "") << "that it is over";
  scheduler_.on_upload = nullptr;
  ASSERT_TRUE(Put("metrics.json", "{}").ok());
  upload_.reset();
  EXPECT_FALSE(fs::exists(dir_.File("kept/j-0001")));
}

TEST_F(ResultUploadTest, WhatIsGivenUpIsKeptAndNamed) {
  Begin(/*limit=*/absl::Milliseconds(20));
  scheduler_.upload_failures = 1 << 30;
  ASSERT_TRUE(Put("trained.onnx", "model").ok());
  const int attempts = scheduler_.upload_attempts;
  EXPECT_GE(attempts, 1);
  // A file that comes later is tried once.
  ASSERT_TRUE(Put("tables/t.safetensors", "rows").ok());
  EXPECT_EQ(scheduler_.upload_attempts, attempts + 1);
  const absl::Status end = upload_->Finish();
  EXPECT_EQ(end.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(end.message()),
              AllOf(HasSubstr("trained.onnx, tables/t.safetensors"),
                    HasSubstr("host-a"), HasSubstr(dir_.File("kept/j-0001")),
                    HasSubstr("disk full")));
  upload_.reset();
  // The job's folder goes with the job.
  fs::remove_all(dir_.File("job"));
  EXPECT_EQ(*ReadFile(dir_.File("kept/j-0001/trained.onnx"), 100), "model");
  EXPECT_EQ(*ReadFile(dir_.File("kept/j-0001/tables/t.safetensors"), 100),
            "rows");
}

TEST_F(ResultUploadTest, ARefusalForGoodIsNotRepeated) {
  Begin();
  scheduler_.upload_failures = 1;
  scheduler_.upload_failure = absl::FailedPreconditionError("not your job");
  ASSERT_TRUE(Put("trained.onnx", "model").ok());
  EXPECT_EQ(scheduler_.upload_attempts, 1);
  EXPECT_EQ(upload_->Finish().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(fs::exists(dir_.File("kept/j-0001/trained.onnx")));
}

TEST_F(ResultUploadTest, AStopEndsTheWaitAndTheFileStays) {
  Begin();
  scheduler_.upload_failures = 1 << 30;
  std::thread stopper;
  scheduler_.on_upload = [&] {
    if (scheduler_.upload_attempts == 2) {
      stopper = std::thread([this] { upload_->Stop(); });
    }
  };
  EXPECT_EQ(Put("trained.onnx", "model").code(), absl::StatusCode::kCancelled);
  stopper.join();
  EXPECT_EQ(Put("metrics.json", "{}").code(), absl::StatusCode::kCancelled);
  upload_.reset();
  EXPECT_TRUE(fs::exists(dir_.File("kept/j-0001/trained.onnx")));
}

TEST_F(ResultUploadTest, AStopEndsAnUploadAndTheFileStays) {
  Begin();
  scheduler_.stalls = true;
  std::thread stopper([this] {
    scheduler_.stalled.Await(1);
    upload_->Stop();
  });
  EXPECT_EQ(Put("trained.onnx", "model").code(), absl::StatusCode::kCancelled);
  stopper.join();
  EXPECT_EQ(scheduler_.upload_attempts, 1);
  EXPECT_THAT(std::string(upload_->Finish().message()), HasSubstr("ended"));
  EXPECT_EQ(upload_->LeftFolder(), dir_.File("kept/j-0001"));
  upload_.reset();
  EXPECT_TRUE(fs::exists(dir_.File("kept/j-0001/trained.onnx")));
}

// Values that a job has trained beyond its early end are no result.
TEST_F(ResultUploadTest, WhatIsDroppedIsNowhere) {
  Begin();
  scheduler_.upload_failures = 1 << 30;
  std::thread stopper;
  scheduler_.on_upload = [&] {
    if (scheduler_.upload_attempts == 2) {
      stopper = std::thread([this] { upload_->Drop(); });
    }
  };
  EXPECT_EQ(Put("trained.onnx", "model").code(), absl::StatusCode::kCancelled);
  stopper.join();
  EXPECT_EQ(Put("metrics.json", "{}").code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(upload_->Finish().ok());
  EXPECT_EQ(upload_->LeftFolder(), "");
  upload_.reset();
  EXPECT_FALSE(fs::exists(dir_.File("kept/j-0001")));
}

// The scheduler ends the job of a member that stands still.
TEST_F(ResultUploadTest, AWriteSaysHowFarItHasCome) {
  Begin(absl::Minutes(10), /*say_period=*/absl::Milliseconds(1));
  WaitLog<std::string> said;
  on_activity_ = [&](const std::string& text) { said.Add(text); };
  ASSERT_TRUE(upload_
                  ->Put("tables/t.safetensors",
                        [&](const std::string& path) -> absl::Status {
                          said.Await(1);  // also of one that hangs at once
                          std::ofstream(path) << "123456";
                          said.Await(2);
                          return absl::OkStatus();
                        })
                  .ok());
  ASSERT_GE(activities_.size(), 3u);
  EXPECT_EQ(activities_[0], "writing tables/t.safetensors, 0 bytes so far");
  EXPECT_EQ(activities_[1], "writing tables/t.safetensors, 6 bytes so far");
  EXPECT_EQ(activities_.back(), "");
}

TEST_F(ResultUploadTest, AnUploadThatTakesLongSaysSo) {
  Begin(absl::Minutes(10), /*say_period=*/absl::Milliseconds(1));
  scheduler_.stalls = true;
  WaitLog<std::string> said;
  on_activity_ = [&](const std::string& text) {
    if (text.starts_with("storing ")) said.Add(text);
  };
  std::thread stopper([&] {
    said.Await(2);
    upload_->Stop();
  });
  EXPECT_EQ(Put("trained.onnx", "model").code(), absl::StatusCode::kCancelled);
  stopper.join();
  EXPECT_THAT(said.Await(1)[0],
              AllOf(HasSubstr("storing trained.onnx, 5 bytes, for "),
                    HasSubstr(" of at most 30")));
}

TEST_F(ResultUploadTest, ALongPauseSaysHowMuchTimeIsLeft) {
  Begin(absl::Hours(10), /*say_period=*/absl::Milliseconds(1),
        /*pause=*/absl::Hours(1));
  scheduler_.upload_failures = 1;
  int told = 0;
  on_activity_ = [&](const std::string& text) {
    if (text.find("given up in ") != text.npos && ++told == 3) upload_->Stop();
  };
  EXPECT_EQ(Put("trained.onnx", "model").code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(told, 3);
  EXPECT_EQ(scheduler_.upload_attempts, 1);
}

// Whoever took it for written would kill the worker, and lose the model.
TEST_F(ResultUploadTest, AFullDiskHereIsWaitedForToo) {
  Begin();
  int attempts = 0;
  const auto write = [&](const std::string& path) {
    if (++attempts < 3) {
      WriteFileAtomically(path, "half").IgnoreError();
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot write \"", path, "\": no space left"));
    }
    return WriteFileAtomically(path, "model");
  };
  ASSERT_TRUE(upload_->Put("trained.onnx", write).ok());
  EXPECT_EQ(scheduler_.OfJob("j-0001").at("trained.onnx"), "model");
  ASSERT_EQ(activities_.size(), 3u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(activities_[i],
                AllOf(HasSubstr("trained.onnx is in memory alone, as it cannot "
                                "be written on host-a: make room in " +
                                dir_.File("job/results") + " and leave"),
                      HasSubstr("; it is tried again (given up in "),
                      HasSubstr("): cannot write \"" +
                                dir_.File("job/results/trained.onnx") +
                                "\": no space left"),
                      Not(HasSubstr("until the scheduler has it"))));
  }
  EXPECT_EQ(activities_[2], "");
  const absl::Status other = upload_->Put(
      "x", [](const std::string&) { return absl::InternalError("a bug"); });
  EXPECT_EQ(other.code(), absl::StatusCode::kInternal);
}

TEST_F(ResultUploadTest, ADiskThatStaysFullHereIsGivenUp) {
  Begin(/*limit=*/absl::Milliseconds(20));
  const absl::Status end = upload_->Put("trained.onnx", [](const std::string&) {
    return absl::ResourceExhaustedError("no space left");
  });
  EXPECT_EQ(end.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(end.message(), "writing trained.onnx: no space left");
  EXPECT_EQ(scheduler_.upload_attempts, 0);
}

}  // namespace
}  // namespace syncline::worker

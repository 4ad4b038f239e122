#ifndef SYNCLINE_TESTS_COMPONENT_CHECKPOINT_FIXTURE_H_
#define SYNCLINE_TESTS_COMPONENT_CHECKPOINT_FIXTURE_H_

// The common parts of checkpoint_test: a chief that makes checkpoints of real
// servers in this process, the contents of their files, and small jobs that
// have made some steps.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/manifest.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "gtest/gtest.h"
#include "tests/component/shard_state_fixture.h"
#include "tests/testing/temp_dir.h"

namespace syncline {

inline constexpr char kJob[] = "j-0001";

inline PsFixture::Options WithCheckpoints(
    PsFixture::Options options, const std::string& folder,
    std::function<void(CheckpointSpec*)> change = nullptr) {
  options.spec = [base = options.spec, folder, change](JobSpec* spec) {
    base(spec);
    spec->mutable_checkpoint()->set_every_clocks(1);
    spec->mutable_checkpoint()->set_directory(folder);
    if (change) change(spec->mutable_checkpoint());
  };
  return options;
}

// Makes checkpoints as the chief does.
class Chief {
 public:
  explicit Chief(PsFixture* fixture) : fixture_(fixture), caller_(fixture, 0) {}

  absl::Status BeginCut(uint64_t cut_id, const std::vector<int64_t>& clocks) {
    for (uint32_t ps = 0; ps < fixture_->ps_count(); ++ps) {
      BeginCutRequest request;
      *request.mutable_caller() = caller_.caller(ps);
      request.set_cut_id(cut_id);
      for (const int64_t clock : clocks) request.add_clocks(clock);
      request.set_hold_seconds(20);
      request.set_purpose(CHECKPOINT_STATE);
      BeginCutResponse response;
      SYNCLINE_RETURN_IF_ERROR(FromGrpcStatus(fixture_->stub(ps).BeginCut(
          MakeContext(absl::Now() + kPsTimeout).get(), request, &response)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<AwaitCheckpointResponse> Await(
      uint32_t ps, uint64_t cut_id, absl::Duration wait = kPsTimeout,
      absl::Duration patience = 2 * kPsTimeout) {
    AwaitCheckpointRequest request;
    *request.mutable_caller() = caller_.caller(ps);
    request.set_cut_id(cut_id);
    request.set_wait_seconds(absl::ToDoubleSeconds(wait));
    AwaitCheckpointResponse response;
    SYNCLINE_RETURN_IF_ERROR(FromGrpcStatus(fixture_->stub(ps).AwaitCheckpoint(
        MakeContext(absl::Now() + patience).get(), request, &response)));
    return response;
  }

  absl::StatusOr<CheckpointManifest> AwaitAll(
      uint64_t cut_id, const std::vector<int64_t>& clocks, int64_t time = 0) {
    CheckpointParts parts;
    parts.cut_id = cut_id;
    parts.clocks = clocks;
    parts.total_clocks = kTotalClocks;
    parts.time = absl::FromUnixSeconds(time);
    for (uint32_t ps = 0; ps < fixture_->ps_count(); ++ps) {
      SYNCLINE_ASSIGN_OR_RETURN(parts.shards.emplace_back(), Await(ps, cut_id));
    }
    return MakeManifest(fixture_->assignment(), parts);
  }

  absl::StatusOr<CommitCheckpointResponse> Commit(
      const CheckpointManifest& manifest, uint32_t ps = 0) {
    CommitCheckpointRequest request;
    *request.mutable_caller() = caller_.caller(ps);
    SYNCLINE_ASSIGN_OR_RETURN(*request.mutable_manifest(),
                              EncodeManifest(manifest));
    CommitCheckpointResponse response;
    SYNCLINE_RETURN_IF_ERROR(FromGrpcStatus(fixture_->stub(ps).CommitCheckpoint(
        MakeContext(absl::Now() + kPsTimeout).get(), request, &response)));
    return response;
  }

  // The whole way, of a cut that is announced and that all workers come to.
  absl::StatusOr<CheckpointInfo> Finish(uint64_t cut_id,
                                        const std::vector<int64_t>& clocks,
                                        int64_t time = 0) {
    SYNCLINE_ASSIGN_OR_RETURN(const CheckpointManifest manifest,
                              AwaitAll(cut_id, clocks, time));
    SYNCLINE_ASSIGN_OR_RETURN(const std::string encoded,
                              EncodeManifest(manifest));
    SYNCLINE_RETURN_IF_ERROR(Commit(manifest).status());
    // The repeat deletes older ones.
    SYNCLINE_ASSIGN_OR_RETURN(const CommitCheckpointResponse committed,
                              Commit(manifest));
    return CheckpointInfoOf(manifest, committed.path(), encoded);
  }

 private:
  PsFixture* const fixture_;
  PlainWorker caller_;
};

inline std::string ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<std::string> FilesOf(const CheckpointInfo& info) {
  std::vector<std::string> states;
  for (uint32_t shard = 0; shard < info.shards(); ++shard) {
    states.push_back(ContentOf(
        absl::StrCat(info.path(), "/", ShardFileName(shard, info.shards()))));
  }
  return states;
}

inline std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline std::string FolderOf(const std::string& dir, uint64_t cut_id,
                            int64_t clock) {
  return absl::StrCat(dir, "/", kJob, "/",
                      CheckpointName{clock, cut_id}.ToString());
}

// A small job, in SYNC with Adam, that has done three clocks and writes its
// checkpoints into a folder of its own. `options`: see Base and WithRows.
class SavingJobTest : public ::testing::Test {
 protected:
  explicit SavingJobTest(PsFixture::Options options) {
    if (options.table_dims.empty()) one_.rows_a_push = 0;
    one_.options = WithCheckpoints(std::move(options), dir_.path());
    fixture_ = std::make_unique<PsFixture>(one_.options);
    workers_ = std::make_unique<Workers>(one_, fixture_.get());
    chief_ = std::make_unique<Chief>(fixture_.get());
    workers_->Init();
    workers_->Run(0, 3);
    clock_ = 3;
  }
  // Announces a cut where the workers are, waits until it is passed, ends it.
  void Cut(uint64_t cut_id) {
    ASSERT_OK(chief_->BeginCut(cut_id, {clock_, clock_}));
    ASSERT_OK(workers_->worker(0).plain().PullCut(cut_id).status());
    ASSERT_OK(workers_->worker(0).plain().EndCut(cut_id));
  }
  absl::StatusOr<CheckpointInfo> Checkpoint(uint64_t cut_id, int64_t time = 0) {
    Cut(cut_id);
    return chief_->Finish(cut_id, {clock_, clock_}, time);
  }
  void Train(int64_t clocks) {
    workers_->Run(clock_, clock_ + clocks);
    clock_ += clocks;
  }
  std::string Folder(uint64_t cut_id) const {
    return FolderOf(dir_.path(), cut_id, clock_);
  }
  std::string JobFolder() const { return absl::StrCat(dir_.path(), "/", kJob); }
  // The answer to a job of the same options that starts from there.
  absl::Status StartFrom(const CheckpointInfo& info,
                         std::function<void(PsFixture::Options*)> change = {}) {
    PsFixture::Options options = one_.options;
    options.start_from = info;
    if (change) change(&options);
    return PsFixture(options).opened();
  }

  const TempDir dir_;
  Case one_{"", {}};
  std::unique_ptr<PsFixture> fixture_;
  std::unique_ptr<Workers> workers_;
  std::unique_ptr<Chief> chief_;
  int64_t clock_ = 0;
};

// One with one shard, and no table.
class CheckpointFailureTest : public SavingJobTest {
 protected:
  CheckpointFailureTest()
      : SavingJobTest(Base(ConsistencySpec::SYNC, OptimizerSpec::ADAM)) {}
};

// One with one shard, and rows in a table.
class CheckpointRowsTest : public SavingJobTest {
 protected:
  explicit CheckpointRowsTest(uint32_t ps_count = 1)
      : SavingJobTest(OptionsOf(ps_count)) {}

 private:
  static PsFixture::Options OptionsOf(uint32_t ps_count) {
    PsFixture::Options options = WithRows(
        Base(ConsistencySpec::SYNC, OptimizerSpec::ADAM), OptimizerSpec::ADAM);
    options.ps_count = ps_count;
    return options;
  }
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_COMPONENT_CHECKPOINT_FIXTURE_H_

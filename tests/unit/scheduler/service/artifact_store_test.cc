// Goal: files are where they belong, whole, and nowhere else. Method: a store
// in a fresh directory, good names and bad ones.

#include "scheduler/service/artifact_store.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline::scheduler {
namespace {

class ArtifactStoreTest : public ::testing::Test {
 protected:
  ArtifactStoreTest() { Open(); }

  void Open() {
    auto store = ArtifactStore::Open(dir_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = std::move(*store);
  }
  std::unique_ptr<FileChunkWriter> Upload(const std::string& content) {
    auto upload = store_->BeginUpload(1 << 20);
    EXPECT_TRUE(upload.ok()) << upload.status();
    FileChunk chunk;
    chunk.set_data(content);
    chunk.set_last(true);
    chunk.set_crc32c(Crc32c(content));
    EXPECT_TRUE((*upload)->Append(chunk).ok());
    return std::move(*upload);
  }
  absl::StatusOr<Artifact> Store(const std::string& job_id,
                                 const std::string& name,
                                 const std::string& content) {
    return store_->Commit(Upload(content).get(), job_id, name);
  }

  const TempDir temp_;
  const std::filesystem::path dir_ = temp_.File("artifacts");
  std::unique_ptr<ArtifactStore> store_;
};

TEST_F(ArtifactStoreTest, TheDiskKeepsAReserve) {
  EXPECT_TRUE(store_->CheckRoom(0).ok()) << store_->CheckRoom(0);
  const uint64_t free = std::filesystem::space(dir_).available;
  EXPECT_EQ(store_->CheckRoom(free).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store_->CheckRoom(~0ull).code(),
            absl::StatusCode::kResourceExhausted);
  // An upload that says how large it is is refused before it begins.
  const absl::Status refused = store_->BeginUpload(~0ull, free).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              ::testing::HasSubstr(absl::StrCat(free, " are needed")));
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "incoming"));
  EXPECT_TRUE(store_->BeginUpload(~0ull, 1).ok());
  EXPECT_EQ(refused.message().find("another --state-dir"), std::string::npos);
  std::filesystem::remove_all(dir_);
  EXPECT_EQ(store_->CheckRoom(0).code(), absl::StatusCode::kNotFound);
}

TEST_F(ArtifactStoreTest, AFileIsStoredReplacedAndRead) {
  ASSERT_TRUE(Store("j-1", "logs/worker-0.log", "old").ok());
  const auto artifact = Store("j-1", "logs/worker-0.log", "content");
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  EXPECT_EQ(artifact->name(), "logs/worker-0.log");
  EXPECT_EQ(artifact->size_bytes(), 7);
  EXPECT_EQ(artifact->crc32c(), Crc32c("content"));
  auto reader = store_->Read("j-1", "logs/worker-0.log");
  ASSERT_TRUE(reader.ok());
  FileChunk chunk;
  ASSERT_TRUE((*reader)->Next(&chunk).ok());
  EXPECT_EQ(chunk.data(), "content");
  EXPECT_EQ(store_->Read("j-1", "none").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ArtifactStoreTest, NamesThatLeadElsewhereAreRefused) {
  for (const std::string name :
       {"", ".", "..", "../x", "a/../b", "/etc/passwd", "a//b", "a/", "a/b/c",
        ".hidden", "logs/.x", "a b", "a\\b", "a\nb"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(ArtifactStore::CheckName(name).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(Store("j-1", name, "x").ok());
    EXPECT_FALSE(store_->Read("j-1", name).ok());
  }
  EXPECT_FALSE(ArtifactStore::CheckName(std::string("a\0b", 3)).ok());
  EXPECT_FALSE(ArtifactStore::CheckName(std::string(129, 'a')).ok());
  EXPECT_TRUE(ArtifactStore::CheckName(std::string(128, 'a')).ok());
  EXPECT_TRUE(ArtifactStore::CheckName("logs/worker-12.log").ok());
}

TEST_F(ArtifactStoreTest, WhatWasNotFinishedIsGoneAfterARestart) {
  const std::string left = dir_ / "incoming/17";
  ASSERT_TRUE(WriteFileAtomically(left, "half").ok());
  Open();
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST_F(ArtifactStoreTest, JobsAreListedAndDeletedOneByOne) {
  for (const std::string id : {"j-1", "j-2", "j-3"}) {
    ASSERT_TRUE(Store(id, "model.onnx", "x").ok());
  }
  ASSERT_TRUE(store_->DeleteJob("j-1").ok());
  ASSERT_TRUE(store_->DeleteJob("j-1").ok());
  EXPECT_FALSE(store_->Read("j-1", "model.onnx").ok());
  const auto jobs = store_->ListJobs();
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  EXPECT_THAT(*jobs, ::testing::ElementsAre("j-2", "j-3"));
}

}  // namespace
}  // namespace syncline::scheduler

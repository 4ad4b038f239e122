// Goal: what was written is there after a restart, and a directory that cannot
// be used says why. Method: stores opened again and again over one directory;
// damage done through RocksDB itself.

#include "scheduler/state_store.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/db.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class StateStoreTest : public ::testing::Test {
 protected:
  StateStoreTest()
      : dir_(std::filesystem::path(::testing::TempDir()) /
             absl::StrCat("state_", absl::Hex(EntropySeed())) / "db") {}
  ~StateStoreTest() override {
    std::filesystem::remove_all(dir_.parent_path());
  }

  std::unique_ptr<StateStore> Open() {
    auto store = StateStore::Open(dir_);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? std::move(*store) : nullptr;
  }
  static StoredJob Job(const std::string& id) {
    StoredJob job;
    job.status.set_job_id(id);
    job.status.set_state(QUEUED);
    job.parameters.emplace_back().set_name("w");
    job.parameters.back().add_dims(784);
    job.tables.emplace_back().set_name("emb");
    job.tables.back().set_slots(256);
    return job;
  }
  // Writes behind the store's back.
  void Put(const std::string& key, const std::string& value) {
    rocksdb::DB* db = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open({}, dir_, &db).ok());
    const std::unique_ptr<rocksdb::DB> owner(db);
    ASSERT_TRUE(db->Put({}, key, value).ok());
  }

  const std::filesystem::path dir_;
};

TEST_F(StateStoreTest, JobsSurviveARestart) {
  {
    const auto store = Open();
    ASSERT_TRUE(store->PutNew(Job("j-0001")).ok());
    ASSERT_TRUE(store->PutNew(Job("j-0002")).ok());
    JobStatus status = Job("j-0002").status;
    status.set_state(FAILED);
    ASSERT_TRUE(store->Put(status, /*durable=*/true).ok());
    status.set_exit_code(138);
    ASSERT_TRUE(store->Put(status, /*durable=*/false).ok());
  }
  const auto loaded = Open()->Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::vector<StoredJob>* const jobs = &loaded->jobs;
  ASSERT_EQ(jobs->size(), 2);
  EXPECT_EQ((*jobs)[0].status.job_id(), "j-0001");
  EXPECT_EQ((*jobs)[1].status.state(), FAILED);
  EXPECT_EQ((*jobs)[1].status.exit_code(), 138);
  ASSERT_EQ((*jobs)[1].parameters.size(), 1);
  EXPECT_EQ((*jobs)[1].parameters[0].dims(0), 784);
  ASSERT_EQ((*jobs)[1].tables.size(), 1);
  EXPECT_EQ((*jobs)[1].tables[0].slots(), 256);
}

TEST_F(StateStoreTest, ADirectoryHasOneOwner) {
  const auto store = Open();
  const auto second = StateStore::Open(dir_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(),
              AllOf(HasSubstr(dir_.string()), HasSubstr("in use by another")));
}

TEST_F(StateStoreTest, RecordsThatCannotBeReadAreNamedAndTheRestIsRead) {
  ASSERT_TRUE(Open()->PutNew(Job("j-0002")).ok());
  Put("job/j-0001", "\xff\xff\xff");
  // Under a foreign key, and without its parameters.
  Put("job/j-0005", Job("j-0001").status.SerializeAsString());
  Put("job/j-0006", Job("j-0006").status.SerializeAsString());
  for (int start = 0; start < 2; ++start) {
    const auto loaded = Open()->Load();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    ASSERT_EQ(loaded->jobs.size(), 1);
    EXPECT_EQ(loaded->jobs[0].status.job_id(), "j-0002");
    ASSERT_EQ(loaded->unreadable.size(), 3);
    EXPECT_EQ(loaded->unreadable[0].job_id, "j-0001");
    EXPECT_EQ(loaded->unreadable[0].why.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(loaded->unreadable[0].why.message(),
                AllOf(HasSubstr("job/j-0001"), HasSubstr(dir_.string())));
    EXPECT_EQ(loaded->unreadable[1].job_id, "j-0005");
    EXPECT_THAT(loaded->unreadable[2].why.message(),
                HasSubstr("parameters/j-0006"));
  }
}

TEST_F(StateStoreTest, ADeletedJobIsGone) {
  ASSERT_TRUE(Open()->PutNew(Job("j-0001")).ok());
  ASSERT_TRUE(Open()->PutNew(Job("j-0002")).ok());
  ASSERT_TRUE(Open()->Delete("j-0001").ok());
  const auto loaded = Open()->Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ(loaded->jobs.size(), 1);
  EXPECT_EQ(loaded->jobs[0].status.job_id(), "j-0002");
  EXPECT_TRUE(loaded->unreadable.empty());
}

TEST_F(StateStoreTest, AnUnknownFormatIsRefused) {
  Open();
  Put("meta/format", "2");
  const auto store = StateStore::Open(dir_);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(store.status().message(), HasSubstr("format \"2\""));
}

TEST_F(StateStoreTest, ADamagedDatabaseIsDataLoss) {
  Open();
  std::ofstream(dir_ / "CURRENT") << "nonsense";
  EXPECT_EQ(StateStore::Open(dir_).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(StateStoreTest, ADirectoryThatCannotBeMadeIsNamed) {
  std::filesystem::create_directories(dir_.parent_path());
  std::ofstream(dir_.string()) << "a file";
  const auto store = StateStore::Open(dir_);
  EXPECT_FALSE(store.ok());
  EXPECT_THAT(store.status().message(), HasSubstr(dir_.string()));
}

}  // namespace
}  // namespace syncline

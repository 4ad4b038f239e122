// Goal: what was written is there after a restart, and a directory that cannot
// be used says why. Method: stores opened again and again over one directory;
// damage done through RocksDB itself; a full disk is
// a small tmpfs, where the test may mount one.

#include "scheduler/service/state_store.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/db.h"
#include "tests/testing/temp_dir.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class StateStoreTest : public ::testing::Test {
 protected:
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

  const TempDir temp_;
  const std::filesystem::path dir_ = temp_.File("state/db");
};

TEST_F(StateStoreTest, JobsSurviveARestart) {
  {
    const auto store = Open();
    ASSERT_TRUE(store->PutNew(Job("j-0001")).ok());
    ASSERT_TRUE(store->PutNew(Job("j-0002")).ok());
    JobStatus status = Job("j-0002").status;
    status.set_state(FAILED);
    ASSERT_TRUE(store->Put({status}, /*durable=*/true).ok());
    status.set_exit_code(138);
    ASSERT_TRUE(store->Put({status}, /*durable=*/false).ok());
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

TEST_F(StateStoreTest, TheAttemptOfAJobThatRunsIsKeptUntilItIsOver) {
  JobStatus running = Job("j-0001").status;
  running.set_state(RUNNING);
  AttemptRecord attempt;
  attempt.mutable_assignment()->set_attempt(3);
  attempt.mutable_assignment()->set_job_secret(std::string("\0\xff", 2));
  attempt.set_clocks_total(40);
  {
    const auto store = Open();
    ASSERT_TRUE(store->PutNew(Job("j-0001")).ok());
    ASSERT_TRUE(store->Put({running, attempt}, /*durable=*/true).ok());
  }
  {
    const auto store = Open();
    const auto loaded = store->Load();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    ASSERT_EQ(loaded->jobs.size(), 1);
    ASSERT_TRUE(loaded->jobs[0].attempt.has_value());
    EXPECT_EQ(loaded->jobs[0].attempt->SerializeAsString(),
              attempt.SerializeAsString());
    ASSERT_TRUE(store->Put({running, std::nullopt}, /*durable=*/true).ok());
  }
  const auto over = Open()->Load();
  ASSERT_TRUE(over.ok()) << over.status();
  EXPECT_FALSE(over->jobs[0].attempt.has_value());
  Put("attempt/j-0001", "\xff\xff\xff");
  const auto damaged = Open()->Load();
  ASSERT_TRUE(damaged.ok()) << damaged.status();
  ASSERT_EQ(damaged->unreadable.size(), 1);
  EXPECT_THAT(damaged->unreadable[0].why.message(),
              HasSubstr("attempt/j-0001"));
}

// It has the secrets of jobs.
TEST_F(StateStoreTest, TheDirectoryIsItsOwnersAlone) {
  std::filesystem::create_directories(dir_);
  std::filesystem::permissions(dir_, std::filesystem::perms::all);
  const auto store = Open();
  EXPECT_EQ(std::filesystem::status(dir_).permissions(),
            std::filesystem::perms::owner_all);
}

TEST_F(StateStoreTest, TheEpochSurvivesARestart) {
  EXPECT_EQ(*Open()->Epoch(), 0u);
  ASSERT_TRUE(Open()->PutEpoch(1234567890123).ok());
  EXPECT_EQ(*Open()->Epoch(), 1234567890123u);
  Put("meta/epoch", "seven");
  EXPECT_EQ(Open()->Epoch().status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(StateStoreTest, UsesOfMembersSurviveARestart) {
  SetMemberUseRequest use;
  use.set_use(SetMemberUseRequest::DRAIN);
  use.mutable_task()->set_type(PS);
  {
    const auto store = Open();
    for (const uint32_t index : {0, 1, 10}) {
      use.mutable_task()->set_index(index);
      use.set_reason(absl::StrCat("reason ", index));
      ASSERT_TRUE(store->PutUse(use).ok());
    }
    use.mutable_task()->set_index(1);
    use.set_use(SetMemberUseRequest::SCHEDULE);
    ASSERT_TRUE(store->PutUse(use).ok());
    ASSERT_TRUE(store->PutNew(Job("j-0001")).ok());
  }
  const auto loaded = Open()->Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ(loaded->uses.size(), 2);
  EXPECT_EQ(loaded->uses[0].task().index(), 0u);
  EXPECT_EQ(loaded->uses[1].task().index(), 10u);
  EXPECT_EQ(loaded->uses[1].reason(), "reason 10");
  EXPECT_EQ(loaded->jobs.size(), 1);
}

TEST_F(StateStoreTest, EventsAreKeptWithTheirJob) {
  {
    const auto store = Open();
    ASSERT_TRUE(store->PutNew(Job("j-1000")).ok());
    ASSERT_TRUE(store->PutNew(Job("j-10000")).ok());
    for (uint64_t number = 1; number <= 11; ++number) {
      StoredEvent event = {.number = number};
      event.event.set_text(absl::StrCat("event ", number));
      // Nine are kept.
      ASSERT_TRUE(
          store->PutEvent("j-1000", event, number > 9 ? number - 9 : 0).ok());
    }
    ASSERT_TRUE(store->PutEvent("j-10000", {.number = 1}, 0).ok());
  }
  {
    const auto store = Open();
    const auto loaded = store->Load();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    ASSERT_EQ(loaded->jobs.size(), 2);
    const std::vector<StoredEvent>& events = loaded->jobs[0].events;
    ASSERT_EQ(events.size(), 9);
    EXPECT_EQ(events[0].number, 3u);
    EXPECT_EQ(events[8].number, 11u);
    EXPECT_EQ(events[8].event.text(), "event 11");
    EXPECT_EQ(loaded->jobs[1].events.size(), 1);
    ASSERT_TRUE(store->Delete("j-1000").ok());
    // Of a job that is there again nothing is left.
    ASSERT_TRUE(store->PutNew(Job("j-1000")).ok());
  }
  const auto loaded = Open()->Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->jobs[0].events.size(), 0);
  EXPECT_EQ(loaded->jobs[1].events.size(), 1);
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

TEST_F(StateStoreTest, AClientsKeyIsKeptWithItsJob) {
  StoredJob job = Job("j-0001");
  job.client_key = "nightly/7";
  ASSERT_TRUE(Open()->PutNew(job).ok());
  ASSERT_TRUE(Open()->PutNew(Job("j-0002")).ok());
  {
    const auto loaded = Open()->Load();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    ASSERT_EQ(loaded->jobs.size(), 2);
    EXPECT_EQ(loaded->jobs[0].client_key, "nightly/7");
    EXPECT_EQ(loaded->jobs[1].client_key, "");
  }
  // A job that gets the number again does not get the key.
  ASSERT_TRUE(Open()->Delete("j-0001").ok());
  ASSERT_TRUE(Open()->PutNew(Job("j-0001")).ok());
  EXPECT_EQ(Open()->Load()->jobs[0].client_key, "");
}

// A file system of its own that is full when the test says so.
class FullDiskTest : public StateStoreTest {
 protected:
  void SetUp() override {
    disk_ = dir_.parent_path();
    std::filesystem::create_directories(disk_);
    if (mount("tmpfs", disk_.c_str(), "tmpfs", 0, "size=16m") != 0) {
      GTEST_SKIP() << "SKIPPED, A FULL DISK IS NOT TESTED: mount: "
                   << std::strerror(errno);
    }
    mounted_ = true;
  }
  void TearDown() override {
    if (mounted_) {
      EXPECT_EQ(umount(disk_.c_str()), 0);
    }
  }
  void Fill() {
    const int file = open((disk_ / "ballast").c_str(),
                          O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    ASSERT_GE(file, 0);
    const std::string block(4096, 'x');
    while (write(file, block.data(), block.size()) > 0) {
    }
    EXPECT_EQ(errno, ENOSPC);
    close(file);
  }
  void MakeRoom() { std::filesystem::remove(disk_ / "ballast"); }

  std::filesystem::path disk_;
  bool mounted_ = false;
};

TEST_F(FullDiskTest, WritesResumeWhenThereIsRoomAgain) {
  auto store = Open();
  ASSERT_NE(store, nullptr);
  JobStatus status = Job("j-0001").status;
  ASSERT_TRUE(store->PutNew(Job("j-0001")).ok());
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    Fill();
    // Records that the log has room for may still be taken.
    absl::Status written;
    int taken = 0;
    do {
      status.set_exit_code(++taken);
      status.set_waiting_for(std::string(16 << 10, 'w'));
      written = store->Put({status}, /*durable=*/true);
    } while (written.ok() && taken < 2000);
    EXPECT_EQ(written.code(), absl::StatusCode::kResourceExhausted) << written;
    EXPECT_THAT(written.message(), HasSubstr(dir_.string()));
    EXPECT_FALSE(store->PutNew(Job("j-0002")).ok());

    MakeRoom();
    status.set_exit_code(taken + 1);
    const absl::Status resumed = store->Put({status}, /*durable=*/true);
    EXPECT_TRUE(resumed.ok()) << resumed;
    EXPECT_TRUE(store->Put({status}, /*durable=*/false).ok());
    // And they are there after a restart.
    store.reset();
    store = Open();
    ASSERT_NE(store, nullptr);
    const auto loaded = store->Load();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    ASSERT_FALSE(loaded->jobs.empty());
    EXPECT_TRUE(loaded->unreadable.empty());
    EXPECT_EQ(loaded->jobs[0].status.exit_code(), taken + 1);
  }
  store.reset();
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
}  // namespace syncline::scheduler

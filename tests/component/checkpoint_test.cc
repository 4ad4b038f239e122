// Goal: a checkpoint has exactly the state of its cut, however much is pushed
// while it is written, and a job that starts from it ends with the same bits on
// any number of ps. A disk that fails is named and harms nothing.
// Method: real servers in this process. At the checkpoint's cut the state is
// exported, too; what is in the files must be the same, record by record. A
// pipe in a file's place holds the writer back while the job goes on. Then
// other servers start from the folder and go on beside the first ones. The part
// beside: checkpoint_damage_test.cc (files that are damaged or gone).

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/manifest.h"
#include "common/system/file.h"
#include "common/wire/smallest_cut.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/checkpoint/restore.h"
#include "tests/component/checkpoint_fixture.h"
#include "tests/testing/eventually.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// --- The state, and its restoration ------------------------------------------

class CheckpointTest : public ::testing::TestWithParam<Case> {};

TEST_P(CheckpointTest, AJobThatStartsFromItEndsWithTheSameBits) {
  constexpr int64_t kCut = 6;
  constexpr int64_t kEnd = 12;
  const TempDir dir;
  Case one = GetParam();
  if (one.options.table_disk_bytes > 0) one.options.spill_dir = dir.path();
  one.options = WithCheckpoints(one.options, dir.path());
  PsFixture first(one.options);
  Workers workers(one, &first);
  Chief chief(&first);
  ASSERT_NO_FATAL_FAILURE(workers.Init());
  ASSERT_NO_FATAL_FAILURE(workers.Run(0, kCut - 1));
  const std::vector<int64_t> clocks(one.options.workers, kCut);
  ASSERT_OK(chief.BeginCut(1, clocks));
  ASSERT_NO_FATAL_FAILURE(workers.Run(kCut - 1, kCut));
  std::vector<std::string> states;
  ASSERT_OK(workers.worker(0).plain().PullCut(1).status());
  for (uint32_t ps = 0; ps < first.ps_count(); ++ps) {
    MemoryStateSink sink;
    ASSERT_OK(first.server(ps).ExportState(kJob, ps, 1, {}, &sink));
    states.push_back(std::move(sink.bytes));
  }
  ASSERT_OK(workers.worker(0).plain().EndCut(1));
  ASSERT_NO_FATAL_FAILURE(workers.Run(kCut, kEnd));
  const auto info = chief.Finish(1, clocks);
  ASSERT_OK(info.status());
  EXPECT_EQ(info->clock(), kCut);
  const Contents at_cut = ContentsOf(states);
  EXPECT_TRUE(ContentsOf(FilesOf(*info)) == at_cut);
  EXPECT_EQ(RowsOnDisk(FilesOf(*info)) > 0, one.options.table_disk_bytes > 0);

  Case restored = one;
  restored.options.lanes = one.restored_lanes;
  restored.options.start_from = *info;
  if (one.restored_ps > 0) restored.options.ps_count = one.restored_ps;
  PsFixture second(restored.options);
  ASSERT_OK(second.opened());
  Workers others(restored, &second);
  // A new attempt: nothing is taken before its chief has begun.
  ASSERT_NO_FATAL_FAILURE(others.Init());
  EXPECT_TRUE(ContentsOf(others.Export(2, kCut)) == at_cut);
  ASSERT_NO_FATAL_FAILURE(others.Run(kCut, kEnd));
  const Contents expected = ContentsOf(workers.Export(2, kEnd));
  const Contents result = ContentsOf(others.Export(3, kEnd));
  EXPECT_TRUE(result.arrays == expected.arrays) << "values or slots";
  EXPECT_TRUE(result.updates == expected.updates);
  EXPECT_TRUE(result.rows == expected.rows);
  EXPECT_TRUE(result == expected) << "counts";
  EXPECT_FALSE(result.arrays == at_cut.arrays) << "nothing was learnt";
}

std::vector<Case> Cases() {
  using C = ConsistencySpec;
  using O = OptimizerSpec;
  std::vector<Case> cases;
  const auto dense = [&](const std::string& name, C::Mode mode, O::Kind kind) {
    Case one{name, Base(mode, kind)};
    one.rows_a_push = 0;
    cases.push_back(one);
  };
  dense("Sgd", C::SYNC, O::SGD);
  dense("Adam", C::SYNC, O::ADAM);
  dense("AdamAsync", C::ASYNC, O::ADAM);
  {
    Case one{"LambClipped", Base(C::SYNC, O::LAMB)};
    one.rows_a_push = 0;
    one.options.ps_count = 2;
    one.options.spec = [base = one.options.spec](JobSpec* spec) {
      base(spec);
      spec->mutable_optimizer()->set_clip_norm(5);
    };
    cases.push_back(one);
    one.name = "LambClippedOnOne";
    one.restored_ps = 1;
    cases.push_back(one);
  }
  cases.push_back({"RowWiseAdagrad",
                   WithRows(Base(C::SYNC, O::ADAM), O::ROW_WISE_ADAGRAD,
                            // No row expires: the moment of a sweep depends on
                            // the machine's speed.
                            [](TableSpec* table) {
                              table->mutable_expiry()->set_unseen_clocks(1000);
                            })});
  Case spilled{"RowsOnDisk",
               WithRows(Base(C::SYNC, O::ADAM), O::ADAM, [](TableSpec* table) {
                 table->set_memory_bytes(1 << 20);
               })};
  spilled.options.table_disk_bytes = 64 << 20;
  spilled.keys = 40000;
  spilled.rows_a_push = 8000;
  cases.push_back(spilled);
  Case rows{"", WithRows(Base(C::SYNC, O::ADAM), O::ROW_WISE_ADAGRAD)};
  Case more = rows;
  more.name = "OneShardBecomesThree";
  more.restored_ps = 3;
  more.restored_lanes = 1;
  cases.push_back(more);
  Case fewer = rows;
  fewer.name = "ThreeShardsBecomeOne";
  fewer.options.ps_count = 3;
  fewer.restored_ps = 1;
  cases.push_back(fewer);
  // More shards than a table of eight has slots for.
  Case many = rows;
  many.name = "OneShardBecomesNine";
  many.restored_ps = 9;
  many.restored_lanes = 1;
  cases.push_back(many);
  Case few = rows;
  few.name = "NineShardsBecomeTwo";
  few.options.ps_count = 9;
  few.options.lanes = 1;
  few.restored_ps = 2;
  cases.push_back(few);
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Jobs, CheckpointTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// --- While it is written -----------------------------------------------------

// A pipe in the place of a shard's file: its writer stands still until the
// other end is opened.
class HeldFile {
 public:
  explicit HeldFile(const std::string& path) : path_(path) {
    fs::create_directories(fs::path(path).parent_path());
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
  }
  ~HeldFile() {
    if (open_ >= 0) close(open_);
  }
  // All that is written, by a writer that comes.
  std::string Read() const { return ContentOf(path_); }
  // Lets a writer go on, if there is one.
  void LetGo() { open_ = open(path_.c_str(), O_RDWR | O_CLOEXEC); }

 private:
  const std::string path_;
  int open_ = -1;
};

TEST(CheckpointWhileItIsWrittenTest, PushesGoOnAndAreNotInIt) {
  const TempDir dir;
  Case one{"", Base(ConsistencySpec::SYNC, OptimizerSpec::ADAM)};
  one.rows_a_push = 0;
  one.options = WithCheckpoints(one.options, dir.path());
  PsFixture fixture(one.options);
  Workers workers(one, &fixture);
  Chief chief(&fixture);
  ASSERT_NO_FATAL_FAILURE(workers.Init());
  ASSERT_NO_FATAL_FAILURE(workers.Run(0, 3));
  const HeldFile held(
      absl::StrCat(FolderOf(dir.path(), 5, 3), "/", ShardFileName(0, 1)));
  ASSERT_OK(chief.BeginCut(5, {3, 3}));
  MemoryStateSink sink;
  ASSERT_OK(workers.worker(0).plain().PullCut(5).status());
  ASSERT_OK(fixture.server(0).ExportState(kJob, 0, 5, {}, &sink));
  ASSERT_OK(workers.worker(0).plain().EndCut(5));
  // Every block changes, several times, and nothing of it waits for the file.
  ASSERT_NO_FATAL_FAILURE(workers.Run(3, 8));
  EXPECT_EQ(chief.Await(0, 5, absl::Milliseconds(100)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  // Another one that is announced while it is awaited is refused for now.
  const absl::Status refused = chief.BeginCut(6, {8, 8});
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("still being written"));
  const std::string written = held.Read();
  EXPECT_TRUE(ContentsOf({written}) == ContentsOf({sink.bytes}));
  // A pipe cannot be synced, so this one is none.
  EXPECT_EQ(chief.Await(0, 5).status().code(), absl::StatusCode::kUnavailable);
  ASSERT_OK(chief.BeginCut(6, {8, 8}));
  ASSERT_OK(workers.worker(0).plain().PullCut(6).status());
  ASSERT_OK(workers.worker(0).plain().EndCut(6));
  ASSERT_OK(chief.Finish(6, {8, 8}).status());
}

TEST(CheckpointWhileItIsWrittenTest, WithoutCopiesAPushWaitsForTheDisk) {
  const TempDir dir;
  Case one{"", Base(ConsistencySpec::ASYNC, OptimizerSpec::ADAM)};
  one.rows_a_push = 0;
  one.options = WithCheckpoints(
      one.options, dir.path(),
      [](CheckpointSpec* checkpoint) { checkpoint->set_copy_bytes(0); });
  PsFixture fixture(one.options);
  Workers workers(one, &fixture);
  Chief chief(&fixture);
  ASSERT_NO_FATAL_FAILURE(workers.Init());
  ASSERT_NO_FATAL_FAILURE(workers.Run(0, 3));
  const HeldFile held(
      absl::StrCat(FolderOf(dir.path(), 5, 3), "/", ShardFileName(0, 1)));
  ASSERT_OK(chief.BeginCut(5, {3, 3}));
  MemoryStateSink sink;
  ASSERT_OK(workers.worker(0).plain().PullCut(5).status());
  ASSERT_OK(fixture.server(0).ExportState(kJob, 0, 5, {}, &sink));
  ASSERT_OK(workers.worker(0).plain().EndCut(5));
  std::string written;
  std::atomic<bool> goes_on = false;
  std::thread reader([&] {
    absl::SleepFor(absl::Milliseconds(200));
    goes_on = true;
    written = held.Read();
  });
  workers.Run(3, 4);
  EXPECT_OK(workers.worker(0).plain().Pull(4).status());
  EXPECT_TRUE(goes_on) << "the push was applied before its blocks were written";
  reader.join();
  EXPECT_TRUE(ContentsOf({written}) == ContentsOf({sink.bytes}));
}

TEST(CheckpointWhileItIsWrittenTest, RowsOfTablesAreThoseOfTheCut) {
  const TempDir dir;
  Case one{"", WithRows(Base(ConsistencySpec::ASYNC, OptimizerSpec::ADAM),
                        OptimizerSpec::ROW_WISE_ADAGRAD)};
  one.options = WithCheckpoints(one.options, dir.path());
  PsFixture fixture(one.options);
  Workers workers(one, &fixture);
  Chief chief(&fixture);
  ASSERT_NO_FATAL_FAILURE(workers.Init());
  ASSERT_NO_FATAL_FAILURE(workers.Run(0, 3));
  const Contents expected = ContentsOf(workers.Export(3, 3));
  const HeldFile held(
      absl::StrCat(FolderOf(dir.path(), 5, 3), "/", ShardFileName(0, 1)));
  ASSERT_OK(chief.BeginCut(5, {3, 3}));
  ASSERT_OK(workers.worker(0).plain().EndCut(5));
  std::string written;
  std::thread reader([&] { written = held.Read(); });
  workers.Run(3, 8);
  reader.join();
  EXPECT_TRUE(ContentsOf({written}) == expected);
}

// Lanes are those of all jobs of a ps.
TEST(CheckpointWhileItIsWrittenTest, RowsDoNotWaitForADiskThatHangs) {
  const TempDir dir;
  Case one{"", WithRows(Base(ConsistencySpec::ASYNC, OptimizerSpec::ADAM),
                        OptimizerSpec::ROW_WISE_ADAGRAD)};
  one.options = WithCheckpoints(one.options, dir.path());
  one.options.checkpoint_wait_max = absl::Seconds(1);
  PsFixture fixture(one.options);
  Workers workers(one, &fixture);
  Chief chief(&fixture);
  ASSERT_NO_FATAL_FAILURE(workers.Init());
  ASSERT_NO_FATAL_FAILURE(workers.Run(0, 3));
  HeldFile held(
      absl::StrCat(FolderOf(dir.path(), 5, 3), "/", ShardFileName(0, 1)));
  ASSERT_OK(chief.BeginCut(5, {3, 3}));
  ASSERT_OK(workers.worker(0).plain().EndCut(5));
  ASSERT_NO_FATAL_FAILURE(workers.Run(3, 8));
  held.LetGo();
  const absl::Status hung = chief.Await(0, 5).status();
  EXPECT_EQ(hung.code(), absl::StatusCode::kUnavailable) << hung;
  EXPECT_THAT(std::string(hung.message()),
              AllOf(HasSubstr("was not begun in 1s: the disk hangs"),
                    HasSubstr(dir.path())));
  ASSERT_OK(chief.BeginCut(6, {8, 8}));
  ASSERT_OK(workers.worker(0).plain().EndCut(6));
  ASSERT_OK(chief.Finish(6, {8, 8}).status());
}

// --- What does not come to its end -------------------------------------------

TEST_F(CheckpointFailureTest, AFullDiskFailsTheCheckpointAndNotTheJob) {
  fs::create_directories(Folder(5));
  const std::string file = absl::StrCat(Folder(5), "/", ShardFileName(0, 1));
  fs::create_symlink("/dev/full", file);
  ASSERT_NO_FATAL_FAILURE(Cut(5));
  const absl::Status full = chief_->Await(0, 5).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_THAT(std::string(full.message()), HasSubstr(file));
  EXPECT_FALSE(fs::exists(Folder(5))) << "what was written is gone";
  Train(2);
  ASSERT_OK(Checkpoint(6).status());
  EXPECT_EQ(chief_->Await(0, 5).status(), full) << "as it was recorded";
}

TEST_F(CheckpointFailureTest, AFolderThatCannotBeMadeIsNamed) {
  ASSERT_OK(WriteFileAtomically(JobFolder(), "a file"));
  ASSERT_NO_FATAL_FAILURE(Cut(5));
  const absl::Status failed = chief_->Await(0, 5).status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable) << failed;
  EXPECT_THAT(std::string(failed.message()), HasSubstr(JobFolder()));
  Train(1);
}

TEST_F(CheckpointFailureTest, ACutThatIsUnknownOrWithdrawnHasNone) {
  const absl::Status unknown = chief_->Await(0, 9).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(unknown.message()),
              HasSubstr("cut 9 is not announced"));
  ASSERT_OK(chief_->BeginCut(9, {5, 5}));
  absl::Status withdrawn;
  std::thread waiter([&] { withdrawn = chief_->Await(0, 9).status(); });
  ASSERT_OK(workers_->worker(0).plain().EndCut(9));
  waiter.join();
  EXPECT_EQ(withdrawn.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(NamesIn(dir_.path()), IsEmpty());
}

TEST_F(CheckpointFailureTest, ALaterCutTakesThePlaceOfOneThatNobodyAwaits) {
  HeldFile held(absl::StrCat(Folder(5), "/", ShardFileName(0, 1)));
  ASSERT_NO_FATAL_FAILURE(Cut(5));
  Train(1);
  ASSERT_NO_FATAL_FAILURE(Cut(6));
  Train(1);
  held.LetGo();  // its writer finds that it was given up
  EXPECT_EQ(chief_->Await(0, 5).status().code(),
            absl::StatusCode::kFailedPrecondition);
  clock_ = 4;
  ASSERT_OK(chief_->Finish(6, {4, 4}).status());
}

// Each ps has a folder of its own, at another path than the others'.
TEST(CheckpointOwnFolderTest, APsStartsFromItsOwnPartAndKeepsNoneThatFailed) {
  const TempDir dir;
  Case one{"", Base(ConsistencySpec::SYNC, OptimizerSpec::ADAM)};
  one.rows_a_push = 0;
  one.options.ps_count = 2;
  one.options.checkpoint_dir = dir.path();
  one.options = WithCheckpoints(
      one.options, dir.path(),
      [](CheckpointSpec* checkpoint) { checkpoint->clear_directory(); });
  std::string folders[2];
  for (int ps = 0; ps < 2; ++ps) {
    folders[ps] = dir.File(absl::StrCat("ps-", ps));
    fs::create_directories(folders[ps]);
  }
  PsFixture fixture(one.options);
  ASSERT_OK(fixture.opened());
  Workers workers(one, &fixture);
  Chief chief(&fixture);
  ASSERT_NO_FATAL_FAILURE(workers.Init());
  std::optional<CheckpointInfo> info;
  // The first one is given up after its parts are on disk.
  for (const int64_t clock : {3, 4}) {
    ASSERT_NO_FATAL_FAILURE(workers.Run(clock == 3 ? 0 : 3, clock));
    const auto cut_id = static_cast<uint64_t>(clock) + 2;
    ASSERT_OK(chief.BeginCut(cut_id, {clock, clock}));
    ASSERT_OK(workers.worker(0).plain().PullCut(cut_id).status());
    ASSERT_OK(workers.worker(0).plain().EndCut(cut_id));
    const auto manifest = chief.AwaitAll(cut_id, {clock, clock});
    ASSERT_OK(manifest.status());
    if (clock == 3) continue;
    const auto committed = chief.Commit(*manifest, 0);
    ASSERT_OK(committed.status());
    ASSERT_OK(chief.Commit(*manifest, 1).status());
    ASSERT_OK_AND_ASSIGN(const std::string encoded, EncodeManifest(*manifest));
    info = CheckpointInfoOf(*manifest, committed->path(), encoded);
  }
  for (const std::string& folder : folders) {
    EXPECT_EQ(NamesIn(absl::StrCat(folder, "/", kJob)).size(), 1u);
  }
  EXPECT_TRUE(absl::StrContains(info->path(), "/ps-0/"));
  PsFixture::Options later = one.options;
  later.start_from = *info;
  ASSERT_OK(PsFixture(later).opened());
  // A path of the job's own choice, that ends like this one.
  JobAssignment assignment = fixture.assignment();
  assignment.set_start_clock(info->clock());
  *assignment.mutable_start_from() = *info;
  assignment.mutable_start_from()->set_path(absl::StrCat(
      "/shared/acme/", kJob, "/", fs::path(info->path()).filename().string()));
  const auto opens = [&] {
    return ps::StartsFromCheckpoint(assignment, 0, nullptr, folders[0])
        .status();
  };
  EXPECT_OK(opens());
  assignment.set_tenant("acme");
  // A job's own one, of before manifests had a tenant.
  EXPECT_OK(opens());
  assignment.set_job_id("j-0009");
  const absl::Status strange = opens();
  EXPECT_FALSE(strange.ok());
  EXPECT_THAT(std::string(strange.message()), Not(HasSubstr(folders[0])));
  fs::remove_all(folders[1]);
  EXPECT_THAT(std::string(PsFixture(later).opened().message()),
              HasSubstr("for shard 1"));
}

// The disk hangs, and the chief has given up.
TEST_F(CheckpointFailureTest, ACutIsLeftOutWhileAWriterHangs) {
  HeldFile held(absl::StrCat(Folder(5), "/", ShardFileName(0, 1)));
  ASSERT_NO_FATAL_FAILURE(Cut(5));
  EXPECT_EQ(
      chief_->Await(0, 5, kPsTimeout, absl::Milliseconds(50)).status().code(),
      absl::StatusCode::kDeadlineExceeded);
  absl::Status refused;
  EXPECT_TRUE(Eventually(kPsTimeout, [&] {
    refused = chief_->BeginCut(6, {clock_, clock_});
    return absl::StrContains(refused.message(), "nobody waits for it any more");
  })) << refused;
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(!SmallestCutOf(refused, 2).has_value())
      << "a coordinator tries again";
  held.LetGo();
  EXPECT_TRUE(Eventually(kPsTimeout, [&] {
    refused = chief_->BeginCut(6, {clock_, clock_});
    return refused.ok();
  })) << refused;
}

// The job ends, and a later one is opened, while the disk hangs.
TEST_F(CheckpointFailureTest, ADiskThatHangsIsLeftWhenTheJobEnds) {
  HeldFile held(absl::StrCat(Folder(5), "/", ShardFileName(0, 1)));
  ASSERT_NO_FATAL_FAILURE(Cut(5));
  chief_.reset();
  workers_.reset();
  fixture_.reset();
  ASSERT_OK(PsFixture(one_.options).opened());
  EXPECT_TRUE(fs::exists(Folder(5)));
  held.LetGo();
  EXPECT_TRUE(Eventually(kPsTimeout, [&] { return !fs::exists(Folder(5)); }))
      << "what was left behind has not tidied up";
}

TEST_F(CheckpointFailureTest, OnlyTheLatestAreKept) {
  std::vector<std::string> paths;
  // A folder that a killed writer has left.
  fs::create_directories(FolderOf(dir_.path(), 2, 1));
  ASSERT_OK(WriteFileAtomically(
      absl::StrCat(FolderOf(dir_.path(), 2, 1), "/", ShardFileName(0, 1)),
      "half"));
  for (uint64_t cut_id = 5; cut_id < 9; ++cut_id) {
    Train(1);
    const auto info = Checkpoint(cut_id, static_cast<int64_t>(cut_id));
    ASSERT_OK(info.status());
    paths.push_back(fs::path(info->path()).filename());
  }
  EXPECT_THAT(NamesIn(JobFolder()), ElementsAre(paths[2], paths[3]));
  // Another ps may lack the manifest until this one is asked again.
  Train(1);
  ASSERT_NO_FATAL_FAILURE(Cut(9));
  const auto manifest = chief_->AwaitAll(9, {clock_, clock_}, 9);
  ASSERT_OK(manifest.status());
  const auto first = chief_->Commit(*manifest);
  ASSERT_OK(first.status());
  EXPECT_EQ(first->deleted_size(), 0);
  EXPECT_EQ(NamesIn(JobFolder()).size(), 3u);
  const auto repeat = chief_->Commit(*manifest);
  ASSERT_OK(repeat.status());
  ASSERT_EQ(repeat->deleted_size(), 1);
  EXPECT_EQ(std::string(fs::path(repeat->deleted(0)).filename()), paths[2]);
}

TEST_F(CheckpointFailureTest, AManifestOfAnotherJobIsRefused) {
  ASSERT_NO_FATAL_FAILURE(Cut(5));
  auto manifest = chief_->AwaitAll(5, {clock_, clock_});
  ASSERT_OK(manifest.status());
  manifest->set_job_id("j-0002");
  EXPECT_EQ(chief_->Commit(*manifest).status().code(),
            absl::StatusCode::kInvalidArgument);
  manifest->set_job_id(kJob);
  manifest->mutable_shards(0)->set_bytes(manifest->shards(0).bytes() + 1);
  const absl::Status other = chief_->Commit(*manifest).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(other.message()), HasSubstr("the same folder"));
  EXPECT_EQ(ReadManifest(Folder(5)).status().code(),
            absl::StatusCode::kNotFound);
}

// --- Other workers, and values alone -----------------------------------------

TEST_F(CheckpointFailureTest, AnotherNumberOfWorkersGoesOnInSync) {
  const auto info = Checkpoint(5);
  ASSERT_OK(info.status());
  Case more = one_;
  more.options.workers = 3;
  more.options.start_from = *info;
  PsFixture fixture(more.options);
  ASSERT_OK(fixture.opened());
  Workers workers(more, &fixture);
  ASSERT_NO_FATAL_FAILURE(workers.Init());
  const Contents states = ContentsOf(workers.Export(7, clock_));
  EXPECT_TRUE(states.arrays == ContentsOf(FilesOf(*info)).arrays);
  ASSERT_NO_FATAL_FAILURE(workers.Run(clock_, clock_ + 2));
}

// The job begins at clock 0, with the values of the checkpoint alone.
void BeginWithValuesOf(const CheckpointInfo& info,
                       PsFixture::Options* options) {
  options->start_from = info;
  options->spec = [base = options->spec, info](JobSpec* spec) {
    base(spec);
    spec->mutable_start()->set_checkpoint(info.path());
    spec->mutable_start()->set_weights_only(true);
    spec->mutable_start()->set_manifest_crc32c(info.manifest_crc32c());
  };
}

TEST_F(CheckpointRowsTest, ValuesAloneAreAJobThatBegins) {
  const auto info = Checkpoint(5);
  ASSERT_OK(info.status());
  const Contents there = ContentsOf(FilesOf(*info));

  // Another optimizer, another number of workers and of ps.
  Case fresh{"", WithRows(Base(ConsistencySpec::SYNC, OptimizerSpec::ADAGRAD,
                               /*workers=*/1),
                          OptimizerSpec::ROW_WISE_ADAGRAD)};
  fresh.options.ps_count = 2;
  BeginWithValuesOf(*info, &fresh.options);
  PsFixture second(fresh.options);
  ASSERT_OK(second.opened());
  Workers others(fresh, &second);
  ASSERT_NO_FATAL_FAILURE(others.Init());
  const Contents here = ContentsOf(others.Export(1, 0));
  for (const auto& [id, bytes] : here.arrays) {
    if (id.second == 0) {
      EXPECT_TRUE(bytes == there.arrays.at(id)) << "block " << id.first;
    } else {
      EXPECT_EQ(bytes, std::string(bytes.size(), '\0')) << "an optimizer's";
    }
  }
  EXPECT_EQ(here.arrays.size(), there.arrays.size() / 3 * 2);
  for (const auto& [block, updates] : here.updates) EXPECT_EQ(updates, 0);
  EXPECT_THAT(here.workers, ElementsAre(std::pair<int64_t, bool>(0, false)));
  EXPECT_EQ(here.pushed_rows, 0u);
  ASSERT_EQ(here.rows.size(), there.rows.size());
  const size_t values = 16;  // key, score and clock are before them
  for (const auto& [id, row] : here.rows) {
    EXPECT_EQ(RowLayout::Clock(row.data()), 0u);
    EXPECT_EQ(row.substr(values, kDim * 4),
              there.rows.at(id).substr(values, kDim * 4));
    EXPECT_EQ(row.substr(values + kDim * 4), std::string(4, '\0'));
  }
  ASSERT_NO_FATAL_FAILURE(others.Run(0, 2));
}

// A row that had expired is not there for an evaluation either, removed or not.
TEST_F(CheckpointRowsTest, ValuesAloneAreThoseOfRowsThatLive) {
  const auto info = Checkpoint(5);
  ASSERT_OK(info.status());
  const Contents there = ContentsOf(FilesOf(*info));
  Case fresh{"",
             WithRows(Base(ConsistencySpec::SYNC, OptimizerSpec::ADAGRAD,
                           /*workers=*/1),
                      OptimizerSpec::ROW_WISE_ADAGRAD, [](TableSpec* table) {
                        table->mutable_expiry()->set_unseen_clocks(1);
                      })};
  BeginWithValuesOf(*info, &fresh.options);
  PsFixture second(fresh.options);
  ASSERT_OK(second.opened());
  Workers others(fresh, &second);
  ASSERT_NO_FATAL_FAILURE(others.Init());
  const Contents here = ContentsOf(others.Export(1, 0));
  size_t alive = 0;
  for (const auto& [id, row] : there.rows) {
    const bool lives = RowLayout::Clock(row.data()) + 1 >= clock_;
    alive += lives ? 1 : 0;
    EXPECT_EQ(here.rows.count(id), lives ? 1 : 0);
  }
  EXPECT_GT(alive, 0u);
  EXPECT_LT(alive, there.rows.size());
}

}  // namespace
}  // namespace syncline

// Goal: a state that was unpacked from a backup gives no job number that
// clients may know from the time after the backup. Method: a state with jobs,
// and the archive's last file beside it.

#include "scheduler/service/restored_state.h"

#include <filesystem>
#include <string>

#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RestoredStateTest, NumbersAreSkippedOnceForEachRestore) {
  const TempDir dir;
  const std::string folder = dir.File("state");
  const std::string manifest = folder + "/MANIFEST";
  ASSERT_OK_AND_ASSIGN(const auto state, StateStore::Open(folder + "/db"));
  const auto skipped = [&] {
    StateStore::Loaded loaded;
    StoredJob job;
    job.status.set_job_id("j-0041");
    loaded.jobs.push_back(job);
    EXPECT_OK(SkipJobNumbers(folder, state.get(), &loaded));
    return loaded.without_record;
  };
  EXPECT_THAT(skipped(), IsEmpty());
  ASSERT_OK(WriteFileAtomically(manifest, ""));
  EXPECT_THAT(skipped(), ElementsAre("j-10041"));
  EXPECT_FALSE(std::filesystem::exists(manifest));
  // They stay taken, and no more are.
  EXPECT_THAT(skipped(), ElementsAre("j-10041"));
  // The backup of a restored state is restored.
  ASSERT_OK(WriteFileAtomically(manifest, ""));
  EXPECT_THAT(skipped(), ElementsAre("j-20041"));
}

}  // namespace
}  // namespace syncline::scheduler

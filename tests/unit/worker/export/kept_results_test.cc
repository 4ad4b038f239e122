// Goal: results that were kept on a worker are removed when they have not
// changed for the stated time, and never sooner: they are the only copy.
// Method: folders with files whose times are set by hand.

#include "worker/export/kept_results.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "absl/time/clock.h"
#include "common/system/file.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline::worker {
namespace {

namespace fs = std::filesystem;

class KeptResultsTest : public testing::Test {
 protected:
  // ROOT/NAME/FILE, last changed `age` ago, as are the folders above.
  std::string Add(const std::string& name, const std::string& file,
                  absl::Duration age) {
    const fs::path folder = root_.File(name);
    const fs::path path = folder / file;
    EXPECT_OK(MakeDirs(path.parent_path().string()));
    EXPECT_OK(WriteFileAtomically(path.string(), "weights"));
    for (fs::path at = path; at != folder.parent_path();
         at = at.parent_path()) {
      SetAge(at.string(), age);
    }
    return folder.string();
  }
  static void SetAge(const std::string& path, absl::Duration age) {
    const timespec time = absl::ToTimespec(absl::Now() - age);
    const timespec times[] = {time, time};
    EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0) << path;
  }

  const TempDir root_;
};

TEST_F(KeptResultsTest, AFolderIsNamedAfterJobAndProcess) {
  const std::string folder = KeptResultsFolder("/work", "j-0001", 7);
  EXPECT_EQ(folder.find("/work/syncline-results-j-0001-0x"), 0u) << folder;
  EXPECT_NE(folder, KeptResultsFolder("/work", "j-0001", 8));
}

TEST_F(KeptResultsTest, OldOnesAreRemovedAndYoungerOnesStay) {
  const absl::Duration old = kKeptResultsAge + absl::Hours(1);
  const absl::Duration young = kKeptResultsAge - absl::Hours(1);
  const std::string first =
      Add("syncline-results-j-0001-0x1", "trained.onnx", old);
  const std::string second =
      Add("syncline-results-j-0002-0x1", "tables/t.safetensors", old);
  const std::string kept =
      Add("syncline-results-j-0003-0x1", "trained.onnx", young);
  EXPECT_EQ(RemoveOldResults(root_.path()), 2);
  EXPECT_FALSE(fs::exists(first));
  EXPECT_FALSE(fs::exists(second));
  EXPECT_TRUE(fs::exists(kept + "/trained.onnx"));
  EXPECT_EQ(RemoveOldResults(root_.path()), 0);
}

TEST_F(KeptResultsTest, OneYoungFileKeepsItsFolder) {
  const std::string folder =
      Add("syncline-results-j-0001-0x1", "trained.onnx", kKeptResultsAge * 2);
  ASSERT_OK(MakeDirs(folder + "/tables"));
  ASSERT_OK(WriteFileAtomically(folder + "/tables/t.safetensors", "rows"));
  SetAge(folder + "/tables", kKeptResultsAge * 2);
  SetAge(folder, kKeptResultsAge * 2);
  EXPECT_EQ(RemoveOldResults(root_.path()), 0);
  EXPECT_TRUE(fs::exists(folder + "/trained.onnx"));
}

TEST_F(KeptResultsTest, NothingElseIsTouched) {
  const std::string other = Add("results-j-0001", "a", kKeptResultsAge * 2);
  const std::string target = Add("elsewhere", "a", kKeptResultsAge * 2);
  fs::create_directory_symlink(target, root_.File("syncline-results-link"));
  EXPECT_EQ(RemoveOldResults(root_.path()), 0);
  EXPECT_EQ(RemoveOldResults(root_.File("absent")), 0);
  EXPECT_TRUE(fs::exists(other + "/a"));
  EXPECT_TRUE(fs::exists(target + "/a"));
}

}  // namespace
}  // namespace syncline::worker

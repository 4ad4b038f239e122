#ifndef SYNCLINE_TESTS_TESTING_TEMP_DIR_H_
#define SYNCLINE_TESTS_TESTING_TEMP_DIR_H_

#include <string>

#include "absl/strings/string_view.h"

namespace syncline {

// A folder of the test's own. Removed at the end, unless the test has failed:
// then its path is printed, with the logs in it.
//
// The first TempDir of a process removes the folders that earlier runs of the
// same test program left, because they failed or were killed. So a failed
// test's folder stays until the test runs again.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string File(absl::string_view name) const;
  // Writes a file and returns its path. Folders above it are made.
  std::string Write(absl::string_view name, absl::string_view content) const;

 private:
  std::string path_;
  int lock_;  // an open descriptor of the locked file beside the folder
};

// How many folders RemoveLeftovers removes, and how many names it reads.
inline constexpr int kLeftoversMax = 16;
inline constexpr int kLeftoverNamesMax = 10'000;

// How the folders of this test program begin.
std::string TempDirPrefix();

// Removes folders in `root` whose names begin with `prefix`: those of this user
// that no living process holds as its TempDir. Links and files stay, and what
// cannot be removed stays too. Returns how many were removed.
int RemoveLeftovers(const std::string& root, absl::string_view prefix);

// The root of the sources; in an unpacked bundle (deploy/bundle.sh) the
// bundle's, which has deploy/examples too.
std::string SourceDir();

// The folder of real data: SYNCLINE_TEST_DATA, else ../shared/data beside the
// SourceDir. May not exist.
std::string TestDataDir();

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_TEMP_DIR_H_

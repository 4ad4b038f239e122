#ifndef SYNCLINE_TESTS_TESTING_TEMP_DIR_H_
#define SYNCLINE_TESTS_TESTING_TEMP_DIR_H_

#include <string>

#include "absl/strings/string_view.h"

namespace syncline {

// A folder of the test's own. Removed at the end, unless the test has failed:
// then its path is printed, with the logs in it.
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
};

// The root of the sources.
std::string SourceDir();

// The folder of real data: SYNCLINE_TEST_DATA, else ../shared/data beside the
// sources. May not exist.
std::string TestDataDir();

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_TEMP_DIR_H_

#ifndef SYNCLINE_TESTS_TESTING_OPEN_FILES_H_
#define SYNCLINE_TESTS_TESTING_OPEN_FILES_H_

// The files and mappings that this process has open: for tests that nothing is
// left behind, and that none can be opened.

#include <sys/resource.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/match.h"

namespace syncline {

// Descriptors. (One more is open while they are counted, each time alike.)
inline size_t OpenFiles() {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

// Mappings of SharedRegions.
inline size_t MappedRegions() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += absl::StrContains(line, "memfd:syncline");
  }
  return count;
}

// While it lives this process can open no file.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  rlimit before_ = {};
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_OPEN_FILES_H_

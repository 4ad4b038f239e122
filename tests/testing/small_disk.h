#ifndef SYNCLINE_TESTS_TESTING_SMALL_DISK_H_
#define SYNCLINE_TESTS_TESTING_SMALL_DISK_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace syncline {

// Gives this process mounts of its own, which its children inherit and which
// end with them; the machine's are untouched. Once, before there are threads.
// Errors: Unimplemented: not permitted here.
absl::Status EnterMountNamespace();

// A file system of a few megabytes in memory. After EnterMountNamespace.
class SmallDisk {
 public:
  // In the folder `path`, which is made.
  static absl::StatusOr<std::unique_ptr<SmallDisk>> Mount(
      const std::string& path, uint64_t bytes);
  ~SmallDisk();

  // Takes what is free, but for what a file of a few bytes needs.
  absl::Status Fill();
  // Gives it back.
  void Free();

 private:
  explicit SmallDisk(std::string path) : path_(std::move(path)) {}
  std::string Ballast() const { return path_ + "/.ballast"; }

  const std::string path_;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_SMALL_DISK_H_

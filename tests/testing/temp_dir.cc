#include "tests/testing/temp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

namespace fs = std::filesystem;

bool TestHasFailed() {
  const auto* unit = testing::UnitTest::GetInstance();
  return unit->Failed();
}

// The lock of a folder is a file beside it: the code under test may lock the
// folder itself.
constexpr absl::string_view kLockSuffix = ".lock";
std::string LockPath(const std::string& path) {
  return absl::StrCat(path, kLockSuffix);
}

// Locks a folder, which may be gone. -1: another process has locked it and
// `waits` is false, or the lock file cannot be opened.
int Lock(const std::string& path, bool waits) {
  const int fd = open(LockPath(path).c_str(),
                      O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  int locked = 0;
  do {
    locked = flock(fd, waits ? LOCK_EX : LOCK_EX | LOCK_NB);
  } while (locked != 0 && errno == EINTR);
  // The one that had locked it before may have removed the lock file.
  struct stat named, opened;
  if (locked == 0 && lstat(LockPath(path).c_str(), &named) == 0 &&
      fstat(fd, &opened) == 0 && named.st_ino == opened.st_ino) {
    return fd;
  }
  close(fd);
  return -1;
}

// Removes a folder and its lock, which is given back. False: it stays.
bool Remove(const std::string& path, int lock) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error) unlink(LockPath(path).c_str());
  close(lock);
  return !error;
}

// True for a folder of this user, and for none at all.
bool MayBeOurs(const std::string& path) {
  struct stat found;
  if (lstat(path.c_str(), &found) != 0) return errno == ENOENT;
  return S_ISDIR(found.st_mode) && found.st_uid == geteuid();
}

std::string Make(int* lock) {
  const std::string root = fs::canonical(testing::TempDir()).string();
  for (int attempt = 0; attempt < 10; ++attempt) {
    std::string path = absl::StrCat(root, "/", TempDirPrefix(), "XXXXXX");
    SYNCLINE_CHECK(mkdtemp(path.data()) != nullptr);
    *lock = Lock(path, /*waits=*/true);
    // Before it was locked, another process may have taken it for a leftover.
    if (*lock >= 0 && fs::exists(path)) return path;
    if (*lock >= 0) Remove(path, *lock);
  }
  SYNCLINE_CHECK(false);
}

}  // namespace

TempDir::TempDir() {
  static const int once = RemoveLeftovers(testing::TempDir(), TempDirPrefix());
  static_cast<void>(once);
  path_ = Make(&lock_);
}

TempDir::~TempDir() {
  if (TestHasFailed()) {
    std::cout << "kept for a look: " << path_ << std::endl;
    close(lock_);
    return;
  }
  Remove(path_, lock_);
}

std::string TempDirPrefix() {
  // A hash instead of the name: paths of sockets may have 107 characters.
  uint32_t hash = 2166136261u;
  for (const char* c = program_invocation_short_name; *c != '\0'; ++c) {
    hash = (hash ^ static_cast<unsigned char>(*c)) * 16777619u;
  }
  return absl::StrCat("syncline-test-", absl::Hex(hash, absl::kZeroPad8), "-");
}

int RemoveLeftovers(const std::string& root, absl::string_view prefix) {
  std::set<std::string> found;
  std::error_code error;
  int names = 0;
  for (fs::directory_iterator entry(root, error), end;
       !error && entry != end && names < kLeftoverNamesMax;
       entry.increment(error), ++names) {
    const std::string name = entry->path().filename().string();
    if (!absl::StartsWith(name, prefix)) continue;
    found.emplace(
        absl::StrCat(root, "/", absl::StripSuffix(name, kLockSuffix)));
  }
  int removed = 0;
  for (const std::string& path : found) {
    if (removed == kLeftoversMax) break;
    if (!MayBeOurs(path)) continue;
    const int lock = Lock(path, /*waits=*/false);
    if (lock >= 0 && Remove(path, lock)) ++removed;
  }
  return removed;
}

std::string TempDir::File(absl::string_view name) const {
  return absl::StrCat(path_, "/", name);
}

std::string TempDir::Write(absl::string_view name,
                           absl::string_view content) const {
  const std::string file = File(name);
  std::filesystem::create_directories(
      std::filesystem::path(file).parent_path());
  std::ofstream(file, std::ios::binary)
      .write(content.data(), static_cast<std::streamsize>(content.size()));
  return file;
}

std::string SourceDir() {
  const fs::path program = fs::read_symlink("/proc/self/exe");
  const fs::path bundle = program.parent_path().parent_path();
  if (fs::exists(bundle / "deploy/examples")) return bundle;
  return SYNCLINE_SOURCE_DIR;
}

std::string TestDataDir() {
  const char* set = std::getenv("SYNCLINE_TEST_DATA");
  return set != nullptr ? set : SourceDir() + "/../shared/data";
}

}  // namespace syncline

// Goal: every change of a file changes its version. Method: a file that is
// written, replaced and removed.

#include "common/system/file_version.h"

#include <fcntl.h>

#include <string>

#include "common/system/file.h"
#include "common/system/file_descriptor.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

TEST(FileVersionTest, ChangesWithTheFile) {
  const TempDir dir;
  const std::string path = dir.File("f");
  const std::string none = FileVersion(path);
  EXPECT_EQ(FileVersion(path), none);
  ASSERT_TRUE(WriteFileAtomically(path, "a").ok());
  const std::string first = FileVersion(path);
  EXPECT_NE(first, none);
  EXPECT_EQ(FileVersion(path), first);
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(FileVersion(file.get()), first);
  ASSERT_TRUE(WriteFileAtomically(path, "b").ok());  // as long, another file
  EXPECT_NE(FileVersion(path), first);
  ASSERT_TRUE(RemoveTree(path).ok());
  EXPECT_EQ(FileVersion(path), none);
}

}  // namespace
}  // namespace syncline

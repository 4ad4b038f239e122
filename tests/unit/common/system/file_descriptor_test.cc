// Goal: a FileDescriptor closes what it owns once, and nothing else. Method:
// descriptors of a file, looked at with fcntl.

#include "common/system/file_descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "gtest/gtest.h"

namespace syncline {
namespace {

int Open() { return open("/dev/null", O_RDONLY); }
bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(FileDescriptorTest, ClosesAtItsEnd) {
  int fd = -1;
  {
    const FileDescriptor owner(Open());
    fd = owner.get();
    EXPECT_TRUE(owner.valid());
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));
}

TEST(FileDescriptorTest, OwnsNothingByDefault) {
  const FileDescriptor none;
  EXPECT_FALSE(none.valid());
}

TEST(FileDescriptorTest, AReleasedOneIsTheCallers) {
  int fd = -1;
  {
    FileDescriptor owner(Open());
    fd = owner.Release();
    EXPECT_FALSE(owner.valid());
  }
  EXPECT_TRUE(IsOpen(fd));
  close(fd);
}

TEST(FileDescriptorTest, MovesWhatItOwns) {
  FileDescriptor first(Open());
  const int fd = first.get();
  FileDescriptor second(std::move(first));
  EXPECT_EQ(second.get(), fd);
  EXPECT_TRUE(IsOpen(fd));

  FileDescriptor third(Open());
  const int other = third.get();
  {
    FileDescriptor from = std::move(second);
    third = std::move(from);
    EXPECT_EQ(third.get(), fd);
  }
  // The one that was assigned to has let go of what it had.
  EXPECT_FALSE(IsOpen(other));
  EXPECT_TRUE(IsOpen(fd));
}

}  // namespace
}  // namespace syncline

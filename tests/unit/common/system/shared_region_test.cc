// Goal: two mappings show the same bytes, and memory that could be taken away
// from under its reader is never mapped.
// Method: both ends in one process; hostile files of every kind at hand.

#include "common/system/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstring>

#include "common/system/file_descriptor.h"
#include "gtest/gtest.h"
#include "tests/testing/open_files.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using Access = SharedRegion::Access;

constexpr size_t kBytes = 3 << 12;

TEST(SharedRegionTest, BothSidesSeeTheSameBytes) {
  ASSERT_OK_AND_ASSIGN(const auto own, SharedRegion::Create(kBytes));
  ASSERT_OK_AND_ASSIGN(
      const auto other,
      SharedRegion::Map(own->memory(), kBytes, Access::kReadWrite));
  EXPECT_EQ(other->size(), kBytes);
  EXPECT_NE(other->data(), own->data());
  EXPECT_EQ(own->data()[kBytes - 1], 0);
  std::strcpy(reinterpret_cast<char*>(own->data()), "from here");
  EXPECT_STREQ(reinterpret_cast<char*>(other->data()), "from here");
  std::strcpy(reinterpret_cast<char*>(other->data()) + 100, "and back");
  EXPECT_STREQ(reinterpret_cast<char*>(own->data()) + 100, "and back");
}

TEST(SharedRegionTest, OutlivesItsCreator) {
  ASSERT_OK_AND_ASSIGN(auto own, SharedRegion::Create(kBytes));
  ASSERT_OK_AND_ASSIGN(const auto other,
                       SharedRegion::Map(own->memory(), kBytes, Access::kRead));
  own->data()[5] = 42;
  own.reset();
  EXPECT_EQ(other->data()[5], 42);
}

TEST(SharedRegionTest, ItsSizeCannotChange) {
  ASSERT_OK_AND_ASSIGN(const auto own, SharedRegion::Create(kBytes));
  EXPECT_NE(ftruncate(own->memory().get(), 0), 0);
  EXPECT_NE(ftruncate(own->memory().get(), 2 * kBytes), 0);
  EXPECT_NE(fcntl(own->memory().get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(SharedRegionTest, NoPageGoesFromUnderAReader) {
  ASSERT_OK_AND_ASSIGN(const auto own, SharedRegion::Create(kBytes));
  ASSERT_OK_AND_ASSIGN(const auto reader,
                       SharedRegion::Map(own->memory(), kBytes, Access::kRead));
  const int fd = own->memory().get();
  EXPECT_NE(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096),
            0);
  EXPECT_NE(madvise(own->data(), 4096, MADV_REMOVE), 0);
  // The creator goes on writing, and another process may map it to read.
  own->data()[5] = 42;
  EXPECT_EQ(reader->data()[5], 42);
  EXPECT_OK(SharedRegion::Map(own->memory(), kBytes, Access::kRead).status());
  EXPECT_FALSE(
      SharedRegion::Map(own->memory(), kBytes, Access::kReadWrite).ok());
  // Sealed against the seal.
  const FileDescriptor stubborn(memfd_create("t", MFD_ALLOW_SEALING));
  ASSERT_EQ(posix_fallocate(stubborn.get(), 0, kBytes), 0);
  ASSERT_EQ(fcntl(stubborn.get(), F_ADD_SEALS,
                  F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL),
            0);
  EXPECT_EQ(SharedRegion::Map(stubborn, kBytes, Access::kRead).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_OK(SharedRegion::Map(stubborn, kBytes, Access::kReadWrite).status());
}

TEST(SharedRegionTest, RefusesWhatCouldShrink) {
  const FileDescriptor unsealed(memfd_create("t", MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), kBytes), 0);
  EXPECT_EQ(SharedRegion::Map(unsealed, kBytes, Access::kRead).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_EQ(fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  EXPECT_EQ(SharedRegion::Map(unsealed, kBytes, Access::kRead).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(SharedRegionTest, RefusesWhatIsNotAllocated) {
  const FileDescriptor sparse(memfd_create("t", MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(sparse.get(), 1ll << 40), 0);
  ASSERT_EQ(fcntl(sparse.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK), 0);
  EXPECT_EQ(SharedRegion::Map(sparse, size_t{1} << 41, Access::kReadWrite)
                .status()
                .code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(SharedRegionTest, RefusesOtherFiles) {
  const FileDescriptor folder(open("/", O_RDONLY));
  const FileDescriptor device(open("/dev/zero", O_RDWR));
  const FileDescriptor program(open("/proc/self/exe", O_RDONLY));
  for (const FileDescriptor* file : {&folder, &device, &program}) {
    ASSERT_TRUE(file->valid());
    EXPECT_EQ(SharedRegion::Map(*file, 1 << 30, Access::kRead).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_FALSE(SharedRegion::Map({}, kBytes, Access::kRead).ok());
}

TEST(SharedRegionTest, RefusesMoreThanThereIsRoomFor) {
  ASSERT_OK_AND_ASSIGN(const auto own, SharedRegion::Create(kBytes));
  EXPECT_EQ(SharedRegion::Map(own->memory(), kBytes - 1, Access::kRead)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(SharedRegion::Create(0).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SharedRegion::Create(size_t{1} << 50).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(SharedRegionTest, KnowsWhatLiesWithin) {
  ASSERT_OK_AND_ASSIGN(const auto region, SharedRegion::Create(kBytes));
  EXPECT_TRUE(region->Contains(region->data(), kBytes));
  EXPECT_TRUE(region->Contains(region->data() + kBytes, 0));
  EXPECT_FALSE(region->Contains(region->data() + 1, kBytes));
  EXPECT_FALSE(region->Contains(region->data() - 1, 1));
  EXPECT_FALSE(region->Contains(region->data() + 1, ~size_t{0}));
}

TEST(SharedRegionTest, LeavesNothingOpenOrMapped) {
  const size_t before = OpenFiles();
  {
    ASSERT_OK_AND_ASSIGN(const auto own, SharedRegion::Create(kBytes));
    EXPECT_EQ(MappedRegions(), 1u);
    ASSERT_OK(SharedRegion::Map(own->memory(), kBytes, Access::kRead));
    ASSERT_FALSE(SharedRegion::Map(own->memory(), 1, Access::kRead).ok());
  }
  EXPECT_EQ(OpenFiles(), before);
  EXPECT_EQ(MappedRegions(), 0u);
}

}  // namespace
}  // namespace syncline

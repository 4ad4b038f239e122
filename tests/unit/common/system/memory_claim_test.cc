// Goal: memory that a job is promised is there, and what does not fit is
// refused with both numbers before it is taken. Method: the available memory is
// given; residence is what mincore says.

#include "common/system/memory_claim.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr size_t kPage = 4096;

// Untouched pages of a private mapping.
class Pages {
 public:
  explicit Pages(size_t bytes)
      : bytes_(bytes),
        data_(static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~Pages() { munmap(data_, bytes_); }
  absl::Span<char> span() { return {data_, bytes_}; }
  size_t Resident() const {
    std::vector<unsigned char> there(bytes_ / kPage);
    EXPECT_EQ(mincore(data_, bytes_, there.data()), 0);
    size_t count = 0;
    for (const unsigned char page : there) count += page & 1;
    return count * kPage;
  }

 private:
  const size_t bytes_;
  char* const data_;
};

TEST(MemoryClaimTest, WhatFitsPasses) {
  const auto available = [] { return 164 * kMiB; };
  EXPECT_TRUE(CheckMemoryFor("values", 100 * kMiB, available).ok());
  EXPECT_TRUE(CheckMemoryFor("values", 0, available).ok());
}

TEST(MemoryClaimTest, WhatDoesNotFitIsRefusedWithBothNumbers) {
  const absl::Status status =
      CheckMemoryFor("values", 100 * kMiB + 1, [] { return 164 * kMiB; });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(),
              HasSubstr("values need 100 MiB, 100 MiB are available"));
  EXPECT_THAT(CheckMemoryFor("values", kMiB, [] { return kMiB; }).message(),
              HasSubstr("values need 1.0 MiB, 0.0 MiB are available"));
}

TEST(MemoryClaimTest, NoSizeOverflows) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  EXPECT_FALSE(CheckMemoryFor("values", kMost, [] { return kMiB; }).ok());
  EXPECT_TRUE(CheckMemoryFor("values", kMiB, [] { return kMost; }).ok());
}

TEST(MemoryClaimTest, TouchedPagesAreResidentAndKeepTheirContents) {
  Pages pages(3 * kMiB);
  pages.span()[kMiB + 5] = 'x';
  ASSERT_LT(pages.Resident(), 3 * kMiB);
  ASSERT_TRUE(TouchMemory("values", pages.span(), nullptr, [] {
                return 500 * kMiB;
              }).ok());
  EXPECT_EQ(pages.Resident(), 3 * kMiB);
  EXPECT_EQ(pages.span()[kMiB + 5], 'x');
  EXPECT_EQ(pages.span()[2 * kMiB], 0);
}

TEST(MemoryClaimTest, StopsWhereOthersHaveTakenTheRest) {
  Pages pages(192 * kMiB);
  int asked = 0;
  // There is enough for one step of 64 MiB when the second is asked for.
  const absl::Status status = TouchMemory("values", pages.span(), nullptr, [&] {
    return ++asked == 1 ? 512 * kMiB : 100 * kMiB;
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("values need 128 MiB, 36.0 MiB"));
  // Huge pages may reach a little beyond the step.
  EXPECT_LT(pages.Resident(), 70 * kMiB);
}

TEST(MemoryClaimTest, StopsWhereItIsNoLongerWanted) {
  Pages pages(192 * kMiB);
  int asked = 0;
  const auto go_on = [&] {
    return ++asked == 1 ? absl::OkStatus() : absl::CancelledError("stopped");
  };
  EXPECT_EQ(
      TouchMemory("values", pages.span(), go_on, [] { return 512 * kMiB; }),
      absl::CancelledError("stopped"));
  EXPECT_GE(pages.Resident(), 64 * kMiB);
  EXPECT_LT(pages.Resident(), 70 * kMiB);
}

TEST(MemoryClaimTest, ReleasedPagesAreTakenAgainWhenTheyAreTouched) {
  Pages pages(8 * kMiB);
  std::fill(pages.span().begin(), pages.span().end(), 'x');
  EXPECT_EQ(pages.Resident(), 8 * kMiB);
  // Parts of pages at the ends stay.
  ReleasePages(pages.span().subspan(100, 6 * kMiB));
  EXPECT_LT(pages.Resident(), 3 * kMiB);
  EXPECT_EQ(pages.span()[99], 'x');
  EXPECT_EQ(pages.span()[100], 'x');
  EXPECT_EQ(pages.span()[kMiB], 0);
  EXPECT_EQ(pages.span()[7 * kMiB], 'x');
  pages.span()[kMiB] = 'y';
  EXPECT_EQ(pages.span()[kMiB], 'y');
  ReleasePages({});
  ReleasePages(pages.span().first(10));
}

TEST(MemoryClaimTest, NothingIsTouchedOfNothing) {
  EXPECT_TRUE(
      TouchMemory("values", {}, nullptr, [] { return uint64_t{0}; }).ok());
}

}  // namespace
}  // namespace syncline

// Goal: indices are sorted by the rows that they name, and those of one row
// stay in their order. Method: numbers of indices around those of a thread and
// of a block, and rows of one digit and of many, against std::stable_sort, on
// an emulated device.

#include "kernels/cuda/walk/sorted_rows.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline {
namespace {

using testing::EmulatedDevice;

struct Named {
  cuda::Global<const int64_t> rows;
  int64_t operator()(int64_t i) const { return rows[i]; }
};

std::vector<int64_t> Sorted(uint64_t seed, int64_t row_count,
                            const std::vector<int64_t>& rows) {
  EmulatedDevice device(seed);
  const auto stream = *device.MakeStream();
  const int64_t named = static_cast<int64_t>(rows.size());
  const DeviceMemory names = *Upload(device, absl::Span<const int64_t>(rows));
  const DeviceMemory order = *device.Allocate(named * sizeof(int64_t));
  const DeviceMemory spare = *device.Allocate(named * sizeof(int64_t));
  const DeviceMemory counts =
      *device.Allocate(cuda::SortCounts(named) * sizeof(int64_t));
  const int64_t* const by_index = names.as<int64_t>();
  cuda::SortByRow(*stream, row_count, named, Named{cuda::OnDevice(by_index)},
                  order.as<int64_t>(), spare.as<int64_t>(),
                  counts.as<int64_t>());
  std::vector<int64_t> got(named);
  stream->CopyToHost(got.data(), order.data(), named * sizeof(int64_t));
  EXPECT_EQ(stream->Synchronize(), absl::OkStatus());
  return got;
}

void ExpectSorted(int64_t row_count, int64_t named) {
  SCOPED_TRACE(absl::StrCat(named, " of ", row_count));
  std::vector<int64_t> rows(named);
  for (int64_t i = 0; i < named; ++i) {
    rows[i] = (i % 3 == 0 ? row_count - 1 : i * 7919) % row_count;
  }
  std::vector<int64_t> want(named);
  std::iota(want.begin(), want.end(), 0);
  std::stable_sort(want.begin(), want.end(),
                   [&](int64_t a, int64_t b) { return rows[a] < rows[b]; });
  for (const uint64_t seed : {1, 2}) {
    EXPECT_EQ(Sorted(seed, row_count, rows), want);
  }
}

TEST(CudaSortedRowsTest, SortsAndKeepsTheOrder) {
  for (const int64_t rows : {1, 16, 17, 1000}) {
    for (const int64_t named : {1, 17, 600}) ExpectSorted(rows, named);
  }
  ExpectSorted(300, 4096);
  ExpectSorted(17, 4097);
  ExpectSorted(int64_t{1} << 33, 5000);
}

TEST(CudaSortedRowsTest, NoIndicesAreNoLaunch) {
  EmulatedDevice device;
  const auto stream = *device.MakeStream();
  cuda::SortByRow(*stream, 3, 0, Named{}, nullptr, nullptr, nullptr);
  EXPECT_EQ(device.launches(), 0);
}

}  // namespace
}  // namespace syncline

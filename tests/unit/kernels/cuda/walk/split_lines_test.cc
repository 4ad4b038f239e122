// Goal: lines are folded whole, however they are cut; few long ones are many
// blocks' work. Method: sums and last elements of lines of all forms against
// plain loops, on an emulated device.

#include "kernels/cuda/walk/split_lines.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline {
namespace {

using testing::EmulatedDevice;

// Of x [lines, n], or [n, lines] where lines are adjacent.
struct Lines {
  struct Place {
    int64_t begin = 0;
  };

  int64_t n;
  int64_t step;
  cuda::Global<const float> x;

  Place At(int64_t line) const { return {step == 1 ? line * n : line}; }
  float Element(const Place& place, int64_t k) const {
    return x[place.begin + k * step];
  }
};

struct SumOfLine : Lines {
  using Value = double;
  cuda::Global<double> y;

  double neutral() const { return 0; }
  double TermAt(const Place& place, int64_t k) const {
    return Element(place, k);
  }
  double Join(double a, double b) const { return a + b; }
  void Finish(const Place&, int64_t line, double value) const {
    y[line] = value;
  }
};

// The last element above 0, by its place; -1: none.
struct LastOfLine : Lines {
  using Value = int64_t;
  cuda::Global<int64_t> y;

  int64_t neutral() const { return -1; }
  int64_t TermAt(const Place& place, int64_t k) const {
    return Element(place, k) > 0 ? (k << 40) + k : -1;
  }
  int64_t Join(int64_t a, int64_t b) const { return a > b ? a : b; }
  void Finish(const Place&, int64_t line, int64_t value) const {
    y[line] = value;
  }
};

// Whole numbers, and in each line zeros from n / 2 on.
float ElementOf(int64_t n, int64_t line, int64_t k) {
  return k < n / 2 ? static_cast<float>((line + k) % 13 + 1) : 0.0f;
}

void ExpectFolded(int64_t lines, int64_t n, bool are_adjacent,
                  int64_t blocks_min) {
  SCOPED_TRACE(absl::StrCat(lines, " x ", n, are_adjacent ? " adjacent" : ""));
  std::vector<float> x(lines * n + 1);
  std::vector<double> sums(lines);
  std::vector<int64_t> last(lines, -1);
  const int64_t step = are_adjacent ? lines : 1;
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t k = 0; k < n; ++k) {
      const float value = ElementOf(n, line, k);
      x[are_adjacent ? k * lines + line : line * n + k] = value;
      sums[line] += value;
      if (value > 0) last[line] = (k << 40) + k;
    }
  }
  for (const uint64_t seed : {1, 2}) {
    EmulatedDevice device(seed);
    const auto stream = *device.MakeStream();
    const DeviceMemory from = *Upload(device, absl::Span<const float>(x));
    const DeviceMemory to = *device.Allocate((lines + 1) * sizeof(double));
    const DeviceMemory at = *device.Allocate((lines + 1) * sizeof(int64_t));
    const float* const in = from.as<float>();
    const Lines source = {n, step, cuda::OnDevice(in)};
    cuda::FoldLines(*stream, lines, n, are_adjacent,
                    SumOfLine{source, cuda::OnDevice(to.as<double>())});
    EXPECT_GE(device.blocks(), blocks_min);
    cuda::FoldLines(*stream, lines, n, are_adjacent,
                    LastOfLine{source, cuda::OnDevice(at.as<int64_t>())});
    std::vector<double> got(lines);
    std::vector<int64_t> got_last(lines);
    stream->CopyToHost(got.data(), to.data(), lines * sizeof(double));
    stream->CopyToHost(got_last.data(), at.data(), lines * sizeof(int64_t));
    ASSERT_EQ(stream->Synchronize(), absl::OkStatus());
    EXPECT_EQ(got, sums);
    EXPECT_EQ(got_last, last);
  }
}

TEST(CudaSplitLinesTest, FoldsLinesOfAllForms) {
  for (const bool are_adjacent : {false, true}) {
    for (const int64_t lines : {1, 3}) {
      for (const int64_t n : {0, 1, 100, 1100, 4095, 4096, 6151}) {
        ExpectFolded(lines, n, are_adjacent, 0);
      }
    }
    ExpectFolded(33, 4100, are_adjacent, 0);
  }
}

// One block summed all of them.
TEST(CudaSplitLinesTest, FewLongLinesAreManyBlocks) {
  ExpectFolded(1, 50'000, /*are_adjacent=*/false, 25);
  ExpectFolded(4, 20'000, /*are_adjacent=*/true, 3);
  ExpectFolded(2, 25'000, /*are_adjacent=*/false, 25);
}

TEST(CudaSplitLinesTest, PartsFillAGpuAndFitIntoTheirMemory) {
  const int64_t many = int64_t{1} << 24;
  EXPECT_EQ(cuda::PartsOfLine(1, many, false), cuda::kPartialSumsMax);
  EXPECT_EQ(cuda::PartsOfLine(4, many, true), cuda::kPartialSumsMax / 4);
  EXPECT_EQ(cuda::PartsOfLine(1, 4095, false), 1);
  EXPECT_EQ(cuda::PartsOfLine(1, 4096, false), 2);
  EXPECT_EQ(cuda::PartsOfLine(0, many, false), 1);
  // Enough blocks without.
  EXPECT_EQ(cuda::PartsOfLine(128, many, false), 1);
  EXPECT_EQ(cuda::PartsOfLine(128, many, true), 32);
  EXPECT_EQ(cuda::PartsOfLine(4096, many, true), 1);
}

}  // namespace
}  // namespace syncline

// Goal: runs lie where loops and indices say; an index outside its dimension is
// reported and does no harm. Method: a few numbers by hand.
// (worker_op_table_test has the rest.)

#include "kernels/cpu/indexed.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/device/kernel_table.h"

namespace syncline {
namespace {

class IndexedTest : public ::testing::Test {
 protected:
  template <typename Index>
  std::vector<int64_t> Find(const IndexedShape& s,
                            const std::vector<Index>& indices) {
    std::vector<int64_t> begins(s.runs, 77);
    kernels_.find(stream_, s, indices.data(), begins.data(),
                  {.record = &error_, .node = 3});
    return begins;
  }

  const IndexedKernels& kernels_ = *ThisMachine().kernels().indexed;
  CpuStream stream_ = CpuStream(&ThisMachine());
  DataError error_;
};

// Two batches of [3, 2]; runs are rows.
IndexedShape Rows() {
  IndexedShape s;
  s.loops.push_back({.n = 2, .stride = 6});
  s.loops.push_back({.n = 2, .stride = 0});
  s.places.push_back({.n = 3, .stride = 2});
  s.runs = 4;
  s.run_length = 2;
  s.count = 12;
  return s;
}

TEST_F(IndexedTest, RunsBeginWhereLoopsAndIndicesSay) {
  EXPECT_EQ(Find<int64_t>(Rows(), {0, 2, -1, 1}),
            (std::vector<int64_t>{0, 4, 10, 8}));
  EXPECT_EQ(error_.node, DataError::kNone);
}

TEST_F(IndexedTest, ATupleIsAPlaceInEachOfItsDimensions) {
  IndexedShape s;
  s.loops.push_back({.n = 3, .stride = 0});
  s.places.push_back({.n = 2, .stride = 4});
  s.places.push_back({.n = 4, .stride = 1});
  s.runs = 3;
  s.count = 8;
  EXPECT_EQ(Find<int64_t>(s, {1, 3, 0, -2, 5, 4}),
            (std::vector<int64_t>{7, 2, 0}));
  EXPECT_EQ(error_.position, 4);
  EXPECT_EQ(error_.value, 5);
}

TEST_F(IndexedTest, NarrowIndicesAreThoseOfInt32) {
  IndexedShape s = Rows();
  s.index_type = DType::kInt32;
  EXPECT_EQ(Find<int32_t>(s, {0, 2, -1, 1}),
            (std::vector<int64_t>{0, 4, 10, 8}));
}

TEST_F(IndexedTest, TheFirstIndexThatIsOutsideIsReportedAndCountsAsZero) {
  EXPECT_EQ(Find<int64_t>(Rows(), {1, 3, -4, 2}),
            (std::vector<int64_t>{2, 0, 6, 10}));
  EXPECT_EQ(error_.node, 3);
  EXPECT_EQ(error_.kind, 0);
  EXPECT_EQ(error_.position, 1);
  EXPECT_EQ(error_.value, 3);
}

TEST_F(IndexedTest, OfAnEmptyArrayRunsAreZerosAndNothingIsAdded) {
  IndexedShape s;
  s.loops.push_back({.n = 2, .stride = 0});
  s.places.push_back({.n = 0, .stride = 2});
  s.runs = 2;
  s.run_length = 2;
  const std::vector<int64_t> begins = Find<int64_t>(s, {0, 5});
  EXPECT_EQ(error_.position, 0);
  std::vector<float> y(4, 77.0f);
  kernels_.gather(stream_, s, sizeof(float), begins.data(), nullptr, y.data());
  EXPECT_EQ(y, std::vector<float>(4, 0.0f));
  kernels_.add(stream_, s, begins.data(), y.data(), nullptr, nullptr);
}

}  // namespace
}  // namespace syncline

// Goal: the parts of a row lie where the header draws them, and a spilled row
// is the row without its key. Method: a row is written part by part and read
// byte by byte.

#include "common/state/row_layout.h"

#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace syncline {
namespace {

template <typename T>
T At(const char* row, size_t offset) {
  T value;
  std::memcpy(&value, row + offset, sizeof(T));
  return value;
}

class RowLayoutTest : public ::testing::Test {
 protected:
  RowLayoutTest() : memory_(layout_.bytes() / sizeof(float)) {
    RowLayout::SetKey(row(), -7);
    RowLayout::SetPast(row(), 2.5f, 4'000'000'000u);
    for (int i = 0; i < 3; ++i) RowLayout::Values(row())[i] = 10.0f + i;
    for (int i = 0; i < 2; ++i) layout_.State(row())[i] = 20.0f + i;
  }
  // Aligned to four bytes, as in a slab.
  char* row() { return reinterpret_cast<char*>(memory_.data()); }

  const RowLayout layout_{/*dim=*/3, /*state_floats=*/2};
  std::vector<float> memory_;
};

TEST_F(RowLayoutTest, PartsFollowOneAnother) {
  EXPECT_EQ(layout_.dim(), 3u);
  EXPECT_EQ(layout_.bytes(), 16u + 5 * sizeof(float));
  EXPECT_EQ(At<int64_t>(row(), 0), -7);
  EXPECT_EQ(At<float>(row(), 8), 2.5f);
  EXPECT_EQ(At<uint32_t>(row(), 12), 4'000'000'000u);
  EXPECT_EQ(At<float>(row(), 16), 10.0f);
  EXPECT_EQ(At<float>(row(), 16 + 3 * sizeof(float)), 20.0f);
}

TEST_F(RowLayoutTest, PartsAreReadAsTheyWereWritten) {
  EXPECT_EQ(RowLayout::Key(row()), -7);
  EXPECT_EQ(RowLayout::Score(row()), 2.5f);
  EXPECT_EQ(RowLayout::Clock(row()), 4'000'000'000u);
  EXPECT_EQ(RowLayout::Values(row())[2], 12.0f);
  EXPECT_EQ(layout_.State(row())[1], 21.0f);
}

TEST_F(RowLayoutTest, ASpilledRowIsTheRowWithoutItsKey) {
  EXPECT_EQ(layout_.spilled_bytes(), layout_.bytes() - sizeof(int64_t));
  const char* const spilled = RowLayout::Spilled(row());
  EXPECT_EQ(spilled, row() + sizeof(int64_t));
  EXPECT_EQ(RowLayout::SpilledScore(spilled), 2.5f);
  EXPECT_EQ(RowLayout::SpilledClock(spilled), 4'000'000'000u);
  EXPECT_EQ(RowLayout::SpilledValues(spilled)[1], 11.0f);
}

}  // namespace
}  // namespace syncline

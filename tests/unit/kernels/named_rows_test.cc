// Goal: rows that are added to the rows that indices name keep the digits of
// their sums however often one is named, and get the same bits wherever they
// lie. Method: 70,000 rows and more against sums in fp64; few, and rows in
// other places of larger arrays, bit for bit.

#include "kernels/named_rows.h"

#include <gtest/gtest.h>

#include <vector>

namespace syncline {
namespace {

constexpr double kRounding = 1.0 / (1 << 24);

// About 0.1, which rounds the same way again and again.
float Number(int64_t i) { return 0.1f + 1e-4f * static_cast<float>(i % 7); }

std::vector<float> Added(const NamedRows& s,
                         const std::vector<int64_t>& names) {
  std::vector<float> from(s.outer * s.named * s.width);
  for (size_t i = 0; i < from.size(); ++i) {
    from[i] = Number(static_cast<int64_t>(i));
  }
  std::vector<float> to(s.outer * s.rows * s.width, 0.5f);
  std::vector<uint32_t> scratch(NamedRowsScratch(s), 12345);
  AddNamedRows(
      s, [&](int64_t i) { return names[i]; }, from.data(), to.data(),
      scratch.data());
  return to;
}

// The result of a plain loop.
template <typename T>
std::vector<T> Plain(const NamedRows& s, const std::vector<int64_t>& names) {
  std::vector<T> to(s.outer * s.rows * s.width, T{0.5});
  for (int64_t o = 0; o < s.outer; ++o) {
    for (int64_t i = 0; i < s.named; ++i) {
      for (int64_t k = 0; k < s.width; ++k) {
        to[(o * s.rows + names[i]) * s.width + k] +=
            Number((o * s.named + i) * s.width + k);
      }
    }
  }
  return to;
}

// Every other index is `hot`; the others go round `rows`.
std::vector<int64_t> HalfOfThem(int64_t hot, int64_t named, int64_t rows) {
  std::vector<int64_t> names(named);
  for (int64_t i = 0; i < named; ++i) {
    names[i] = i % 2 == 0 ? hot : i * 17 % rows;
  }
  return names;
}

TEST(NamedRowsTest, ManyRowsInOnePlaceKeepTheirDigits) {
  for (const NamedRows& s :
       {NamedRows{1, 3, 70'000, 2}, NamedRows{2, 100, 70'000, 1},
        NamedRows{1, 1, 70'000, 3}, NamedRows{1, 2, 5'000, 1'025},
        // More places than indices; more indices than are looked at together.
        NamedRows{1, 200'000, 70'000, 2},
        NamedRows{1, 5, 2 * kNamedAtOnce + 70, 1}}) {
    SCOPED_TRACE(::testing::Message()
                 << s.outer << " x " << s.rows << " x " << s.width);
    const std::vector<int64_t> names = HalfOfThem(s.rows / 2, s.named, s.rows);
    const std::vector<float> sums = Added(s, names);
    const std::vector<double> want = Plain<double>(s, names);
    for (size_t i = 0; i < sums.size(); ++i) {
      // And one of each addition to what was there.
      ASSERT_NEAR(sums[i], want[i], (kRowBlock + 6) * kRounding * want[i]);
    }
  }
}

TEST(NamedRowsTest, FewRowsInOnePlaceAreAddedOneByOne) {
  for (const NamedRows& s : {NamedRows{1, 3, 64, 5}, NamedRows{2, 50, 1'000, 2},
                             NamedRows{1, 1'000, 10, 1}, NamedRows{3, 2, 0, 1},
                             NamedRows{1, 3, 100, 0}}) {
    std::vector<int64_t> names(s.named);
    for (int64_t i = 0; i < s.named; ++i) names[i] = i * 7 % s.rows;
    EXPECT_EQ(Added(s, names), Plain<float>(s, names));
  }
}

// As those of a table do, of which a step reads a few thousand, and those of
// the same embedding in one array. Rows that share a bucket are told apart.
TEST(NamedRowsTest, BitsDoNotDependOnWhereRowsLie) {
  constexpr int64_t kRows = 40, kNamed = 5'000, kWidth = 3;
  const std::vector<int64_t> names = HalfOfThem(7, kNamed, kRows);
  const std::vector<float> dense = Added({1, kRows, kNamed, kWidth}, names);
  for (const int64_t apart : {1, 3, 125, 1'000, 5'000}) {
    std::vector<int64_t> spread;
    for (const int64_t name : names) spread.push_back(name * apart);
    const std::vector<float> sums =
        Added({1, kRows * apart, kNamed, kWidth}, spread);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t k = 0; k < kWidth; ++k) {
        EXPECT_EQ(sums[r * apart * kWidth + k], dense[r * kWidth + k]) << apart;
      }
    }
  }
}

}  // namespace
}  // namespace syncline

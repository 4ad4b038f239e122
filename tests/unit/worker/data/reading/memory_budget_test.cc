// Goal: data that does not fit into memory is refused before the memory is
// taken, with what it needs, what there is, and where. Method: a budget that is
// told what is available, by itself and under each loader.

#include "worker/data/reading/memory_budget.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_files.h"
#include "tests/unit/worker/data/npy_files.h"
#include "worker/data/formats/csv_table.h"
#include "worker/data/formats/digits_table.h"
#include "worker/data/formats/idx_table.h"
#include "worker/data/formats/libsvm_table.h"
#include "worker/data/formats/npy_table.h"
#include "worker/data/formats/token_table.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

MemoryBudget WithLeft(uint64_t bytes) {
  return MemoryBudget([bytes] { return bytes; });
}
const auto kHere = [] { return std::string("t.csv:7"); };

TEST(MemoryBudgetTest, LeavesSomeToTheJob) {
  const MemoryBudget memory = WithLeft(MemoryBudget::kLeftBytes + 10 * kMiB);
  EXPECT_TRUE(memory.Check(10 * kMiB, kHere).ok());
  const absl::Status status = memory.Check(10 * kMiB + 1, kHere);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("t.csv:7: the data does not fit into memory: it "
                              "needs 11 MiB more, 138 MiB are available, of "
                              "which 128 MiB are left"),
                    HasSubstr("use less data")));
  EXPECT_FALSE(WithLeft(0).Check(kMiB, kHere).ok());
  EXPECT_FALSE(memory.Check(~uint64_t{0}, kHere).ok());
  EXPECT_TRUE(WithLeft(0).Check(kMiB - 1, kHere).ok()) << "not looked at";
}

TEST(MemoryBudgetTest, VectorsGrowByHalfAtLeastAndOnlyIfTheyFit) {
  const MemoryBudget memory = WithLeft(MemoryBudget::kLeftBytes + 8 * kMiB);
  std::vector<double> values;
  EXPECT_TRUE(memory.Grow(kMiB / 2, kHere, &values).ok());
  EXPECT_EQ(values.capacity(), kMiB / 2);
  values.resize(kMiB / 2);
  EXPECT_TRUE(memory.Grow(1, kHere, &values).ok());
  EXPECT_EQ(values.capacity(), kMiB);
  values.resize(kMiB);
  EXPECT_FALSE(memory.Grow(1, kHere, &values).ok());
  EXPECT_EQ(values.capacity(), kMiB);
  values.resize(1);
  memory.Shrink(&values);
  EXPECT_EQ(values.capacity(), 1u);
}

class LoadersMemoryTest : public DataFilesTest {
 protected:
  static void ExpectRefused(
      const absl::StatusOr<std::unique_ptr<SampleTable>>& table,
      const std::string& file) {
    ASSERT_EQ(table.status().code(), absl::StatusCode::kResourceExhausted)
        << table.status();
    EXPECT_THAT(std::string(table.status().message()),
                AllOf(HasSubstr(file), HasSubstr("does not fit into memory")));
  }
  const MemoryBudget none_ = WithLeft(MemoryBudget::kLeftBytes);
};

TEST_F(LoadersMemoryTest, TextThatDoesNotFitIsRefused) {
  std::string csv, libsvm;
  for (int i = 0; i < 200'000; ++i) {
    csv += "1,2\n";
    libsvm += "1 3:4\n";
  }
  Write("t.csv", csv);
  Write("t.svm", libsvm);
  CsvSource csv_source;
  csv_source.set_path("t.csv");
  ExpectRefused(LoadCsv(csv_source, {"0:2"}, dir_, none_), "t.csv:");
  LibsvmSource libsvm_source;
  libsvm_source.set_path("t.svm");
  libsvm_source.set_dimension(3);
  ExpectRefused(LoadLibsvm(libsvm_source, {"features"}, dir_, none_), "t.svm:");
}

TEST_F(LoadersMemoryTest, ArraysThatDoNotFitAreRefused) {
  const std::string content(2 * kMiB, '\1');
  Write("x.npy", Npy(NpyText("|u1", "(2097152,)"), content));
  NpySource npy;
  npy.add_arrays()->set_field("x");
  npy.mutable_arrays(0)->set_path("x.npy");
  ExpectRefused(LoadNpy(npy, {"x"}, dir_, none_), "x.npy:");
  // A small file may promise much: nothing is taken for it.
  Write("x.npy", Gzip(Npy(NpyText("|u1", "(2097152,)"), content)));
  ExpectRefused(LoadNpy(npy, {"x"}, dir_, none_), "x.npy:");

  Write("y", std::string("\0\0\x08\x01\0\x20\0\0", 8) + content);
  IdxSource idx;
  idx.set_labels("y");
  ExpectRefused(LoadIdx(idx, {"label"}, dir_, none_), "y:");

  Write("t.txt", content);
  TokenSource tokens;
  tokens.set_path("t.txt");
  FieldRequest field("tokens");
  field.integers = true;
  field.padded_width = 4;
  ExpectRefused(LoadTokens(tokens, {field}, dir_, none_), "t.txt:");
}

TEST_F(LoadersMemoryTest, DigitsAreDrawnAgain) {
  DigitsSource source;
  source.set_count(3);
  EXPECT_TRUE(LoadDigits(source, {"image"}, 1 << 20, /*available=*/0).ok());
}

}  // namespace
}  // namespace syncline::worker

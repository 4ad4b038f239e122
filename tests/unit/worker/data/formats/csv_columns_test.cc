// Goal: fields that are column numbers do not silently mean other columns in
// the test data than in the training data. Method: two small files.

#include "worker/data/formats/csv_columns.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_files.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CsvColumnsTest : public DataFilesTest {
 protected:
  CsvColumnsTest() {
    train_.set_path("train.csv");
    train_.set_has_header(true);
    test_ = train_;
    test_.set_path("test.csv");
  }

  absl::Status Compare(absl::string_view train, absl::string_view test,
                       const std::vector<FieldRequest>& fields) const {
    Write("train.csv", train);
    Write("test.csv", test);
    return CompareColumns(train_, test_, fields, dir_);
  }

  CsvSource train_;
  CsvSource test_;
};

TEST_F(CsvColumnsTest, NamesAFieldOfOtherColumns) {
  const absl::Status status =
      Compare("age,income,label\n1,2,0\n", "income,age,label\n2,1,0\n",
              {"0:2", "label", "1"});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("field \"0:2\" means other columns here"),
                    HasSubstr("column 0 is \"age\" in"),
                    HasSubstr("train.csv and \"income\" in"),
                    HasSubstr("\nfield \"1\" means")));
}

TEST_F(CsvColumnsTest, NamesOfFieldsMayStandAnywhere) {
  EXPECT_TRUE(
      Compare("age,income\n1,2\n", "income,age\n2,1\n", {"age", "income"})
          .ok());
}

TEST_F(CsvColumnsTest, OtherNamesAreNoOtherOrder) {
  EXPECT_TRUE(Compare("age,y\n1,2\n", "Age,target\n2,1\n", {"0", "1"}).ok());
  EXPECT_TRUE(Compare("a,b,c\n1,2,3\n", "a,b\n2,1\n", {"0", "2"}).ok());
}

// To search a header for each of its names would outlast the test's time limit.
TEST_F(CsvColumnsTest, ALongHeaderIsComparedInOnePass) {
  constexpr int kColumns = 400'000;
  const auto header = [](char letter) {
    std::string line;
    for (int i = 0; i < kColumns; ++i) absl::StrAppend(&line, "c", i, ",");
    for (int i = 0; i < kColumns; ++i) {
      absl::StrAppend(&line, std::string(1, letter), i, ",");
    }
    return line;
  };
  const std::string field = absl::StrCat("0:", 2 * kColumns);
  EXPECT_TRUE(
      Compare(header('d') + "x,y\n", header('e') + "x,y\n", {field}).ok());
  const absl::Status moved =
      Compare(header('d') + "x,y\n", header('e') + "y,x\n",
              {absl::StrCat("0:", 2 * kColumns + 2)});
  EXPECT_THAT(std::string(moved.message()),
              HasSubstr(absl::StrCat("column ", 2 * kColumns, " is \"x\"")));
}

TEST_F(CsvColumnsTest, WithoutBothHeadersThereIsNothingToCompare) {
  test_.set_has_header(false);
  EXPECT_TRUE(Compare("a,b\n1,2\n", "2,1\n", {"0"}).ok());
  test_.set_has_header(true);
  test_.set_path("missing.csv");
  EXPECT_TRUE(Compare("a,b\n1,2\n", "", {"0"}).ok());
}

TEST_F(CsvColumnsTest, LinesAreCutOutsideOfQuotes) {
  std::vector<Column> columns;
  ASSERT_TRUE(SplitColumns("a,\"b,c\",", ',', &columns).ok());
  std::vector<std::string> texts;
  for (const Column& column : columns) texts.emplace_back(column.text);
  EXPECT_THAT(texts, ElementsAre("a", "b,c", ""));
  EXPECT_FALSE(SplitColumns("\"a", ',', &columns).ok());
}

}  // namespace
}  // namespace syncline::worker

// Goal: fields select the right columns by number, range and name, and every
// bad value is named by file, line and column. Method: small files.

#include "worker/data/formats/csv_table.h"

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
using ::testing::Not;

class CsvTableTest : public DataFilesTest {
 protected:
  CsvTableTest() { source_.set_path("t.csv"); }

  absl::StatusOr<std::unique_ptr<SampleTable>> Load(
      absl::string_view content,
      const std::vector<FieldRequest>& fields) const {
    Write("t.csv", content);
    return LoadCsv(source_, fields, dir_);
  }
  std::string Error(absl::string_view content,
                    const std::vector<FieldRequest>& fields) const {
    const absl::Status status = Load(content, fields).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }
  // Values of all samples.
  static std::vector<float> All(const SampleTable& table, int field) {
    std::vector<int64_t> samples;
    for (int64_t i = 0; i < table.size(); ++i) samples.push_back(i);
    std::vector<float> out(samples.size() * table.width(field));
    table.Read(field, samples, 1, 0, out.data());
    return out;
  }

  CsvSource source_;
};

TEST_F(CsvTableTest, FieldsAreColumnNumbersAndRanges) {
  const auto table = Load("1,2,3,4\n5,6,7,8\n", {"1:3", "3", "0"});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->size(), 2);
  EXPECT_THAT(All(**table, 0), ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(All(**table, 1), ElementsAre(4, 8));
  EXPECT_THAT(All(**table, 2), ElementsAre(1, 5));
  float scaled[2];
  (*table)->Read(0, {1}, 0.5f, 10, scaled);
  EXPECT_THAT(scaled, ElementsAre(13, 13.5f));
}

TEST_F(CsvTableTest, RangesMayOverlapAndLeaveGaps) {
  const auto table = Load("0,1,2,3,4,5\n", {"4:6", "0:2", "1:2", "5"});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(All(**table, 0), ElementsAre(4, 5));
  EXPECT_THAT(All(**table, 1), ElementsAre(0, 1));
  EXPECT_THAT(All(**table, 2), ElementsAre(1));
  EXPECT_THAT(All(**table, 3), ElementsAre(5));
}

FieldRequest Integers(const char* name) {
  FieldRequest field(name);
  field.integers = true;
  return field;
}

TEST_F(CsvTableTest, ColumnsMayBeIntegers) {
  // Beyond float32's whole numbers; the same column both ways.
  const auto table = Load("1,9007199254740993,0.5,-3\n4, +5 ,6,7\n",
                          {Integers("0:2"), "1:3", Integers("3"), "0"});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->size(), 2);
  EXPECT_EQ((*table)->width(0), 2);
  int64_t ints[4];
  (*table)->ReadInts(0, {1, 0}, ints);
  EXPECT_THAT(ints, ElementsAre(4, 5, 1, 9007199254740993));
  (*table)->ReadInts(2, {0}, ints);
  EXPECT_EQ(ints[0], -3);
  EXPECT_THAT(All(**table, 1), ElementsAre(9007199254740992.0f, 0.5, 5, 6));
  EXPECT_THAT(All(**table, 3), ElementsAre(1, 4));
}

FieldRequest List(const char* name, int64_t width, bool integers) {
  FieldRequest field(name);
  field.padded_width = width;
  field.integers = integers;
  field.padding = -1;
  return field;
}

TEST_F(CsvTableTest, ColumnsMayHoldLists) {
  source_.set_has_header(true);
  source_.set_list_delimiter("|");
  FieldRequest one("user");  // one value, so no list
  one.integers = true;
  one.padded_width = 1;
  const auto table = Load(
      "items,user,weights\n"
      "12|900719925474099301|-40,7,0.5|1|2\n"
      ",8,\n"
      "\"6 | 5\",9,1\n",
      {List("items", 3, true), one, List("weights", 4, false), "user",
       List("0", 5, true)});
  ASSERT_TRUE(table.ok()) << table.status();
  std::vector<int64_t> items(9);
  EXPECT_EQ((*table)->width(0), 3);
  (*table)->ReadInts(0, {0, 1, 2}, items.data());
  EXPECT_THAT(items,
              ElementsAre(12, 900719925474099301, -40, -1, -1, -1, 6, 5, -1));
  std::vector<int64_t> users(2);
  (*table)->ReadInts(1, {2, 0}, users.data());
  EXPECT_THAT(users, ElementsAre(9, 7));
  // Padding is neither scaled nor moved.
  std::vector<float> weights(8);
  (*table)->Read(2, {0, 1}, 2, 10, weights.data());
  EXPECT_THAT(weights, ElementsAre(11, 12, 14, -1, -1, -1, -1, -1));
  EXPECT_THAT(All(**table, 3), ElementsAre(7, 8, 9));
  std::vector<int64_t> again(5);
  (*table)->ReadInts(4, {2}, again.data());
  EXPECT_THAT(again, ElementsAre(6, 5, -1, -1, -1));
}

TEST_F(CsvTableTest, CountsIdsOfLists) {
  source_.set_list_delimiter("|");
  FieldRequest ids = List("1", 3, true);
  ids.padding = 0;
  FieldRequest numbers = List("1", 3, false);
  const auto table =
      Load("1,0|2\n1,\n1,3|0|0\n", {ids, numbers, Integers("0")});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->CountIds(0, 0), 3);
  EXPECT_EQ((*table)->CountIds(1, 0), 0) << "no ids";
  EXPECT_EQ((*table)->CountIds(2, 1), 3) << "not padded";
}

TEST_F(CsvTableTest, NamesWhatIsWrongInAList) {
  source_.set_list_delimiter("|");
  EXPECT_THAT(Error("1,2|3\n1,2|x\n", {List("1", 3, true)}),
              AllOf(HasSubstr("t.csv:2:5: "), HasSubstr("(column 1)")));
  EXPECT_THAT(Error("1,2||3\n", {List("1", 3, true)}),
              HasSubstr("t.csv:1:5: "));
  EXPECT_THAT(Error("1,2|\n", {List("1", 3, false)}), HasSubstr("t.csv:1:5: "));
  EXPECT_THAT(Error("1,2|3|4|5\n", {List("1", 3, true)}),
              HasSubstr("t.csv:1:3: 4 values, expected at most 3 (column 1)"));
  FieldRequest label = List("1", 3, false);
  label.complete = true;
  EXPECT_THAT(Error("1,2|3|4\n1,2|3\n", {label}),
              HasSubstr("t.csv:2:3: 2 values, expected 3 (column 1)"));
  // A range of columns holds no lists.
  EXPECT_THAT(Error("1,2|3\n", {List("0:2", 2, true)}),
              HasSubstr("t.csv:1:3: "));
}

TEST_F(CsvTableTest, NamesWhatIsNoInteger) {
  const std::vector<std::pair<const char*, const char*>> bad = {
      {"1\n1.5\n", "t.csv:2:1: \"1.5\" is not an integer (column 0)"},
      {"1e3\n", "\"1e3\" is not an integer"},
      {"x\n", "\"x\" is not an integer"},
      {"0x10\n", "\"0x10\" is not an integer"},
      {"9223372036854775808\n", "\"9223372036854775808\" does not fit int64"},
      {"\"\"\n", "\"\" is not an integer"},
  };
  for (const auto& [content, message] : bad) {
    EXPECT_THAT(Error(content, {Integers("0")}), HasSubstr(message));
  }
}

TEST_F(CsvTableTest, FieldsAreNamesOfTheHeader) {
  source_.set_has_header(true);
  const auto table =
      Load("age, \"in,come\",label\n30,1.5,1\n", {"label", "age", "1"});
  ASSERT_FALSE(table.ok());  // a quote after a blank is not a quote
  const auto quoted = Load("age,\"in,co\"\"me\", label \n30,1.5,1\n",
                           {"label", "in,co\"me", "0:2"});
  ASSERT_TRUE(quoted.ok()) << quoted.status();
  EXPECT_THAT(All(**quoted, 0), ElementsAre(1));
  EXPECT_THAT(All(**quoted, 1), ElementsAre(1.5));
  EXPECT_THAT(All(**quoted, 2), ElementsAre(30, 1.5));
}

// As a data frame without column names writes them.
TEST_F(CsvTableTest, NumbersThatAreNamesOfOtherColumnsAreRefused) {
  source_.set_has_header(true);
  const std::string shifted = "label,0,1,2\n7,10,11,12\n";
  EXPECT_THAT(Error(shifted, {"1"}),
              HasSubstr("field \"1\" may be column numbers, from 0, or names, "
                        "and these differ: column 2 is named \"1\". Give"));
  EXPECT_THAT(Error(shifted, {"0:3"}),
              HasSubstr("column 1 is named \"0\", column 3 \"2\""));
  // Clear: there is no name "3", and no fifth column.
  const auto by_number = Load(shifted, {"label", "1:4"});
  ASSERT_TRUE(by_number.ok()) << by_number.status();
  EXPECT_THAT(All(**by_number, 1), ElementsAre(10, 11, 12));
  const auto by_name = Load("label,0,1,9\n7,10,11,12\n", {"label", "9"});
  ASSERT_TRUE(by_name.ok()) << by_name.status();
  EXPECT_THAT(All(**by_name, 1), ElementsAre(12));
  const auto same = Load("0,1,2,label\n10,11,12,7\n", {"label", "0:3", "1"});
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_THAT(All(**same, 1), ElementsAre(10, 11, 12));
  EXPECT_THAT(All(**same, 2), ElementsAre(11));
}

TEST_F(CsvTableTest, ColumnsThatNoFieldNamesMayHoldAnything) {
  const auto table = Load("x,1,\"a,\"\"b\",\nNaN,2,,z\n", {"1"});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(All(**table, 0), ElementsAre(1, 2));
}

TEST_F(CsvTableTest, DelimitersLineEndsAndBlankLines) {
  source_.set_delimiter("\t");
  const auto tabs = Load("1\t2\r\n\r\n  \r\n3\t4", {"0:2"});
  ASSERT_TRUE(tabs.ok()) << tabs.status();
  EXPECT_THAT(All(**tabs, 0), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ((*tabs)->Where(0, 1), Path("t.csv:4"));
  // Two columns without a value, not a blank line.
  EXPECT_THAT(Error("1\t2\n\t\n", {"0:2"}), HasSubstr(Path("t.csv:2")));
  source_.set_delimiter(" ");
  EXPECT_THAT(Error("1 2\n \n", {"0:2"}), HasSubstr(Path("t.csv:2")));
  source_.set_delimiter("\t");
  source_.set_delimiter(";");
  const auto semicolons = Load(" 1 ;+2\n", {"0:2"});
  ASSERT_TRUE(semicolons.ok()) << semicolons.status();
  EXPECT_THAT(All(**semicolons, 0), ElementsAre(1, 2));
  source_.set_delimiter("::");
  EXPECT_THAT(Error("1::2\n", {"0"}), HasSubstr("is not one character"));
}

TEST_F(CsvTableTest, JoinsFilesOfAGlobInOrder) {
  source_.set_path("p-*.csv");
  source_.set_has_header(true);
  Write("p-2.csv", "a,b\n3,4\n");
  Write("p-1.csv", "a,b\n1,2\n");
  const auto table = LoadCsv(source_, {"b"}, dir_);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(All(**table, 0), ElementsAre(2, 4));
  EXPECT_EQ((*table)->Where(0, 1), Path("p-2.csv:2"));

  Write("p-2.csv", "b,a\n3,4\n");
  EXPECT_THAT(std::string(LoadCsv(source_, {"b"}, dir_).status().message()),
              AllOf(HasSubstr(Path("p-2.csv:1: the header differs")),
                    HasSubstr(Path("p-1.csv:1"))));
}

TEST_F(CsvTableTest, NamesBadValuesByFileLineAndColumn) {
  EXPECT_THAT(Error("1,2\n3,abc\n", {"0", "1"}),
              HasSubstr(Path("t.csv:2:3: \"abc\" is not a number (column 1)")));
  EXPECT_THAT(Error("1,2\n\n3,nan\n", {"0:2"}),
              HasSubstr(Path("t.csv:3:3: \"nan\" is not a finite number")));
  EXPECT_THAT(Error("inf,2\n", {"0:2"}), HasSubstr(Path("t.csv:1:1: ")));
  EXPECT_THAT(Error("1,,3\n", {"0:3"}),
              HasSubstr(Path("t.csv:1:3: \"\" is not a number")));
  source_.set_has_header(true);
  EXPECT_THAT(Error("age,x\n1,2\nold,2\n", {"age"}),
              HasSubstr("t.csv:3:1: \"old\" is not a number (column 0, "
                        "\"age\")"));
}

TEST_F(CsvTableTest, NamesRaggedRowsAndOpenQuotes) {
  EXPECT_THAT(Error("1,2\n3\n", {"0"}),
              HasSubstr(Path("t.csv:2: 1 columns, expected 2 as in ") +
                        Path("t.csv:1")));
  EXPECT_THAT(Error("1,2\n3,4,5\n", {"0"}), HasSubstr("t.csv:2: 3 columns"));
  EXPECT_THAT(Error("1,\"2\n3,4\n", {"0"}), HasSubstr(Path("t.csv:1:3: ")));
  EXPECT_THAT(Error("\"\"\"", {"0"}), HasSubstr("t.csv:1:1: "));
}

TEST_F(CsvTableTest, NamesAllUnknownFieldsAtOnce) {
  EXPECT_THAT(
      Error("1,2\n", {"age", "0:3", "2", "1:1", "0"}),
      AllOf(HasSubstr("no field \"age\""), HasSubstr("no field \"0:3\""),
            HasSubstr("no field \"2\""), HasSubstr("no field \"1:1\""),
            HasSubstr("2 columns, 0..1")));
  source_.set_has_header(true);
  EXPECT_THAT(
      Error("a,b,b\n1,2,3\n", {"c", "b", "-1"}),
      AllOf(HasSubstr("no field \"c\": the columns are \"a\", \"b\", \"b\""),
            HasSubstr("two columns are named \"b\""),
            HasSubstr("no field \"-1\"")));
}

TEST_F(CsvTableTest, AWrongDelimiterIsGuessed) {
  EXPECT_THAT(
      Error("1;2;3\n", {"0:2"}),
      HasSubstr("the line has no \",\", so perhaps csv.delimiter should "
                "be \";\""));
  source_.set_has_header(true);
  EXPECT_THAT(Error("a\tb\n1\t2\n", {"a"}), HasSubstr("should be \"\\t\""));
  source_.set_delimiter(";");
  EXPECT_THAT(Error("a,b\n1,2\n", {"a"}), HasSubstr("should be \",\""));
}

TEST_F(CsvTableTest, RowNamesAreNoData) {
  source_.set_has_header(true);
  // R's write.table: the header has one name less.
  EXPECT_THAT(Error("a,b\n\"1\",5,6\n", {"a"}),
              AllOf(HasSubstr("t.csv:2: 3 columns, expected 2"),
                    HasSubstr("row.names = FALSE")));
  EXPECT_THAT(Error("a,b\n5,6\n1,5,6\n", {"a"}), Not(HasSubstr("row.names")));
  // write.csv and pandas: they have an empty name.
  Write("t.csv", "\"\",\"a\",\"b\"\n\"1\",5,6\n");
  EXPECT_TRUE(LoadCsv(source_, {"a"}, dir_).ok());
  EXPECT_TRUE(LoadCsv(source_, {"1:3"}, dir_).ok());
  EXPECT_THAT(Error(",a,b\n1,5,6\n", {"0:2"}),
              HasSubstr("field \"0:2\" has column 0, which has no name"));
}

TEST_F(CsvTableTest, ASampleIsNoHeader) {
  source_.set_has_header(true);
  EXPECT_THAT(Error("5.1,3.5,0\n4.9,3.0,1\n", {"0:2", "2"}),
              AllOf(HasSubstr("t.csv:1: has_header says"),
                    HasSubstr("\"5.1\", \"3.5\", \"0\""),
                    HasSubstr("has_header: false")));
  EXPECT_THAT(Error("7,0,0\n1,0,0\n", {"0"}), HasSubstr("reads like a sample"));
  // Years, and pandas' names of columns.
  EXPECT_TRUE(Load("2019,2020\n4.9,3.0\n", {"2019"}).ok());
  EXPECT_TRUE(Load("0,1,2\n4.9,3.0,1\n", {"0:2"}).ok());
}

TEST_F(CsvTableTest, QuotesLittleOfTheFile) {
  source_.set_has_header(true);
  std::string header = "Gr\xf6\xdf\n";
  EXPECT_THAT(Error(header + "1\n", {"x"}),
              HasSubstr("the columns are \"Gr\\xf6\\xdf\""));
  header.clear();
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&header, "secret-", i, ",");
  const std::string error = Error(header + "x\n", {"y"});
  EXPECT_THAT(error, HasSubstr("... (1001 columns)"));
  EXPECT_LT(error.size(), dir_.size() + 300);
  EXPECT_LT(
      Error(std::string(1 << 20, 's') + "\nx\n", {std::string(1 << 20, 's')})
          .size(),
      dir_.size() + 300);
}

TEST_F(CsvTableTest, NamesAFileWithoutSamples) {
  EXPECT_THAT(Error("", {"0"}), HasSubstr(Path("t.csv: no samples")));
  source_.set_has_header(true);
  EXPECT_THAT(Error("a,b\n\n", {"a"}), HasSubstr(Path("t.csv: no samples")));
}

}  // namespace
}  // namespace syncline::worker

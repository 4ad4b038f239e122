// Goal: Criteo's lines become dense values and keys, missing values included;
// every bad line is named; what does not fit into memory is refused.
// Method: small files, damaged ones from a table and at random.

#include "worker/data/formats/criteo_table.h"

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/seed_count.h"
#include "tests/unit/worker/data/data_files.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A line whose integers are 0..12 and whose categories are 10..29 in hex.
std::vector<std::string> Columns() {
  std::vector<std::string> columns = {"1"};
  for (int i = 0; i < kCriteoIntegers; ++i) columns.push_back(absl::StrCat(i));
  for (int i = 0; i < kCriteoCategories; ++i) {
    columns.push_back(absl::StrCat(absl::Hex(0x10 + i)));
  }
  return columns;
}

std::string Line(const std::vector<std::string>& columns) {
  return absl::StrCat(absl::StrJoin(columns, "\t"), "\n");
}

std::string LineWith(int column, const std::string& text) {
  std::vector<std::string> columns = Columns();
  columns[column] = text;
  return Line(columns);
}

FieldRequest Integers(const char* name) {
  FieldRequest field(name);
  field.integers = true;
  return field;
}

class CriteoTableTest : public DataFilesTest {
 protected:
  CriteoTableTest() { source_.set_path("t.tsv"); }

  absl::StatusOr<std::unique_ptr<SampleTable>> Load(
      absl::string_view content,
      const std::vector<FieldRequest>& fields = {
          "dense", Integers("categories"), "label", "dense:12",
          Integers("categories:25")}) const {
    Write("t.tsv", content);
    return LoadCriteo(source_, fields, dir_);
  }
  std::string Error(absl::string_view content) const {
    const absl::Status status = Load(content).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }
  static std::vector<float> Floats(const SampleTable& table, int field,
                                   const std::vector<int64_t>& samples) {
    std::vector<float> out(samples.size() * table.width(field), -99.0f);
    table.Read(field, samples, 1, 0, out.data());
    return out;
  }
  static std::vector<int64_t> Ints(const SampleTable& table, int field,
                                   const std::vector<int64_t>& samples) {
    std::vector<int64_t> out(samples.size() * table.width(field), -99);
    table.ReadInts(field, samples, out.data());
    return out;
  }

  CriteoSource source_;
};

TEST_F(CriteoTableTest, ReadsLabelsIntegersAndCategories) {
  std::vector<std::string> other = Columns();
  other[0] = "0";
  other[1 + 12] = "-3";
  other[1 + kCriteoIntegers + 25] = "FFFFffff";
  const auto table = Load(Line(Columns()) + "\n" + Line(other));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->size(), 2);
  EXPECT_EQ((*table)->width(0), 13);
  EXPECT_EQ((*table)->width(1), 26);
  EXPECT_EQ((*table)->width(4), 1);
  const std::vector<float> dense = Floats(**table, 0, {0});
  for (int i = 0; i < kCriteoIntegers; ++i) {
    EXPECT_FLOAT_EQ(dense[i], std::log(1.0f + i)) << i;
  }
  const std::vector<int64_t> keys = Ints(**table, 1, {0});
  for (int i = 0; i < kCriteoCategories; ++i) {
    EXPECT_EQ(keys[i], CriteoKey(i, 0x10 + i)) << i;
  }
  EXPECT_THAT(Floats(**table, 2, {1, 0}), ElementsAre(0, 1));
  EXPECT_THAT(Floats(**table, 3, {1}), ElementsAre(0));  // -3 counts as 0
  EXPECT_THAT(Ints(**table, 4, {0, 1}),
              ElementsAre(CriteoKey(25, 0x29), CriteoKey(25, 0xffffffff)));
  EXPECT_EQ((*table)->Where(0, 1), Path("t.tsv:3"));
  float scaled[1];
  (*table)->Read(2, {0}, 4, 1, scaled);
  EXPECT_THAT(scaled, ElementsAre(5));
}

TEST_F(CriteoTableTest, EverythingButTheLabelMayBeMissing) {
  std::vector<std::string> columns(40);
  columns[0] = "1";
  const auto table = Load(Line(columns));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(Floats(**table, 0, {0}), std::vector<float>(13, 0.0f));
  const std::vector<int64_t> keys = Ints(**table, 1, {0});
  for (int i = 0; i < kCriteoCategories; ++i) {
    EXPECT_EQ(keys[i], CriteoMissingKey(i));
  }
}

TEST_F(CriteoTableTest, KeysOfColumnsValuesAndMissingOnesDiffer) {
  std::set<int64_t> keys;
  for (int column = 0; column < kCriteoCategories; ++column) {
    for (uint32_t value : {0u, 1u, 0x7fffffffu, 0xffffffffu}) {
      keys.insert(CriteoKey(column, value));
    }
    keys.insert(CriteoMissingKey(column));
  }
  EXPECT_EQ(keys.size(), 5u * kCriteoCategories);
  // Trained tables hold these keys: they must stay as they are.
  EXPECT_EQ(CriteoKey(0, 0), static_cast<int64_t>(Mix64(0)));
  EXPECT_EQ(CriteoKey(3, 0xabc),
            static_cast<int64_t>(Mix64(3 * (uint64_t{1} << 33) + 0xabc)));
  EXPECT_EQ(CriteoMissingKey(1), static_cast<int64_t>(Mix64(3ull << 32)));
}

TEST_F(CriteoTableTest, ReadsGzipGlobsAndManyPieces) {
  source_.set_path("p*");
  std::string many;
  const std::string zero = LineWith(0, "0");
  for (int i = 0; i < 70'000; ++i) many += zero;
  Write("p1", Gzip(many));
  Write("p2", Line(Columns()));
  const auto table = LoadCriteo(source_, {"label"}, dir_);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->size(), 70'001);
  EXPECT_THAT(Floats(**table, 0, {0, 65'535, 65'536, 70'000}),
              ElementsAre(0, 0, 0, 1));
  EXPECT_EQ((*table)->Where(0, 70'000), Path("p2:1"));
  EXPECT_EQ((*table)->Where(0, 69'999), Path("p1:70000"));
}

TEST_F(CriteoTableTest, NamesBadLines) {
  const std::string good = Line(Columns());
  std::vector<std::string> few = Columns();
  few.pop_back();
  std::vector<std::string> many = Columns();
  many.push_back("");
  const std::vector<std::pair<std::string, const char*>> bad = {
      {good + Line(few), "t.tsv:2: 39 columns, expected 40"},
      {Line(many), "t.tsv:1: 41 columns, expected 40"},
      {"1 2 3\n", "1 columns, expected 40"},
      {LineWith(0, ""), "t.tsv:1: column 0: \"\" is not a label, 0 or 1"},
      {LineWith(0, "2"), "\"2\" is not a label"},
      {LineWith(0, "-1"), "\"-1\" is not a label"},
      {LineWith(1, "1.5"), "integer 0: \"1.5\" is not an integer"},
      {LineWith(13, "x"), "integer 12: \"x\" is not an integer"},
      {LineWith(2, " 1"), "integer 1: \" 1\" is not an integer"},
      {LineWith(2, "9223372036854775808"), "is not an integer"},
      {LineWith(14, "g"), "category 0: \"g\" is not 1 to 8 hexadecimal"},
      {LineWith(39, "123456789"), "category 25: \"123456789\" is not 1 to 8"},
      {LineWith(15, "-1"), "category 1: \"-1\" is not 1 to 8"},
      {LineWith(15, "0x1"), "category 1: \"0x1\" is not 1 to 8"},
      {LineWith(15, " 1"), "category 1: \" 1\" is not 1 to 8"},
      {LineWith(15, std::string("1\0", 2)), "\"1\\x00\" is not 1 to 8"},
      {LineWith(15, std::string(1000, 'f')), "ffff...\" is not 1 to 8"},
      {"", "t.tsv: no samples"},
      {"\n\n", "t.tsv: no samples"},
  };
  for (const auto& [content, message] : bad) {
    EXPECT_THAT(Error(content), HasSubstr(message));
  }
}

TEST_F(CriteoTableTest, RandomDamageIsReadOrRefusedWithItsLine) {
  Random random(7);
  const std::string alphabet("\t\n\r0123456789abcdefgx-+ .\0\xff", 27);
  int refused = 0;
  for (int i = 0; i < SeedCount(300); ++i) {
    std::string text = Line(Columns());
    for (uint64_t k = 1 + random.Below(3); k > 0; --k) {
      text[random.Below(text.size())] = alphabet[random.Below(alphabet.size())];
    }
    const auto table = Load(text);
    if (table.ok()) {
      EXPECT_GE((*table)->size(), 1);
      continue;
    }
    ++refused;
    EXPECT_THAT(std::string(table.status().message()),
                HasSubstr(Path("t.tsv:")));
  }
  EXPECT_GT(refused, SeedCount(300) / 10);
}

TEST_F(CriteoTableTest, WhatDoesNotFitIntoMemoryIsRefused) {
  std::string content;
  const std::string line = Line(Columns());
  for (int i = 0; i < 65'537; ++i) content += line;
  Write("t.tsv", content);
  uint64_t available = (512 << 20) + (10 << 20);
  const auto load = [&] {
    return LoadCriteo(source_, {"label"}, dir_, dir_, [&] {
      return std::exchange(available, available - (10 << 20));
    });
  };
  const auto table = load();  // room for one piece, not for the second
  EXPECT_EQ(table.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(table.status().message()),
              AllOf(HasSubstr("t.tsv:65537: the data does not fit into memory: "
                              "65536 samples take 10 MiB, 512 MiB are"),
                    HasSubstr("available")));
  available = (512 << 20) + (20 << 20);
  EXPECT_TRUE(load().ok());
}

// As many lines as fill a piece and a bit, with no memory for any.
TEST_F(CriteoTableTest, WithAWindowSamplesAreOnDiskAndTheSame) {
  std::string content;
  constexpr int kLines = 65'536 + 300;
  for (int i = 0; i < kLines; ++i) {
    std::vector<std::string> columns = Columns();
    columns[0] = i % 3 == 0 ? "1" : "0";
    columns[1] = absl::StrCat(i);
    columns[20] = i % 7 == 0 ? "" : absl::StrCat(absl::Hex(i));
    content += Line(columns);
  }
  const auto memory = Load(content);
  ASSERT_TRUE(memory.ok()) << memory.status();
  source_.set_window_samples(4096);
  const auto disk = LoadCriteo(source_,
                               {"dense", Integers("categories"), "label",
                                "dense:12", Integers("categories:25")},
                               dir_, dir_, [] { return uint64_t{0}; });
  ASSERT_TRUE(disk.ok()) << disk.status();
  ASSERT_EQ((*disk)->size(), kLines);
  for (const auto& samples :
       {std::vector<int64_t>{0, 65'535, 65'536, kLines - 1, 7},
        std::vector<int64_t>{30'000}}) {
    for (const int field : {0, 2, 3}) {
      EXPECT_EQ(Floats(**disk, field, samples),
                Floats(**memory, field, samples));
    }
    for (const int field : {1, 4}) {
      EXPECT_EQ(Ints(**disk, field, samples), Ints(**memory, field, samples));
    }
  }
  EXPECT_EQ((*disk)->Where(0, 65'536), (*memory)->Where(0, 65'536));
  (*disk)->HasRead(0, kLines);
  EXPECT_THAT(Floats(**disk, 2, {3}), ElementsAre(1)) << "a hint, no more";
}

TEST_F(CriteoTableTest, AFolderThatTakesNoFileIsNamed) {
  Write("t.tsv", Line(Columns()));
  source_.set_window_samples(4096);
  const auto table = LoadCriteo(source_, {"label"}, dir_, Path("missing"));
  EXPECT_EQ(table.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(table.status().message()),
              HasSubstr(Path("missing")));
}

TEST_F(CriteoTableTest, NamesFieldsThatAreNotThereOrOfTheWrongType) {
  const std::string line = Line(Columns());
  const auto error = [&](const FieldRequest& field) {
    return std::string(Load(line, {field}).status().message());
  };
  for (const char* name : {"", "denser", "dense:", "dense:13", "dense:-1",
                           "dense:x", "categories:26", "label:0"}) {
    EXPECT_THAT(error(name), HasSubstr("no field")) << name;
  }
  EXPECT_THAT(error("categories"), HasSubstr("can only feed an int64 input"));
  EXPECT_THAT(error(Integers("dense")), HasSubstr("cannot feed an int64"));
  EXPECT_THAT(error(Integers("label")), HasSubstr("cannot feed an int64"));
}

}  // namespace
}  // namespace syncline::worker

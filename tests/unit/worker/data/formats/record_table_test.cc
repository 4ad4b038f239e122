// Goal: records of several files are one field, whatever their elements, and
// files that do not belong together are refused. Method: records made in
// memory.

#include "worker/data/formats/record_table.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_files.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Element = Records::Element;

template <typename T>
Records MakeRecords(Element element, const std::vector<int64_t>& shape,
                    const std::vector<T>& values) {
  Records records;
  records.element = element;
  records.shape = shape;
  for (const int64_t size : shape) records.width *= size;
  records.count = static_cast<int64_t>(values.size()) / records.width;
  records.bytes = std::make_unique<char[]>(values.size() * sizeof(T));
  std::copy(values.begin(), values.end(),
            reinterpret_cast<T*>(records.bytes.get()));
  return records;
}

class RecordTableTest : public DataFilesTest {
 protected:
  // A field of one file for each of `contents`.
  absl::StatusOr<std::shared_ptr<const RecordField>> Load(
      const std::string& name, std::vector<Records> contents) {
    std::map<std::string, Records> by_path;
    for (size_t i = 0; i < contents.size(); ++i) {
      const std::string path = Write(name + std::to_string(i), "");
      contents[i].path = path;
      by_path[path] = std::move(contents[i]);
    }
    return RecordField::Load(name + "?", dir_, [&](const std::string& path) {
      return absl::StatusOr<Records>(std::move(by_path.at(path)));
    });
  }
  template <typename... R>
  absl::StatusOr<std::shared_ptr<const RecordField>> LoadAll(
      const std::string& name, R... records) {
    std::vector<Records> contents;
    (contents.push_back(std::move(records)), ...);
    return Load(name, std::move(contents));
  }
};

TEST_F(RecordTableTest, FilesFollowEachOther) {
  const auto field =
      LoadAll("a", MakeRecords<int16_t>(Element::kInt16, {2}, {1, -2, 3, -4}),
              MakeRecords<int16_t>(Element::kInt16, {2}, {5, -6}));
  ASSERT_TRUE(field.ok()) << field.status();
  const auto table = MakeRecordTable({*field});
  EXPECT_EQ(table->size(), 3);
  EXPECT_EQ(table->width(0), 2);
  std::vector<int64_t> ints(4);
  table->ReadInts(0, {2, 0}, ints.data());
  EXPECT_THAT(ints, ElementsAre(5, -6, 1, -2));
  std::vector<float> floats(2);
  table->Read(0, {1}, 0.5f, 1, floats.data());
  EXPECT_THAT(floats, ElementsAre(2.5f, -1));
  EXPECT_EQ(table->Where(0, 2), Path("a1: record 0"));
}

// Times of day, say, of which float32 has every 128th.
TEST_F(RecordTableTest, AnOffsetIsAddedBeforeValuesAreRounded) {
  constexpr int64_t kBase = 1'700'000'000;
  const auto ints = LoadAll(
      "ints", MakeRecords<int64_t>(Element::kInt64, {}, {kBase + 1, kBase}));
  const auto doubles = LoadAll(
      "doubles",
      MakeRecords<double>(Element::kFloat64, {}, {kBase + 0.25, kBase + 300}));
  ASSERT_TRUE(ints.ok() && doubles.ok());
  const auto table = MakeRecordTable({*ints, *doubles});
  std::vector<float> values(2);
  table->Read(0, {0, 1}, 1, -kBase, values.data());
  EXPECT_THAT(values, ElementsAre(1, 0));
  table->Read(1, {0, 1}, 1, -kBase, values.data());
  EXPECT_THAT(values, ElementsAre(0.25f, 300));
}

TEST_F(RecordTableTest, ReadsEveryElement) {
  const auto expect_last = [this](auto type, Element element, auto value) {
    using T = decltype(type);
    const std::string name = "e" + std::to_string(static_cast<int>(element));
    const auto field =
        LoadAll(name, MakeRecords<T>(element, {}, {T(1), T(value)}));
    ASSERT_TRUE(field.ok()) << field.status();
    float out = 0;
    MakeRecordTable({*field})->Read(0, {1}, 1, 0, &out);
    EXPECT_EQ(out, static_cast<float>(value)) << name;
  };
  expect_last(uint8_t(), Element::kUint8, 255);
  expect_last(int8_t(), Element::kInt8, -128);
  expect_last(uint16_t(), Element::kUint16, 65535);
  expect_last(int16_t(), Element::kInt16, -32768);
  expect_last(uint32_t(), Element::kUint32, 4294967295u);
  expect_last(int32_t(), Element::kInt32, -7);
  expect_last(int64_t(), Element::kInt64, int64_t{1} << 40);
  expect_last(float(), Element::kFloat32, 0.25f);
  expect_last(double(), Element::kFloat64, -0.125);
}

TEST_F(RecordTableTest, RefusesFilesThatDiffer) {
  const auto a = MakeRecords<uint8_t>;
  EXPECT_THAT(LoadAll("s", a(Element::kUint8, {2}, {1, 2}),
                      a(Element::kUint8, {1, 2}, {1, 2}))
                  .status()
                  .message(),
              HasSubstr("s1: records are [1,2], those of"));
  EXPECT_THAT(
      LoadAll("t", a(Element::kUint8, {1}, {1}), a(Element::kInt8, {1}, {1}))
          .status()
          .message(),
      HasSubstr("t1: elements are of another type"));
  EXPECT_THAT(LoadAll("n", a(Element::kUint8, {1}, {})).status().message(),
              HasSubstr("n0: no records"));
}

TEST_F(RecordTableTest, FieldsMustAgreeFileByFile) {
  const auto a = MakeRecords<uint8_t>;
  const auto two = *LoadAll("x", a(Element::kUint8, {}, {1, 2}),
                            a(Element::kUint8, {}, {3}));
  const auto other = *LoadAll("y", a(Element::kUint8, {}, {1}),
                              a(Element::kUint8, {}, {2, 3}));
  const auto one = *LoadAll("z", a(Element::kUint8, {}, {1, 2, 3}));
  EXPECT_TRUE(CheckSameFiles(*two, *two).ok());
  EXPECT_THAT(CheckSameFiles(*two, *other).message(),
              HasSubstr("x0 holds 2 records, but"));
  EXPECT_THAT(CheckSameFiles(*two, *one).message(), HasSubstr("2 files"));
}

}  // namespace
}  // namespace syncline::worker

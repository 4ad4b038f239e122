// Goal: what PyTorch and this project write is read, bit for bit; nothing else
// is.
// Method: files by hand. `kPyTorch` is what safetensors.torch.save_file wrote
// for {"layer.0.weight": float16 [1, 2], "n": int64 scalar}.

#include "common/model/safetensors.h"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string File(const std::string& json, const std::string& values) {
  const uint64_t length = json.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + json + values;
}

std::string Entry(const std::string& name, const std::string& dtype,
                  const std::string& shape, int begin, int end) {
  return absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":[",
                      shape, "],\"data_offsets\":[", begin, ",", end, "]}");
}

std::string WhyNot(const std::string& file) {
  return std::string(ParseSafetensors(file, file.size()).status().message());
}

std::string WhyNot(const std::string& json, size_t value_bytes) {
  return WhyNot(File(json, std::string(value_bytes, 'x')));
}

TEST(SafetensorsTest, AFileOfPyTorchIsRead) {
  const std::string json = absl::StrCat(
      "{\"__metadata__\":{\"format\":\"pt\"},", Entry("n", "I64", "", 0, 8),
      ",", Entry("layer.0.weight", "F16", "1,2", 8, 12), "}   ");
  const TempDir dir;
  const std::string path = dir.path() + "/a.safetensors";
  // 1.5 and -2 in float16.
  ASSERT_OK(WriteFileAtomically(
      path, File(json, std::string("12345678\x00\x3e\x00\xc0", 12))));
  ASSERT_OK_AND_ASSIGN(const auto tensors, ReadSafetensors(path));
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "n");
  EXPECT_FALSE(tensors[0].is_float);
  EXPECT_EQ(tensors[1].name, "layer.0.weight");
  EXPECT_THAT(tensors[1].dims, ElementsAre(1, 2));
  std::vector<float> values(2);
  ASSERT_OK(ReadFileTensor(path, tensors[1], absl::MakeSpan(values)));
  EXPECT_THAT(values, ElementsAre(1.5f, -2.0f));
}

TEST(SafetensorsTest, EveryFloatTypeIsWidened) {
  const TempDir dir;
  const std::string path = dir.path() + "/a.safetensors";
  const float exact = 0.1f;
  std::string values(4, '\0');
  std::memcpy(values.data(), &exact, 4);
  values += std::string("\x80\x3f", 2);  // 1 in bfloat16
  ASSERT_OK(WriteFileAtomically(
      path, File(absl::StrCat("{", Entry("a", "F32", "1", 0, 4), ",",
                              Entry("b", "BF16", "1", 4, 6), "}"),
                 values)));
  ASSERT_OK_AND_ASSIGN(const auto tensors, ReadSafetensors(path));
  float value = 0;
  ASSERT_OK(ReadFileTensor(path, tensors[0], absl::MakeSpan(&value, 1)));
  EXPECT_EQ(value, exact);
  ASSERT_OK(ReadFileTensor(path, tensors[1], absl::MakeSpan(&value, 1)));
  EXPECT_EQ(value, 1.0f);
}

TEST(SafetensorsTest, ValuesThatAreNotFiniteAreRefused) {
  const TempDir dir;
  const std::string path = dir.path() + "/a.safetensors";
  ASSERT_OK(WriteFileAtomically(
      path, File(absl::StrCat("{", Entry("a", "BF16", "2", 0, 4), "}"),
                 std::string("\x80\x3f\xc0\x7f", 4))));
  ASSERT_OK_AND_ASSIGN(const auto tensors, ReadSafetensors(path));
  std::vector<float> values(2);
  EXPECT_THAT(
      std::string(
          ReadFileTensor(path, tensors[0], absl::MakeSpan(values)).message()),
      HasSubstr("element 1 of tensor 'a' is nan"));
}

TEST(SafetensorsTest, WhatIsNoSuchFileIsRefused) {
  EXPECT_THAT(WhyNot(""), HasSubstr("it has 0 bytes"));
  EXPECT_THAT(WhyNot(std::string(8, '\xff') + "{}"),
              HasSubstr("its header would have 18446744073709551615 bytes"));
  EXPECT_THAT(WhyNot(std::string("\x09\0\0\0\0\0\0\0{}", 10)),
              HasSubstr("would have 9 bytes, and 2 follow"));
  EXPECT_THAT(WhyNot("[]", 0), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(WhyNot("{\"\xff\":1}", 0), HasSubstr("is not UTF-8"));
  EXPECT_THAT(WhyNot("{\"a\":1,}", 0), HasSubstr("not JSON"));
  EXPECT_THAT(WhyNot("{\"a\":1}", 0), HasSubstr("'a' is not an object"));
  // Each of these zeros would take 50 bytes.
  std::string zeros = "{\"a\":[0";
  for (int i = 0; i < 1'500'000; ++i) zeros += ",0";
  EXPECT_THAT(WhyNot(zeros + "]}", 0), HasSubstr("more than 1500000 values"));
}

// The zip archive of today, and the pickle of PyTorch before 1.6.
TEST(SafetensorsTest, AFileOfTorchSaveIsRefusedWithWhatToDo) {
  for (const std::string& begin :
       {std::string("PK\x03\x04\0\0\x08\x08", 8),
        std::string("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20", 10)}) {
    const TempDir dir;
    const std::string path = dir.Write("net.pt", begin + std::string(900, 'x'));
    const absl::Status status = ReadSafetensors(path).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(path), HasSubstr("it is one of torch.save"),
                      HasSubstr("safetensors.torch.save_file(state_dict")));
  }
}

TEST(SafetensorsTest, WhatATensorSaysIsNotBelieved) {
  const auto one = [](const std::string& dtype, const std::string& shape,
                      int begin, int end) {
    return "{" + Entry("a", dtype, shape, begin, end) + "}";
  };
  EXPECT_EQ(WhyNot(one("F32", "2", 0, 8), 8), "");
  const auto named = [](size_t bytes) {
    return "{" + Entry(std::string(bytes, 'n'), "F32", "2", 0, 8) + "}";
  };
  EXPECT_EQ(WhyNot(named(1024), 8), "");
  EXPECT_THAT(WhyNot(named(1025), 8),
              HasSubstr("a tensor's name has 1025 bytes, at most 1024"));
  EXPECT_THAT(WhyNot(one("F31", "2", 0, 8), 8),
              HasSubstr("has the type 'F31', which is not known"));
  EXPECT_THAT(WhyNot(one("F32", "3", 0, 8), 8),
              HasSubstr("is F32[3], which is 12 bytes, and its place has 8"));
  EXPECT_THAT(WhyNot(one("F32", "-2", 0, 8), 8), HasSubstr("not of numbers"));
  EXPECT_THAT(WhyNot(one("F32", "0.5", 0, 8), 8), HasSubstr("not of numbers"));
  EXPECT_THAT(WhyNot(one("F32", "1e15,1e15", 0, 8), 8), HasSubstr("too large"));
  EXPECT_THAT(WhyNot(one("F32", "1,1,1,1,1,1,1,1,2", 0, 8), 8),
              HasSubstr("has 9 dimensions, at most 8"));
  EXPECT_THAT(WhyNot(one("F32", "2", 8, 0), 8),
              HasSubstr("not two ascending numbers"));
  EXPECT_THAT(WhyNot(one("F32", "2", 4, 12), 12), HasSubstr("a gap"));
  EXPECT_THAT(WhyNot(one("F32", "2", 0, 8), 7), HasSubstr("it is cut off"));
  EXPECT_THAT(WhyNot(one("F32", "2", 0, 8), 9), HasSubstr("something follows"));
  EXPECT_THAT(WhyNot("{\"a\":{}}", 0), HasSubstr("'a' has no \"dtype\""));
  EXPECT_THAT(WhyNot("{\"a\":{\"dtype\":\"F32\"}}", 0),
              HasSubstr("'a' has no \"shape\""));
  EXPECT_THAT(WhyNot("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4),
              HasSubstr("'a' has no \"data_offsets\""));
}

TEST(SafetensorsTest, PlacesDoNotOverlapAndNamesDiffer) {
  EXPECT_THAT(WhyNot("{" + Entry("a", "F32", "2", 0, 8) + "," +
                         Entry("b", "F32", "2", 4, 12) + "}",
                     12),
              HasSubstr("'b' begins at byte 4 of the values, the one before it "
                        "ends at 8: they overlap"));
  EXPECT_THAT(WhyNot("{" + Entry("a", "F32", "1", 0, 4) + "," +
                         Entry("a", "F32", "1", 4, 8) + "}",
                     8),
              HasSubstr("occurs twice"));
  // The same name with an escape: one of the two is lost, and leaves a gap.
  EXPECT_NE(WhyNot("{" + Entry("a", "F32", "1", 0, 4) + "," +
                       Entry("\\u0061", "F32", "1", 4, 8) + "}",
                   8),
            "");
}

TEST(SafetensorsTest, APartOfAFileIsNone) {
  const std::string file =
      File("{" + Entry("a", "F32", "1", 0, 4) + "}", "1234");
  ASSERT_OK(ParseSafetensors(file, file.size()).status());
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(ParseSafetensors(file.substr(0, size), size).ok()) << size;
  }
}

TEST(SafetensorsTest, AFileThatIsNotThereIsNamed) {
  EXPECT_THAT(
      std::string(ReadSafetensors("/nowhere/a.safetensors").status().message()),
      HasSubstr("/nowhere/a.safetensors"));
}

}  // namespace
}  // namespace syncline

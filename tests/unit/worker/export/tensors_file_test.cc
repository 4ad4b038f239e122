// Goal: any program that reads safetensors finds every tensor. Method: the
// format taken apart by hand: length, JSON, values. tests/peers/
// onnxruntime_peer.py reads such a file with the format's own library.

#include "worker/export/tensors_file.h"

#include <cstring>
#include <vector>

#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(TensorsFileTest, HeaderAndValues) {
  const TempDir dir;
  const std::string path = dir.path() + "/tensors";
  const std::vector<int64_t> matrix = {2, 3}, scalar = {};
  const std::vector<float> values = {1, 2, 3, 4, 5, 6}, one = {7};
  ASSERT_OK(WriteTensors(
      path, {{.name = "layer.weight", .dims = matrix, .values = values},
             {.name = "a \"b\"\\\n", .dims = scalar, .values = one}}));
  ASSERT_OK_AND_ASSIGN(const std::string file, ReadFile(path, 1 << 20));
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof(size));
  EXPECT_EQ(size % 8, 0u);
  ASSERT_EQ(file.size(), sizeof(size) + size + 7 * sizeof(float));
  EXPECT_THAT(file.substr(sizeof(size), size),
              StartsWith("{\"__metadata__\":{\"writer\":\"syncline\"},"
                         "\"layer.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],"
                         "\"data_offsets\":[0,24]},"
                         "\"a \\\"b\\\"\\\\\\u000a\":{\"dtype\":\"F32\","
                         "\"shape\":[],\"data_offsets\":[24,28]}}"));
  std::vector<float> written(7);
  std::memcpy(written.data(), file.data() + sizeof(size) + size,
              7 * sizeof(float));
  EXPECT_THAT(written, ElementsAre(1, 2, 3, 4, 5, 6, 7));
}

TEST(TensorsFileTest, NoTensorsAreAFileToo) {
  const TempDir dir;
  ASSERT_OK(WriteTensors(dir.path() + "/none", {}));
  ASSERT_OK_AND_ASSIGN(const std::string file,
                       ReadFile(dir.path() + "/none", 1 << 20));
  EXPECT_EQ(file.substr(8), "{\"__metadata__\":{\"writer\":\"syncline\"}}  ");
}

TEST(TensorsFileTest, AFolderThatIsNotThereIsNamed) {
  const absl::Status status = WriteTensors("/nowhere/tensors", {});
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/tensors"));
}

}  // namespace
}  // namespace syncline::worker

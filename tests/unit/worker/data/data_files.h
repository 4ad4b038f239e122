#ifndef SYNCLINE_TESTS_UNIT_WORKER_DATA_DATA_FILES_H_
#define SYNCLINE_TESTS_UNIT_WORKER_DATA_DATA_FILES_H_

#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline::worker {

// A directory of data files for one test.
class DataFilesTest : public ::testing::Test {
 protected:
  std::string Path(absl::string_view name) const {
    return absl::StrCat(dir_, "/", name);
  }
  std::string Write(absl::string_view name, absl::string_view content) const {
    std::ofstream out(Path(name), std::ios::binary);
    out.write(content.data(), content.size());
    EXPECT_TRUE(out.good());
    return Path(name);
  }

  const TempDir temp_;
  const std::string dir_ = temp_.path();
};

// One gzip member.
inline std::string Gzip(absl::string_view content) {
  z_stream stream = {};
  SYNCLINE_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8,
                              Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = content.size();
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = packed.size();
  SYNCLINE_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// The folder of real data, which the project does not contain; a test skips,
// with this path, where it is absent.
inline std::string RealDataRoot() {
  const char* set = std::getenv("SYNCLINE_TEST_DATA");
  return std::filesystem::absolute(set != nullptr ? set : "../shared/data");
}

}  // namespace syncline::worker

#endif  // SYNCLINE_TESTS_UNIT_WORKER_DATA_DATA_FILES_H_

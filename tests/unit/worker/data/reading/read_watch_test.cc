// Goal: what is read while data is loaded is announced, and loading ends soon
// when it is no longer wanted, also within a gzip file. Method: small files,
// read through InputFile with a watch around.

#include "worker/data/reading/read_watch.h"

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "worker/data/reading/input_file.h"

namespace syncline::worker {
namespace {

class ReadWatchTest : public testing::Test {
 protected:
  ReadWatchTest() : path_(dir_.File("data")) {
    std::ofstream(path_) << std::string(1000, 'x');
  }
  absl::Status ReadAll() {
    const auto file = InputFile::Open(path_);
    if (!file.ok()) return file.status();
    char content[1000];
    return ReadExactly(file->get(), content, sizeof(content));
  }

  const TempDir dir_;
  const std::string path_;
};

TEST_F(ReadWatchTest, AnnouncesWhatIsRead) {
  std::string path;
  size_t bytes = 0;
  {
    const ReadWatch watch([&](const std::string& file, size_t count) {
      path = file;
      bytes += count;
      return absl::OkStatus();
    });
    EXPECT_OK(ReadAll());
  }
  EXPECT_EQ(path, path_);
  EXPECT_GE(bytes, 1000u);
  const size_t before = bytes;
  EXPECT_OK(ReadAll());
  EXPECT_EQ(bytes, before) << "the watch is over";
}

TEST_F(ReadWatchTest, ItsErrorEndsTheReading) {
  const ReadWatch watch([](const std::string&, size_t) {
    return absl::CancelledError("stopped");
  });
  EXPECT_EQ(ReadAll().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace syncline::worker

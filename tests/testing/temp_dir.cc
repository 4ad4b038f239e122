#include "tests/testing/temp_dir.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

bool TestHasFailed() {
  const auto* unit = testing::UnitTest::GetInstance();
  return unit->Failed();
}

}  // namespace

TempDir::TempDir() {
  std::string pattern = absl::StrCat(testing::TempDir(), "/syncline-XXXXXX");
  SYNCLINE_CHECK(mkdtemp(pattern.data()) != nullptr);
  path_ = std::filesystem::canonical(pattern).string();
}

TempDir::~TempDir() {
  if (TestHasFailed()) {
    std::cout << "kept for a look: " << path_ << std::endl;
    return;
  }
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempDir::File(absl::string_view name) const {
  return absl::StrCat(path_, "/", name);
}

std::string TempDir::Write(absl::string_view name,
                           absl::string_view content) const {
  const std::string file = File(name);
  std::filesystem::create_directories(
      std::filesystem::path(file).parent_path());
  std::ofstream(file, std::ios::binary)
      .write(content.data(), static_cast<std::streamsize>(content.size()));
  return file;
}

std::string SourceDir() { return SYNCLINE_SOURCE_DIR; }

std::string TestDataDir() {
  const char* set = std::getenv("SYNCLINE_TEST_DATA");
  return set != nullptr ? set : SYNCLINE_SOURCE_DIR "/../shared/data";
}

}  // namespace syncline

// Goal: a file appears whole or not at all, what is printed is about its rows,
// and options out of range are refused. Method: small files.

#include "scheduler/ctl/generate_command.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "tests/testing/temp_dir.h"

namespace syncline::ctl {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

std::string Content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class GenerateCommandTest : public testing::Test {
 protected:
  GenerateCommandTest() {
    options_.rows = 50;
    options_.generator.vocabulary = 1000;
    options_.path = dir_.path() + "/a.tsv";
  }
  int Run(bool json = false) {
    out_.str("");
    err_.str("");
    return RunGenerateCriteo(options_,
                             {.out = out_, .err = err_, .json = json});
  }

  TempDir dir_;
  GenerateCriteoOptions options_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(GenerateCommandTest, PartsOfAStreamAreItsRows) {
  ASSERT_EQ(Run(), kExitOk) << err_.str();
  const std::string whole = Content(options_.path);
  EXPECT_EQ(std::count(whole.begin(), whole.end(), '\n'), 50);
  EXPECT_THAT(out_.str(), ContainsRegex("wrote 50 rows to .*a.tsv, .*% with "
                                        "label 1; the teacher's own AUC is 0"));
  std::string parts;
  options_.path = dir_.path() + "/b.tsv";
  for (const auto& [first, rows] : {std::pair(0, 20), std::pair(20, 30)}) {
    options_.first_row = first;
    options_.rows = rows;
    ASSERT_EQ(Run(), kExitOk);
    parts += Content(options_.path);
  }
  EXPECT_EQ(parts, whole);
}

TEST_F(GenerateCommandTest, JsonNamesTheTeachersAuc) {
  ASSERT_EQ(Run(/*json=*/true), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("\"teacher_auc\":0."));
  EXPECT_THAT(out_.str(), HasSubstr("\"rows\":50"));
}

TEST_F(GenerateCommandTest, AFileThatCannotBeWrittenIsNamed) {
  options_.path = dir_.path() + "/none/a.tsv";
  EXPECT_EQ(Run(), kExitFailed);
  EXPECT_THAT(err_.str(), AllOf(HasSubstr("none/a.tsv."),
                                HasSubstr(".part\": No such file")));
  // A folder is there already; nothing is left beside it.
  options_.path = dir_.path() + "/folder";
  std::filesystem::create_directory(options_.path);
  EXPECT_EQ(Run(), kExitFailed);
  EXPECT_THAT(err_.str(), HasSubstr("/folder\": Is a directory"));
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
    EXPECT_NE(entry.path().extension(), ".part") << entry.path();
  }
}

TEST_F(GenerateCommandTest, OptionsOutOfRangeAreRefused) {
  const auto error = [this](auto change) {
    const GenerateCriteoOptions before = options_;
    change(&options_);
    EXPECT_EQ(Run(), kExitFailed);
    EXPECT_FALSE(std::filesystem::exists(options_.path));
    options_ = before;
    return err_.str();
  };
  using Options = GenerateCriteoOptions;
  EXPECT_THAT(error([](Options* o) { o->rows = 0; }), HasSubstr("--rows"));
  EXPECT_THAT(error([](Options* o) {
                o->first_row = std::numeric_limits<uint64_t>::max();
              }),
              HasSubstr("--first-row"));
  EXPECT_THAT(error([](Options* o) { o->generator.vocabulary = 259; }),
              HasSubstr("--vocabulary: 259 is outside 260.."));
  EXPECT_THAT(error([](Options* o) { o->generator.zipf = 0; }),
              HasSubstr("--zipf: 0 is outside"));
  EXPECT_THAT(error([](Options* o) { o->generator.zipf = 11; }),
              HasSubstr("--zipf: 11 is outside"));
}

}  // namespace
}  // namespace syncline::ctl

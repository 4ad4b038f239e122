// Goal: samples of different length are learned from, in buckets, through the
// cluster, as the example shows it. Method: its script makes the data, its job
// makes one pass; the next byte must be told better than by any model that sees
// the last byte alone, which tells 29% of them at best.

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

TEST(SpeechesTest, LearnsFromSamplesOfDifferentLength) {
  const std::string text = TestDataDir() + "/text/tinyshakespeare.txt";
  if (!std::filesystem::exists(text)) GTEST_SKIP() << "no data at " << text;
  const std::string folder = SourceDir() + "/deploy/examples/speeches";
  const TempDir data;
  ASSERT_OK_AND_ASSIGN(
      const auto script,
      RunningProgram::Start(
          data.path(),
          {"/usr/bin/python3", folder + "/make_data.py", text, data.path()},
          /*environment=*/{}));
  ASSERT_OK_AND_ASSIGN(const auto made, script->Finish(absl::Minutes(1)));
  ASSERT_EQ(made.exit.code, 0) << made.err;

  TestCluster cluster({.ps = 1, .workers = 2, .data_root = data.path()});
  ASSERT_OK(cluster.Start());
  const std::string job_file = cluster.dir().File("job.textproto");
  std::filesystem::copy_file(folder + "/model.onnxtxt",
                             cluster.dir().File("model.onnxtxt"));
  std::ofstream(job_file) << absl::StrReplaceAll(
      ReadAll(folder + "/job.textproto"), {{"epochs: 4", "epochs: 1"}});
  ASSERT_OK_AND_ASSIGN(const JobStatus job, cluster.Train(job_file));
  const Evaluation& last = *job.evaluations().rbegin();
  EXPECT_EQ(last.samples(), 650u);
  EXPECT_GT(last.accuracy(), 0.38) << "0.42 was reached";
}

}  // namespace
}  // namespace syncline

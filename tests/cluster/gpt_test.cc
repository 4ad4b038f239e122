// Goal: a transformer learns language through the cluster. Method: the example
// on Shakespeare, cut short; after so few steps its loss on held-out text must
// be below what it would be for a model that sees only the last character. Such
// a model, the best there is for this text, is computed from counts here; so
// attention, positions and the order of labels all have to work.

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

constexpr int kClocks = 500;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

// Mean of -log P(next | this) over the text's last tenth, P being the text's
// own frequencies there: no model that sees one character does better.
double BestOfPairs(const std::string& text) {
  std::vector<double> pairs(256 * 256);
  std::vector<double> firsts(256);
  const size_t begin = text.size() / 10 * 9;
  for (size_t i = begin; i + 1 < text.size(); ++i) {
    const size_t a = static_cast<uint8_t>(text[i]);
    pairs[a * 256 + static_cast<uint8_t>(text[i + 1])] += 1;
    firsts[a] += 1;
  }
  double sum = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i] > 0) sum -= pairs[i] * std::log(pairs[i] / firsts[i / 256]);
  }
  return sum / (text.size() - begin - 1);
}

TEST(GptTest, LearnsMoreThanPairsOfCharacters) {
  const std::string text = TestDataDir() + "/text/tinyshakespeare.txt";
  if (!std::filesystem::exists(text)) {
    GTEST_SKIP() << "no data at " << text;
  }
  TestCluster cluster({.ps = 2, .workers = 2, .data_root = TestDataDir()});
  ASSERT_OK(cluster.Start());
  const std::string folder = SourceDir() + "/deploy/examples/gpt";
  const std::string job_file = cluster.dir().path() + "/job.textproto";
  std::filesystem::copy_file(folder + "/model.onnxtxt",
                             cluster.dir().path() + "/model.onnxtxt");
  std::ofstream(job_file) << absl::StrReplaceAll(
      ReadAll(folder + "/job.textproto"),
      {{"max_clocks: 2000", absl::StrCat("max_clocks: ", kClocks)},
       {"total_clocks: 2000", absl::StrCat("total_clocks: ", kClocks)}});
  ASSERT_OK_AND_ASSIGN(const JobStatus job, cluster.Train(job_file));
  const Evaluation& last = *job.evaluations().rbegin();
  const double bar = BestOfPairs(ReadAll(text));
  std::cout << "loss " << last.loss() << " after " << kClocks
            << " steps; of pairs alone " << bar << std::endl;
  EXPECT_EQ(last.samples(), 1742u);
  EXPECT_NEAR(last.perplexity(), std::exp(last.loss()), 1e-3);
  EXPECT_LT(last.loss(), bar);
}

}  // namespace
}  // namespace syncline

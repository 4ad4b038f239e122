// Goal: every example job under deploy/examples parses, is valid, and fits its
// model, so that what the documentation shows works.
// Method: find all job files and resolve each; compare the parameter counts.

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "common/job/job_spec_validator.h"
#include "common/model/training_graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

// Trained values of the job at `path`.
int64_t ResolveExample(const std::filesystem::path& path) {
  const auto spec = ParseJobSpec(ReadAll(path), path.string());
  EXPECT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(ValidateJobSpec(*spec), IsEmpty());
  const JobSpec full = WithDefaults(*spec);
  const auto model = ParseJobModel(
      full, ReadAll(path.parent_path() / full.model().path()), path.string());
  EXPECT_TRUE(model.ok()) << model.status();
  std::vector<std::string> problems;
  const TrainingGraph training = ResolveTrainingGraph(full, **model, &problems);
  EXPECT_THAT(problems, IsEmpty());
  int64_t values = 0;
  for (const auto& parameter : training.parameters) {
    EXPECT_GE(parameter.rule, 0) << parameter.name;
    values += ElementCount(parameter.dims);
  }
  return values;
}

TEST(ExamplesTest, AllResolve) {
  std::map<std::string, int64_t> values;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator("deploy/examples")) {
    if (entry.path().extension() != ".textproto") continue;
    SCOPED_TRACE(entry.path());
    values[entry.path().lexically_relative("deploy/examples").string()] =
        ResolveExample(entry.path());
  }
  // Without the tables.
  const int64_t dlrm = 13 * 32 + 32 + 32 * 8 + 8 + 367 * 64 + 64 + 64 * 1 + 1;
  const int64_t deep = 221 * 64 + 64 + 64 * 32 + 32 + 32 * 1 + 1;
  const int64_t mnist = 784 * 256 + 256 + 256 * 10 + 10;
  const int64_t gpt_layer = 4 * 128 + 128 * (3 * 128 + 128 + 2 * 512);
  const int64_t gpt = (256 + 64) * 128 + 4 * gpt_layer + 2 * 128;
  const int64_t cnn =
      32 * 25 + 32 + 64 * 32 * 25 + 64 + 3136 * 128 + 128 + 128 * 10 + 10;
  // A stage has four convolutions; from the second on the first is from half
  // the width, and the fifth is the shortcut's, 1x1.
  int64_t resnet = 9 * 16 + 4 * 9 * 16 * 16 + 128 * 10 + 10;
  for (const int64_t width : {32, 64, 128}) {
    resnet += (9 + 1) * width * width / 2 + 3 * 9 * width * width;
  }
  resnet += 4 * 5 * (16 + 32 + 64 + 128);  // each norm's four numbers a channel
  const int64_t lstm = 256 * 64 + 4 * 192 * (64 + 192) + 192 * 256 + 256;
  EXPECT_THAT(values,
              ElementsAre(testing::Pair("a9a/job.textproto", 124),
                          testing::Pair("a9a/table.textproto", 1),
                          testing::Pair("ctr/dlrm.textproto", dlrm),
                          testing::Pair("ctr/wide_and_deep.textproto", deep),
                          testing::Pair("gpt/job.textproto", gpt),
                          testing::Pair("gpt/local.textproto", gpt),
                          testing::Pair("gpt/ssp.textproto", gpt),
                          testing::Pair("mnist-cnn/job.textproto", cnn),
                          testing::Pair("mnist-cnn/ssp.textproto", cnn),
                          testing::Pair("mnist/async.textproto", mnist),
                          testing::Pair("mnist/digits.textproto", mnist),
                          testing::Pair("mnist/job.textproto", mnist),
                          testing::Pair("mnist/ssp.textproto", mnist),
                          testing::Pair("optdigits/job.textproto",
                                        64 * 128 + 128 + 128 * 10 + 10),
                          testing::Pair("resnet/job.textproto", resnet),
                          testing::Pair("resnet/ssp.textproto", resnet),
                          testing::Pair("speeches/job.textproto", lstm)));
}

}  // namespace
}  // namespace syncline

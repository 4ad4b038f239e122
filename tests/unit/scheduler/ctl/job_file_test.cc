// Goal: a job file is checked with its model before any call, and its
// author reads all problems at once, with places. Method: files in a folder.

#include "scheduler/ctl/job_file.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline::ctl {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kModel[] = R"(<ir_version: 8, opset_import: ["" : 13]>
tiny (float[N,784] x, float[784,10] w, float[10] b) => (float[N,10] y) {
  y = Gemm(x, w, b)
}
)";

constexpr char kJob[] = R"(name: "tiny"
model {
  path: "models/tiny.onnxtxt"
  initialize { pattern: "*" scheme: ZEROS }
}
data {
  train { digits { count: 100 } }
  feeds { input: "x" field: "image" }
}
loss { kind: SOFTMAX_CROSS_ENTROPY }
optimizer { kind: SGD }
learning_rate { base: 0.1 }
)";

class LoadJobFileTest : public testing::Test {
 protected:
  std::string WriteJob(const std::string& text) {
    return dir_.Write("job.textproto", text);
  }
  void WriteModel(const std::string& text) {
    dir_.Write("models/tiny.onnxtxt", text);
  }
  const TempDir dir_;
};

TEST_F(LoadJobFileTest, FindsTheModelBesideTheJobFile) {
  WriteModel(kModel);
  const auto job = LoadJobFile(WriteJob(kJob));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.name(), "tiny");
  EXPECT_EQ(job->model_file, dir_.File("models/tiny.onnxtxt"));
  EXPECT_EQ(job->training.parameters.size(), 2u);
}

TEST_F(LoadJobFileTest, AModelIsNoJobFile) {
  WriteModel(kModel);
  const std::string big(5 << 20, 'x');
  for (const std::string& file :
       {dir_.File("models/tiny.onnxtxt"),                // by its name
        dir_.Write("text", kModel),                      // by its text
        dir_.Write("bytes", "\x08\x0a\x12\x07pytorch"),  // binary
        dir_.Write("large.onnx", absl::StrCat("\x08\x0a", big))}) {
    const absl::Status status = LoadJobFile(file).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(testing::StartsWith(file + " is an ONNX model"),
                      HasSubstr("a job file belongs here"),
                      HasSubstr("synctl help job")));
  }
  EXPECT_THAT(
      std::string(LoadJobFile(dir_.Write("net.pt", "PK")).status().message()),
      HasSubstr("is a file of PyTorch"));
  EXPECT_TRUE(absl::IsNotFound(LoadJobFile(dir_.File("none.onnx")).status()));
}

TEST_F(LoadJobFileTest, CheckpointsThatAreNotWrittenAreAWarning) {
  WriteModel(kModel);
  const auto unset = LoadJobFile(WriteJob(kJob));
  ASSERT_TRUE(unset.ok()) << unset.status();
  EXPECT_THAT(unset->notes, testing::IsEmpty());
  const auto set =
      LoadJobFile(WriteJob(absl::StrCat(kJob, "durability: CHECKPOINT")));
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_THAT(set->notes,
              testing::ElementsAre(absl::StrCat(
                  "warning: ", dir_.File("job.textproto"),
                  ": durability: nothing is stored until the end of the job; "
                  "losing a process fails it")));
}

TEST_F(LoadJobFileTest, OverridesGoOverTheFile) {
  WriteModel(kModel);
  const auto job = LoadJobFile(
      WriteJob(absl::StrCat(kJob, "resources { workers: 1 ps: 1 }")),
      {.workers = 4});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.resources().workers(), 4u);
  EXPECT_EQ(job->spec.resources().ps(), 1u);
}

TEST_F(LoadJobFileTest, SettingsGoOverTheFile) {
  WriteModel(kModel);
  const std::string file = WriteJob(kJob);
  JobOverrides overrides;
  overrides.settings = {"learning_rate.base=0.5", "training.epochs=3",
                        "training.epochs=4"};
  const auto job = LoadJobFile(file, overrides);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.learning_rate().base(), 0.5f);
  EXPECT_EQ(job->spec.training().epochs(), 4u);
  EXPECT_EQ(job->spec.name(), "tiny");
}

TEST_F(LoadJobFileTest, ProblemsOfSettingsAreNotBlamedOnTheFile) {
  WriteModel(kModel);
  JobOverrides overrides;
  overrides.settings = {"learning_rate.base=-1", "learning_rate.bse=1"};
  const std::string message(
      LoadJobFile(WriteJob(kJob), overrides).status().message());
  EXPECT_THAT(message, HasSubstr("--set: learning_rate.base: "));
  EXPECT_THAT(message, HasSubstr("--set learning_rate.bse=1: "
                                 "LearningRateSpec has no field 'bse'"));
  EXPECT_THAT(message, testing::Not(HasSubstr("job.textproto")));
}

TEST_F(LoadJobFileTest, ProblemsOfSpecAndModelComeTogetherWithPlaces) {
  WriteModel("this is no model");
  const std::string file = WriteJob(absl::StrCat(
      kJob, "training { batch_size: 9999999 }\nlimits { max_seconds: -1 }\n"));
  const auto job = LoadJobFile(file);
  ASSERT_TRUE(absl::IsInvalidArgument(job.status())) << job.status();
  EXPECT_THAT(std::string(job.status().message()),
              AllOf(HasSubstr(file + ":13: training.batch_size"),
                    HasSubstr(file + ":14: limits.max_seconds"),
                    HasSubstr("tiny.onnxtxt")));
}

TEST_F(LoadJobFileTest, WhatIsTrainedOtherwiseIsNoted) {
  WriteModel(kModel);
  auto job = LoadJobFile(WriteJob(kJob));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->notes, testing::IsEmpty());
  WriteModel(R"(<ir_version: 8, opset_import: ["" : 13]>
tiny (double[N,784] x, float[784,10] w, float[10] b) => (float[N,10] y) {
  f = Cast <to = 1> (x)
  y = Gemm(f, w, b)
}
)");
  job = LoadJobFile(WriteJob(kJob));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->notes, testing::ElementsAre(AllOf(
                              HasSubstr("tiny.onnxtxt: computes in float64"),
                              HasSubstr("graph input 'x'"))));
}

TEST_F(LoadJobFileTest, MisfitsBetweenSpecAndModelHaveTheirLine) {
  WriteModel(kModel);
  std::string text = kJob;
  text.replace(text.find("input: \"x\""), 10, "input: \"q\"");
  const auto job = LoadJobFile(WriteJob(text));
  ASSERT_TRUE(absl::IsInvalidArgument(job.status())) << job.status();
  EXPECT_THAT(
      std::string(job.status().message()),
      AllOf(HasSubstr("job.textproto:8: data.feeds[0].input"), HasSubstr("q")));
}

// An unknown field, a value of the wrong type, a range, a name that the model
// does not have, and in the model an operator and shapes: six mistakes.
TEST_F(LoadJobFileTest, NoLayerHidesTheNext) {
  WriteModel(R"(<ir_version: 8, opset_import: ["" : 13]>
tiny (float[N,784] x, float[784,10] w, float[9] b) => (float[N,10] y) {
  h = Gemm(x, w, b)
  y = Hardmax(x)
}
)");
  std::string text = kJob;
  text.replace(text.find("input: \"x\""), 10, "input: \"q\"");
  absl::StrAppend(&text, "trainin { epochs: 3 }\n",
                  "training { seed: -1 batch_size: 9999999 }\n");
  const auto job = LoadJobFile(WriteJob(text));
  ASSERT_TRUE(absl::IsInvalidArgument(job.status())) << job.status();
  const std::vector<std::string> lines =
      absl::StrSplit(job.status().message(), '\n');
  EXPECT_THAT(
      lines, testing::ElementsAre(
                 AllOf(HasSubstr("job.textproto:13:1: "), HasSubstr("trainin")),
                 AllOf(HasSubstr("job.textproto:14:18: "),
                       HasSubstr("Expected integer")),
                 HasSubstr("job.textproto:14: training.batch_size"),
                 AllOf(HasSubstr("job.textproto:8: data.feeds[0].input"),
                       HasSubstr("'q' is not an input")),
                 HasSubstr("job.textproto:8: data.feeds: graph input 'x'"),
                 AllOf(HasSubstr("tiny.onnxtxt"), HasSubstr("Hardmax")),
                 AllOf(HasSubstr("tiny.onnxtxt"), HasSubstr("Gemm"),
                       HasSubstr("does not broadcast"))));
}

TEST_F(LoadJobFileTest, AMistakeIsSaidOnce) {
  WriteModel(kModel);
  const std::pair<const char*, const char*> changes[] = {
      {"input: \"x\"", "inputs: \"x\""},
      {"pattern: \"*\"", "pattern: 3"},
      {"loss { kind: SOFTMAX_CROSS_ENTROPY }", "loss { kind: SOFTMAX }"},
      {"learning_rate {", "learning_rat {"},
      {"train { digits { count: 100 } }", "train { digits { count: 0 } }"},
      {"model {", "model { { "},
  };
  for (const auto& [before, after] : changes) {
    std::string text = kJob;
    text.replace(text.find(before), std::string(before).size(), after);
    const auto job = LoadJobFile(WriteJob(text));
    EXPECT_THAT(
        std::vector<std::string>(absl::StrSplit(job.status().message(), '\n')),
        testing::SizeIs(1))
        << after << "\n"
        << job.status();
  }
}

// The checks of models escape the same letters, because those names come from
// ONNX files.
TEST_F(LoadJobFileTest, NamesOfTheJobFileKeepTheirLetters) {
  WriteModel(kModel);
  const auto job = LoadJobFile(WriteJob(
      absl::StrReplaceAll(kJob, {{"field: \"image\"", "field: \"größe\""}})));
  EXPECT_THAT(std::string(job.status().message()),
              HasSubstr("'größe' is not a field"));
}

// --- start.weights -----------------------------------------------------------

TEST_F(LoadJobFileTest, WhatAWeightsFileGivesIsNotWithoutValues) {
  WriteModel(kModel);
  const std::string json =
      R"({"b":{"dtype":"F32","shape":[10],"data_offsets":[0,40]}})";
  std::string length(8, '\0');
  length[0] = static_cast<char>(json.size());
  dir_.Write("b.safetensors", length + json + std::string(40, '\0'));
  JobOverrides overrides;
  overrides.weights = dir_.File("b.safetensors");
  overrides.allow_missing = true;
  const auto job = LoadJobFile(WriteJob(kJob), overrides);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->weights_file, overrides.weights);
  ASSERT_EQ(job->training.parameters.size(), 2u);
  EXPECT_EQ(job->training.parameters[0].reason, WeightReason::kDeclared);
  EXPECT_EQ(job->training.parameters[1].reason, WeightReason::kStarted);
  EXPECT_THAT(job->notes,
              testing::Contains(HasSubstr("the file lacks 'w', which keep")));
}

TEST_F(LoadJobFileTest, WhatIsForAWeightsFileNeedsOne) {
  WriteModel(kModel);
  JobOverrides overrides;
  overrides.renames = {"a=b"};
  EXPECT_THAT(
      std::string(LoadJobFile(WriteJob(kJob), overrides).status().message()),
      HasSubstr("--rename: needs --weights"));
}

TEST_F(LoadJobFileTest, AWeightsFileIsNamedOnce) {
  WriteModel(kModel);
  JobOverrides overrides;
  overrides.weights = dir_.Write("net.pt", "PK\x03\x04 of torch.save");
  const std::string message(
      LoadJobFile(WriteJob(kJob), overrides).status().message());
  EXPECT_THAT(message,
              HasSubstr(absl::StrCat("start.weights: ", overrides.weights,
                                     ": not a safetensors file: it is "
                                     "one of torch.save")));
  overrides.weights = dir_.File("none");
  const std::string absent(
      LoadJobFile(WriteJob(kJob), overrides).status().message());
  const size_t first = absent.find(overrides.weights);
  ASSERT_NE(first, absent.npos) << absent;
  EXPECT_EQ(absent.find(overrides.weights, first + 1), absent.npos) << absent;
}

TEST_F(LoadJobFileTest, AMissingModelIsAProblemOfModelPath) {
  const auto job = LoadJobFile(WriteJob(kJob));
  ASSERT_TRUE(absl::IsInvalidArgument(job.status())) << job.status();
  EXPECT_THAT(
      std::string(job.status().message()),
      AllOf(HasSubstr("job.textproto:3: model.path"), HasSubstr("No such")));
}

TEST_F(LoadJobFileTest, WhatTheWorkersRefuseIsSaidBeforeAnythingIsSent) {
  WriteModel(kModel);
  const std::string file = WriteJob(kJob);
  absl::Status planned = absl::UnimplementedError("node 'a' (Einsum): 3 parts");
  const JobPlanner planner = [&](const JobSpec& spec, auto model,
                                 const TrainingGraph& training) {
    EXPECT_GT(spec.training().eval_batch_size(), 0u) << "without defaults";
    EXPECT_NE(model, nullptr);
    EXPECT_EQ(training.parameters.size(), 2u);
    return planned.ok() ? absl::StatusOr<JobPlan>(JobPlan()) : planned;
  };
  const absl::Status refused = LoadJobFile(file, {}, planner).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_EQ(refused.message(), absl::StrCat(dir_.File("models/tiny.onnxtxt"),
                                            ": node 'a' (Einsum): 3 parts"));
  // Memory is another machine's.
  planned = absl::ResourceExhaustedError("too large");
  EXPECT_TRUE(LoadJobFile(file, {}, planner).ok());
  planned = absl::OkStatus();
  EXPECT_TRUE(LoadJobFile(file, {}, planner).ok());
}

TEST_F(LoadJobFileTest, AMissingJobFileIsNamed) {
  const auto job = LoadJobFile(dir_.File("none"));
  EXPECT_TRUE(absl::IsNotFound(job.status())) << job.status();
  EXPECT_THAT(std::string(job.status().message()),
              HasSubstr(dir_.File("none")));
}

}  // namespace
}  // namespace syncline::ctl

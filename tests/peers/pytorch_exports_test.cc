// Goal: what PyTorch exports trains as it does in PyTorch. Method: files that
// PyTorch's exporters wrote, of small models of many kinds, train for five
// steps with the worker's executor; the losses and what each parameter became
// are compared with what PyTorch computed when the files were made
// (pytorch/make_fixtures.py, which says with which versions). Files that would
// train otherwise must be refused, with what to do instead.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/peers/step_runner.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

constexpr char kFolder[] = "tests/peers/pytorch/exports";

// The names of files that train as in PyTorch, and of those that are refused.
const std::set<std::string>& TrainedWays() {
  static const auto* const ways =
      new std::set<std::string>{"older", "older-plain", "unoptimized"};
  return *ways;
}

const std::set<std::string>& RefusedWays() {
  static const auto* const ways =
      new std::set<std::string>{"refused-default", "refused-older-plain"};
  return *ways;
}

// PyTorch's result for a parameter: final - kept * initial, where kept is 1
// except for running statistics, whose part of the initial value fades.
struct ExpectedParameter {
  std::set<std::string> names;  // several of one that is tied
  double kept = 1;
  double norm = 0;
  double projection = 0;  // Project
  double bound = 0;       // of each
};

struct ExpectedRun {
  StepRunner::Options options;
  std::vector<double> losses, loss_bounds;
  std::vector<ExpectedParameter> parameters;
};

LossSpec::Kind LossNamed(const std::string& name) {
  if (name == "softmax") return LossSpec::SOFTMAX_CROSS_ENTROPY;
  if (name == "sigmoid") return LossSpec::SIGMOID_CROSS_ENTROPY;
  return LossSpec::MEAN_SQUARED_ERROR;
}

// "loss softmax", "rate 0.05", "batch 4", "step LOSS BOUND" for each step,
// "train PATTERN" where a file does not say what is a weight, and "parameter
// NAME|NAME KEPT NORM PROJECTION BOUND".
ExpectedRun ReadExpected(const std::string& folder) {
  ExpectedRun run;
  run.options.batches = absl::StrCat(folder, "/batches");
  std::ifstream in(absl::StrCat(folder, "/expected"));
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string key, name;
    words >> key;
    if (key == "loss") {
      words >> name;
      run.options.loss = LossNamed(name);
    } else if (key == "rate") {
      words >> run.options.rate;
    } else if (key == "batch") {
      words >> run.options.batch_size;
    } else if (key == "train") {
      words >> run.options.train.emplace_back();
    } else if (key == "step") {
      words >> run.losses.emplace_back() >> run.loss_bounds.emplace_back();
    } else if (key == "parameter") {
      ExpectedParameter& parameter = run.parameters.emplace_back();
      words >> name >> parameter.kept >> parameter.norm >>
          parameter.projection >> parameter.bound;
      parameter.names = absl::StrSplit(name, '|');
    } else {
      ADD_FAILURE() << folder << "/expected: " << line;
    }
    EXPECT_TRUE(words) << folder << "/expected: " << line;
  }
  run.options.steps = static_cast<int64_t>(run.losses.size());
  return run;
}

// One number that any change of an element changes.
double Project(const std::vector<double>& values) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += values[i] * std::cos(static_cast<double>(i));
  }
  return sum;
}

double Norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

void ExpectParameter(const ExpectedParameter& expected,
                     const StepRunner::Weight& initial,
                     const StepRunner::Weight& final) {
  ASSERT_EQ(initial.values.size(), final.values.size()) << final.name;
  std::vector<double> change(final.values.size());
  for (size_t i = 0; i < change.size(); ++i) {
    change[i] = final.values[i] - expected.kept * initial.values[i];
  }
  EXPECT_NEAR(Norm(change), expected.norm, expected.bound) << final.name;
  EXPECT_NEAR(Project(change), expected.projection, expected.bound)
      << final.name;
}

void ExpectParameters(const ExpectedRun& run,
                      const std::vector<StepRunner::Weight>& initial,
                      const std::vector<StepRunner::Weight>& final) {
  std::vector<bool> is_seen(run.parameters.size());
  for (size_t i = 0; i < final.size(); ++i) {
    const auto it = std::find_if(
        run.parameters.begin(), run.parameters.end(),
        [&](const auto& p) { return p.names.count(final[i].name) != 0; });
    if (it == run.parameters.end()) {
      ADD_FAILURE() << "'" << final[i].name << "' is trained, but not by "
                    << "PyTorch";
      continue;
    }
    is_seen[it - run.parameters.begin()] = true;
    ExpectParameter(*it, initial[i], final[i]);
  }
  for (size_t i = 0; i < is_seen.size(); ++i) {
    if (is_seen[i] || run.parameters[i].norm == 0) continue;
    ADD_FAILURE() << "'" << *run.parameters[i].names.begin()
                  << "' is not trained, but PyTorch trains it";
  }
}

struct ExportCase {
  std::string model;
  std::string way;  // the name of the file

  std::string folder() const { return absl::StrCat(kFolder, "/", model); }
};

std::ostream& operator<<(std::ostream& out, const ExportCase& c) {
  return out << c.model << " " << c.way;
}

// Sorted by name, so that tests are always the same.
std::vector<ExportCase> CasesOf(const std::set<std::string>& ways) {
  std::map<std::string, ExportCase> cases;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(kFolder)) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() != ".onnx" || ways.count(path.stem()) == 0) continue;
    cases[path.string()] = {.model = path.parent_path().filename(),
                            .way = path.stem()};
  }
  std::vector<ExportCase> sorted;
  for (const auto& [path, c] : cases) sorted.push_back(c);
  return sorted;
}

std::string NameOfTest(const testing::TestParamInfo<ExportCase>& info) {
  std::string name = absl::StrCat(info.param.model, "_", info.param.way);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class TrainedExportTest : public testing::TestWithParam<ExportCase> {};

TEST_P(TrainedExportTest, TrainsAsInPyTorch) {
  ExpectedRun run = ReadExpected(GetParam().folder());
  run.options.model =
      absl::StrCat(GetParam().folder(), "/", GetParam().way, ".onnx");
  const auto runner = StepRunner::Create(run.options);
  ASSERT_OK(runner);
  const std::vector<StepRunner::Weight> initial = (*runner)->Weights();
  for (size_t step = 0; step < run.losses.size(); ++step) {
    const auto loss = (*runner)->Step(static_cast<int64_t>(step));
    ASSERT_OK(loss);
    EXPECT_NEAR(*loss, run.losses[step], run.loss_bounds[step])
        << "step " << step;
  }
  ExpectParameters(run, initial, (*runner)->Weights());
}

INSTANTIATE_TEST_SUITE_P(Exports, TrainedExportTest,
                         testing::ValuesIn(CasesOf(TrainedWays())), NameOfTest);

class RefusedExportTest : public testing::TestWithParam<ExportCase> {};

// A file in which an exporter merged or folded weights is refused, with the
// export call that keeps them.
TEST_P(RefusedExportTest, IsRefusedWithTheRemedy) {
  ExpectedRun run = ReadExpected(GetParam().folder());
  run.options.model =
      absl::StrCat(GetParam().folder(), "/", GetParam().way, ".onnx");
  const auto runner = StepRunner::Create(run.options);
  ASSERT_FALSE(runner.ok());
  const bool is_older = GetParam().way == "refused-older-plain";
  EXPECT_THAT(std::string(runner.status().message()),
              testing::HasSubstr(is_older ? "do_constant_folding=False"
                                          : "optimize=False"));
}

INSTANTIATE_TEST_SUITE_P(Exports, RefusedExportTest,
                         testing::ValuesIn(CasesOf(RefusedWays())), NameOfTest);

// A file of a way that no suite names would be in the folder for nothing.
TEST(ExportFoldersTest, EveryFileIsInASuite) {
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(kFolder)) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() != ".onnx") continue;
    EXPECT_EQ(
        TrainedWays().count(path.stem()) + RefusedWays().count(path.stem()), 1u)
        << path;
  }
}

}  // namespace
}  // namespace syncline

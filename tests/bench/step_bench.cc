#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "tests/bench/benchmarks.h"
#include "tests/bench/torch_server.h"
#include "tests/testing/process_memory.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

// A case of tests/peers/torch_peer.py with its optimizer, and the most that our
// step may take of PyTorch's.
struct StepCase {
  const char* name;
  double goal;
  bool in_smoke = false;
  // Of the first losses, relative. With Relu behind batch normalisation float32
  // alone moves PyTorch's own by 1e-2 (CHAOTIC_CASES there).
  double loss_tolerance = 1e-4;
};
constexpr StepCase kCases[] = {
    {"mlp-sgd", 1.0, /*in_smoke=*/true},
    {"mlp-adam", 1.0},
    {"lenet-sgd", 0.9},
    {"lenet-adam", 0.9},
    {"resnet18-momentum", 1.0, /*in_smoke=*/false, /*loss_tolerance=*/2e-2},
    {"gpt-adam", 1.0},
    {"lstm-adam", 1.0},
    {"dlrm-sgd", 0.8, /*in_smoke=*/true},
    {"dlrm-adagrad", 0.8},
};

constexpr int kVerifiedSteps = 5;
// Processes of each side: PyTorch's peaks differ by as much as half.
constexpr int kMemoryRepetitions = 5;
constexpr double kMemoryGoal = 0.8;
// The time that one side runs before it is the other's turn.
constexpr double kTurnMilliseconds = 400;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// One case on both sides, with the same numbers of threads.
class Contest {
 public:
  static absl::StatusOr<std::unique_ptr<Contest>> Create(
      const std::string& name, bool small);

  const std::string& version() const { return torch_->version(); }
  // The losses of the first steps are equal.
  absl::Status Verify(double tolerance);
  absl::Status Repeat(Report* report);
  // The ratio of the sides' better numbers of threads.
  void Compare(double goal, Report* report) const;
  absl::Status CompareMemory(bool small, Report* report) const;

 private:
  explicit Contest(std::string name) : name_(std::move(name)) {}
  absl::StatusOr<std::vector<TorchServer::Step>> RunOurs(size_t which,
                                                         int64_t steps);
  std::string Series(absl::string_view side, size_t which) const {
    return absl::StrCat(name_, " ", side, ", ", which + 1,
                        which == 0 ? " thread" : " threads");
  }
  // Name of the series with the lower median.
  std::string Better(absl::string_view side, const Report& report) const;

  const std::string name_;
  TempDir dir_;
  std::unique_ptr<TorchServer> torch_;
  std::vector<std::unique_ptr<StepRunner>> ours_;  // by threads - 1
  std::vector<int64_t> done_;                      // steps, likewise
  int64_t turn_steps_ = 1;
};

absl::StatusOr<std::unique_ptr<Contest>> Contest::Create(
    const std::string& name, bool small) {
  std::unique_ptr<Contest> contest(new Contest(name));
  SYNCLINE_ASSIGN_OR_RETURN(
      contest->torch_, TorchServer::Start(name, contest->dir_.path(), small));
  const bool both = !small && std::thread::hardware_concurrency() >= 2;
  const int threads_max = both ? 2 : 1;
  for (int threads = 1; threads <= threads_max; ++threads) {
    StepRunner::Options options = contest->torch_->options();
    options.threads = threads;
    SYNCLINE_ASSIGN_OR_RETURN(auto runner, StepRunner::Create(options));
    contest->ours_.push_back(std::move(runner));
    contest->done_.push_back(0);
  }
  return contest;
}

absl::StatusOr<std::vector<TorchServer::Step>> Contest::RunOurs(size_t which,
                                                                int64_t steps) {
  std::vector<TorchServer::Step> results(steps);
  for (TorchServer::Step& step : results) {
    const int64_t data = done_[which]++ % torch_->options().steps;
    const absl::Time begin = absl::Now();
    SYNCLINE_ASSIGN_OR_RETURN(step.loss, ours_[which]->Step(data));
    step.milliseconds = absl::ToDoubleMilliseconds(absl::Now() - begin);
  }
  return results;
}

absl::Status Contest::Verify(double tolerance) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto theirs, torch_->Run(1, kVerifiedSteps));
  for (size_t which = 0; which < ours_.size(); ++which) {
    SYNCLINE_ASSIGN_OR_RETURN(const auto ours, RunOurs(which, kVerifiedSteps));
    for (int i = 0; i < kVerifiedSteps; ++i) {
      const double difference = std::abs(ours[i].loss - theirs[i].loss);
      if (difference <= tolerance * std::abs(theirs[i].loss)) continue;
      return absl::InternalError(
          absl::StrCat(name_, ": the loss of step ", i, " is ", ours[i].loss,
                       ", but PyTorch's ", theirs[i].loss));
    }
  }
  const double took = theirs.back().milliseconds;
  turn_steps_ =
      std::clamp<int64_t>(std::lround(kTurnMilliseconds / took), 3, 200);
  return absl::OkStatus();
}

absl::Status Contest::Repeat(Report* report) {
  const auto add = [&](const std::string& series,
                       const std::vector<TorchServer::Step>& steps) {
    std::vector<double> times;
    for (const auto& step : steps) times.push_back(step.milliseconds);
    report->Add(series, "ms/step", Median(times));
  };
  for (size_t which = 0; which < ours_.size(); ++which) {
    SYNCLINE_ASSIGN_OR_RETURN(const auto ours, RunOurs(which, turn_steps_));
    add(Series("ours", which), ours);
    SYNCLINE_ASSIGN_OR_RETURN(
        const auto theirs,
        torch_->Run(static_cast<int>(which) + 1, turn_steps_));
    add(Series("PyTorch", which), theirs);
  }
  return absl::OkStatus();
}

std::string Contest::Better(absl::string_view side,
                            const Report& report) const {
  std::string best = Series(side, 0);
  for (size_t which = 1; which < ours_.size(); ++which) {
    const std::string series = Series(side, which);
    if (report.Median(series) < report.Median(best)) best = series;
  }
  return best;
}

void Contest::Compare(double goal, Report* report) const {
  report->AddRatio(name_ + " ours / PyTorch", Better("ours", *report),
                   Better("PyTorch", *report), AtMost(goal));
}

absl::Status Contest::CompareMemory(bool small, Report* report) const {
  const auto add = [&](absl::string_view side,
                       const std::vector<std::string>& argv) -> absl::Status {
    SYNCLINE_ASSIGN_OR_RETURN(const std::string output, OutputOf(argv));
    for (const absl::string_view line : absl::StrSplit(output, '\n')) {
      double bytes = 0;
      if (!absl::StartsWith(line, "bytes ") ||
          !absl::SimpleAtod(line.substr(6), &bytes)) {
        continue;
      }
      report->Add(absl::StrCat(name_, " ", side, ", resident"), "MiB",
                  bytes / kMiB);
      return absl::OkStatus();
    }
    return absl::InternalError(absl::StrCat(argv[0], " says no bytes"));
  };
  const StepRunner::Options& o = torch_->options();
  std::vector<std::string> ours = {
      BinaryDir() + "/../tests/peer_steps",
      "--memory",
      "--model",
      o.model,
      "--batches",
      o.batches,
      "--steps",
      absl::StrCat(o.steps),
      "--batch-size",
      absl::StrCat(o.batch_size),
      "--optimizer",
      name_.substr(name_.rfind('-') + 1),
      "--loss",
      o.loss == LossSpec::SIGMOID_CROSS_ENTROPY ? "sigmoid" : "softmax"};
  for (const std::string& table : o.tables) {
    ours.insert(ours.end(), {"--table", table});
  }
  std::vector<std::string> theirs = {
      "/usr/bin/python3", "-W",
      "ignore",           SourceDir() + "/tests/peers/torch_peer.py",
      "--memory",         name_};
  if (small) theirs.push_back("--small");
  for (int i = 0; i < (small ? 1 : kMemoryRepetitions); ++i) {
    SYNCLINE_RETURN_IF_ERROR(add("ours", ours));
    SYNCLINE_RETURN_IF_ERROR(add("PyTorch", theirs));
  }
  report->AddRatio(name_ + " resident, ours / PyTorch",
                   name_ + " ours, resident", name_ + " PyTorch, resident",
                   AtMost(kMemoryGoal));
  return absl::OkStatus();
}

}  // namespace

absl::Status RunStepBench(const BenchOptions& options, Report* report) {
  for (const StepCase& entry : kCases) {
    if (!absl::StrContains(entry.name, options.only)) continue;
    if (options.smoke && !entry.in_smoke) continue;
    SYNCLINE_ASSIGN_OR_RETURN(const auto contest,
                              Contest::Create(entry.name, options.smoke));
    report->Set("PyTorch", contest->version());
    SYNCLINE_RETURN_IF_ERROR(contest->Verify(entry.loss_tolerance));
    for (int i = 0; i < options.repetitions; ++i) {
      SYNCLINE_RETURN_IF_ERROR(contest->Repeat(report));
    }
    contest->Compare(entry.goal, report);
    SYNCLINE_RETURN_IF_ERROR(contest->CompareMemory(options.smoke, report));
  }
  return absl::OkStatus();
}

}  // namespace syncline

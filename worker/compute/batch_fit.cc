#include "worker/compute/batch_fit.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/system/memory_claim.h"

namespace syncline::worker {

int64_t LargestThatFits(int64_t n_max, absl::FunctionRef<bool(int64_t)> fits) {
  int64_t good = 0;
  int64_t bad = n_max + 1;
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

namespace {

constexpr char kNothingFits[] =
    "not even one sample a batch would fit; train a smaller model, or give "
    "this worker more memory";

// Of an executor that only evaluates.
std::string DescribeEvaluationFit(
    const Executor::Options& options,
    absl::FunctionRef<bool(const Executor::Options&)> fits) {
  Executor::Options tried = options;
  const int64_t evaluated =
      LargestThatFits(options.eval_batch_size, [&](int64_t samples) {
        tried.eval_batch_size = samples;
        return fits(tried);
      });
  if (evaluated == 0) return kNothingFits;
  if (evaluated == options.eval_batch_size) {
    return "try again: it would fit now";
  }
  return absl::StrCat("training.eval_batch_size: ", evaluated, " would fit");
}

}  // namespace

std::string DescribeFit(std::shared_ptr<const Model> model,
                        const TrainingGraph& training,
                        const Executor::Options& options,
                        uint64_t available_bytes) {
  const uint64_t room =
      available_bytes - std::min(available_bytes, kMemoryKeptFreeBytes);
  const auto fits = [&](const Executor::Options& tried) {
    const auto plan = Executor::Plan(model, training, tried);
    return plan.ok() && static_cast<uint64_t>(plan->memory_bytes()) <= room;
  };
  if (!options.trains) return DescribeEvaluationFit(options, fits);
  const int64_t part_max =
      (options.batch_size + options.micro_batches - 1) / options.micro_batches;
  Executor::Options tried = options;
  // A batch in several parts lends no gradients' memory to activations, so a
  // part that fits there fits as a whole batch, too.
  tried.micro_batches = 2;
  tried.eval_batch_size = 0;
  const int64_t part = LargestThatFits(part_max, [&](int64_t samples) {
    tried.batch_size = 2 * samples;
    return fits(tried);
  });
  if (part == 0) return kNothingFits;
  std::string settings;
  if (part < part_max) {
    settings = absl::StrCat(
        "training.micro_batches: ", (options.batch_size + part - 1) / part,
        " or training.batch_size: ", part);
  }
  tried.batch_size = 2 * part;
  const int64_t evaluated =
      LargestThatFits(options.eval_batch_size, [&](int64_t samples) {
        tried.eval_batch_size = samples;
        return fits(tried);
      });
  if (evaluated < options.eval_batch_size) {
    absl::StrAppend(
        &settings, settings.empty() ? "" : ", with ",
        "training.eval_batch_size: ", std::max<int64_t>(evaluated, 1));
  }
  // Other processes have given memory back since.
  if (settings.empty()) return "try again: it would fit now";
  return absl::StrCat(settings, " would fit");
}

}  // namespace syncline::worker

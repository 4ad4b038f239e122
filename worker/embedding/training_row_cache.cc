#include "worker/embedding/training_row_cache.h"

#include <algorithm>
#include <limits>

#include "absl/status/statusor.h"
#include "common/base/check.h"
#include "common/base/element_type.h"
#include "common/update/update_spec.h"

namespace syncline::worker {
std::optional<TrainingRowCache::Options> TrainingRowCache::OptionsOf(
    const JobSpec& spec, const RegimeSchedule& regimes, int table, size_t dim,
    int64_t total_clocks) {
  const TableSpec& of_table = spec.tables(table);
  if (of_table.cache_rows() == 0 || of_table.cache_clocks() == 0) return {};
  const absl::StatusOr<OptimizerParams> optimizer =
      ReadTableOptimizer(spec, table);
  SYNCLINE_CHECK(optimizer.ok() && optimizer->kind == OptimizerKind::kSgd);
  Options options;
  options.rows_max = of_table.cache_rows();
  options.dim = dim;
  options.clocks = of_table.cache_clocks();
  options.optimizer = *optimizer;
  options.rule.learning_rate =
      LearningRateOf(spec.learning_rate(), total_clocks);
  options.rule.regimes = regimes;
  return options;
}

TrainingRowCache::TrainingRowCache(const Options& options)
    : options_(options),
      optimizer_(options.optimizer, options.dim),
      cache_(options.rows_max, options.dim, options.clocks) {}

int64_t TrainingRowCache::OldestAsOf(int64_t clock) const {
  const std::optional<int64_t> bound = options_.rule.regimes.At(clock).bound();
  return bound.has_value() ? clock - *bound
                           : std::numeric_limits<int64_t>::min();
}

void TrainingRowCache::Select(int64_t clock, const RowBatch* current,
                              bool early, RowBatch* next) {
  due_.clear();
  const int64_t oldest = OldestAsOf(clock);
  next->WantWhen([&](size_t i) {
    const int64_t key = next->keys()[i];
    const bool pushed = current != nullptr && current->Reads(key);
    const float* const row = cache_.Find(key, clock, oldest);
    if (row == nullptr) {
      return early && !pushed ? RowBatch::When::kEarly : RowBatch::When::kLater;
    }
    if (pushed) {
      due_.push_back(static_cast<uint32_t>(i));
    } else {
      std::copy_n(row, options_.dim, next->value(i));
    }
    return RowBatch::When::kNever;
  });
}

void TrainingRowCache::Update(int64_t clock, uint64_t samples,
                              const RowBatch& current, RowBatch* next) {
  const ElementType wire_type = options_.rule.regimes.At(clock).wire_type;
  gradients_.clear();
  rows_.clear();
  for (size_t i = 0; samples > 0 && i < current.keys().size(); ++i) {
    const float* const gradient = current.gradient(i);
    float* const row = cache_.Own(current.keys()[i]);
    // The servers drop such a row's gradient, or fail the job.
    if (row == nullptr || !AllFiniteAs(wire_type, gradient, options_.dim)) {
      continue;
    }
    gradients_.push_back(gradient);
    rows_.push_back(row);
  }
  if (!rows_.empty()) {
    optimizer_.Apply(options_.rule.StepAt(clock, samples), rows_.size(),
                     gradients_.data(), rows_.data());
  }
  for (const uint32_t i : due_) {
    const float* const row = cache_.Own(next->keys()[i]);
    SYNCLINE_CHECK(row != nullptr);
    std::copy_n(row, options_.dim, next->value(i));
  }
  due_.clear();
}

void TrainingRowCache::Keep(int64_t clock, RowBatch* rows) {
  for (const uint32_t i : rows->wanted()) {
    cache_.Put(rows->keys()[i], clock, rows->value(i), rows->as_of(i));
  }
}

}  // namespace syncline::worker

#include "worker/embedding/training_row_cache.h"

#include <algorithm>
#include <limits>

#include "common/base/check.h"
#include "common/wire/wire_element_type.h"

namespace syncline::worker {
namespace {

// The enumerators are those of the proto, in its order.
template <auto ours, auto theirs>
constexpr bool kSame = static_cast<int>(ours) == static_cast<int>(theirs);
using Ours = LearningRate::Schedule;
using Theirs = LearningRateSpec;
static_assert(kSame<Ours::kConstant, Theirs::CONSTANT>);
static_assert(kSame<Ours::kStep, Theirs::STEP>);
static_assert(kSame<Ours::kCosine, Theirs::COSINE>);
static_assert(kSame<Ours::kLinearWarmup, Theirs::LINEAR_WARMUP>);
static_assert(kSame<Ours::kWarmupLinearDecay, Theirs::WARMUP_LINEAR_DECAY>);
static_assert(kSame<Ours::kOneCycle, Theirs::ONE_CYCLE>);
static_assert(kSame<Ours::kRangeTest, Theirs::RANGE_TEST>);

}  // namespace

LearningRate LearningRateOf(const LearningRateSpec& spec,
                            int64_t total_clocks) {
  LearningRate rate;
  rate.schedule = static_cast<Ours>(spec.schedule());
  rate.base = spec.base();
  rate.step_clocks = spec.step_clocks();
  rate.gamma = spec.gamma();
  rate.warmup_clocks = spec.warmup_clocks();
  rate.total_clocks =
      spec.total_clocks() > 0 ? spec.total_clocks() : total_clocks;
  rate.start = spec.start();
  rate.final = spec.final();
  return rate;
}

std::optional<TrainingRowCache::Options> TrainingRowCache::OptionsOf(
    const JobSpec& spec, int table, size_t dim, int64_t total_clocks) {
  const TableSpec& of_table = spec.tables(table);
  if (of_table.cache_rows() == 0 || of_table.cache_clocks() == 0) return {};
  SYNCLINE_CHECK(of_table.optimizer().kind() == OptimizerSpec::SGD);
  Options options;
  options.rows_max = of_table.cache_rows();
  options.dim = dim;
  options.clocks = of_table.cache_clocks();
  if (spec.consistency().mode() == ConsistencySpec::BOUNDED_STALENESS) {
    options.staleness_bound = spec.consistency().staleness_bound();
  }
  options.optimizer.kind = OptimizerKind::kSgd;
  options.optimizer.weight_decay = of_table.optimizer().weight_decay();
  options.optimizer.clip_value = spec.optimizer().clip_value();
  options.learning_rate = LearningRateOf(spec.learning_rate(), total_clocks);
  options.wire_type = ElementTypeOf(spec.wire_type());
  return options;
}

TrainingRowCache::TrainingRowCache(const Options& options)
    : options_(options),
      cache_(options.rows_max, options.dim, options.clocks) {}

int64_t TrainingRowCache::OldestAsOf(int64_t clock) const {
  return options_.staleness_bound.has_value()
             ? clock - *options_.staleness_bound
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
  const OptimizerStep step = {
      .learning_rate = static_cast<float>(options_.learning_rate.At(clock)),
      .gradient_scale = static_cast<float>(
          1.0 / static_cast<double>(std::max<uint64_t>(samples, 1)))};
  for (size_t i = 0; samples > 0 && i < current.keys().size(); ++i) {
    const int64_t key = current.keys()[i];
    const float* const gradient = current.gradient(i);
    float* const row = cache_.Own(key);
    // The servers drop such a row's gradient, or fail the job.
    if (row == nullptr ||
        !AllFiniteAs(options_.wire_type, gradient, options_.dim)) {
      continue;
    }
    ApplyOptimizer(options_.optimizer, step, gradient, row, nullptr,
                   options_.dim);
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

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/check.h"
#include "common/base/random.h"
#include "worker/data/dataset.h"

namespace syncline {
namespace {

// Keeps the shuffle's random numbers apart from those of other users of the
// job's seed.
constexpr uint64_t kShuffleStream = 0x73687566666c65;  // "shuffle"

// Fisher and Yates; Knuth, The Art of Computer Programming 2, algorithm P.
void Shuffle(uint64_t seed, std::vector<int64_t>* order) {
  Random random(seed);
  for (size_t i = order->size(); i > 1; --i) {
    std::swap((*order)[i - 1], (*order)[random.Below(i)]);
  }
}

}  // namespace

BatchPlan::BatchPlan(const Options& options) : options_(options) {
  SYNCLINE_CHECK(options.sample_count >= 0 && options.batch_size > 0);
  SYNCLINE_CHECK(options.rank < options.workers);
  const int64_t per_step = options.workers * options.batch_size;
  steps_per_epoch_ = (options.sample_count + per_step - 1) / per_step;
}

absl::Span<const int64_t> BatchPlan::Indices(int64_t epoch, int64_t step) {
  SYNCLINE_CHECK(epoch >= 0 && step >= 0 && step < steps_per_epoch_);
  // The epoch starts from the file order, not from the last epoch's, so that it
  // does not matter which epochs were asked for before.
  if (permuted_epoch_ != epoch && (options_.shuffle || order_.empty())) {
    order_.resize(options_.sample_count);
    std::iota(order_.begin(), order_.end(), int64_t{0});
    if (options_.shuffle) {
      Shuffle(SeedFor(SeedFor(options_.seed, kShuffleStream), epoch), &order_);
    }
  }
  permuted_epoch_ = epoch;
  const int64_t begin =
      std::min(options_.sample_count,
               (step * options_.workers + options_.rank) * options_.batch_size);
  const int64_t end =
      std::min(options_.sample_count, begin + options_.batch_size);
  return absl::MakeConstSpan(order_).subspan(begin, end - begin);
}

}  // namespace syncline

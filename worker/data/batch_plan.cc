#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/check.h"
#include "common/base/random.h"
#include "worker/data/dataset.h"

namespace syncline::worker {
namespace {

// Keeps the shuffle's random numbers apart from those of other users of the
// job's seed.
constexpr uint64_t kShuffleStream = 0x73687566666c65;  // "shuffle"

// Of windows within an epoch's.
constexpr uint64_t kWindowStream = 0x77696e646f77;  // "window"

// Fisher and Yates; Knuth, The Art of Computer Programming 2, algorithm P.
void Shuffle(uint64_t seed, std::vector<int64_t>* order) {
  Random random(seed);
  for (size_t i = order->size(); i > 1; --i) {
    std::swap((*order)[i - 1], (*order)[random.Below(i)]);
  }
}

void Append(const std::vector<SampleRange>& from,
            std::vector<SampleRange>* to) {
  to->insert(to->end(), from.begin(), from.end());
}

// Samples by bucket.
std::vector<int64_t> BucketSizes(absl::Span<const uint8_t> buckets) {
  std::vector<int64_t> sizes;
  for (const uint8_t bucket : buckets) {
    if (sizes.size() <= bucket) sizes.resize(bucket + 1);
    ++sizes[bucket];
  }
  return sizes;
}

}  // namespace

BatchPlan::BatchPlan(const Options& options) : options_(options) {
  SYNCLINE_CHECK(options.sample_count >= 0 && options.batch_size > 0 &&
                 options.global_batch >= 0);
  SYNCLINE_CHECK(options.rank < options.workers);
  std::vector<int64_t> counts = {options.sample_count};
  if (!options.buckets.empty()) {
    SYNCLINE_CHECK(options.window_samples == 0 &&
                   static_cast<int64_t>(options.buckets.size()) ==
                       options.sample_count);
    counts = BucketSizes(options.buckets);
  }
  for (const int64_t count : counts) {
    steps_per_epoch_ += (count + samples_per_step() - 1) / samples_per_step();
  }
}

void BatchPlan::ShareAmong(uint32_t workers, uint32_t rank) {
  SYNCLINE_CHECK(rank < workers);
  options_.global_batch = samples_per_step();
  options_.workers = workers;
  options_.rank = rank;
}

SampleRange BatchPlan::PositionsOf(int64_t step) const {
  if (!options_.buckets.empty()) {
    return {step_begins_[step], step_begins_[step + 1] - step_begins_[step]};
  }
  const int64_t first = step * samples_per_step();
  return {first, std::min(samples_per_step(), options_.sample_count - first)};
}

SampleRange BatchPlan::ShareOf(int64_t step) const {
  const SampleRange all = PositionsOf(step);
  if (options_.global_batch > 0) {
    const int64_t begin = all.count * options_.rank / options_.workers;
    const int64_t end = all.count * (options_.rank + 1) / options_.workers;
    return {all.first + begin, end - begin};
  }
  const int64_t before =
      std::min(all.count, options_.rank * options_.batch_size);
  return {all.first + before,
          std::min(options_.batch_size, all.count - before)};
}

absl::Span<const int64_t> BatchPlan::Indices(int64_t epoch, int64_t step) {
  SYNCLINE_CHECK(epoch >= 0 && step >= 0 && step < steps_per_epoch_);
  if (options_.shuffle || !options_.buckets.empty()) OrderEpoch(epoch);
  const auto [begin, count] = ShareOf(step);
  if (!options_.shuffle && options_.buckets.empty()) {
    indices_.resize(count);
    std::iota(indices_.begin(), indices_.end(), begin);
    return indices_;
  }
  if (options_.window_samples == 0) {
    return absl::MakeConstSpan(order_).subspan(begin, count);
  }
  const int64_t window_samples = pieces_per_window() * kPieceSamples;
  indices_.clear();
  for (int64_t at = begin; at < begin + count; ++at) {
    EnterWindow(epoch, at / window_samples);
    indices_.push_back(window_order_[at % window_samples]);
  }
  return indices_;
}

// The epoch starts from the file order, not from the last epoch's, so that it
// does not matter which epochs were asked for before.
void BatchPlan::OrderEpoch(int64_t epoch) {
  if (permuted_epoch_ == epoch) return;
  permuted_epoch_ = epoch;
  const bool windows = options_.window_samples > 0;
  LeaveWindow(/*next=*/-1);
  window_ = -1;
  order_.resize(windows ? options_.sample_count / kPieceSamples
                        : options_.sample_count);
  std::iota(order_.begin(), order_.end(), int64_t{0});
  if (options_.shuffle) {
    Shuffle(SeedFor(SeedFor(options_.seed, kShuffleStream), epoch), &order_);
  }
  if (!options_.buckets.empty()) GroupByBucket();
  if (windows && options_.sample_count % kPieceSamples > 0) {
    order_.push_back(static_cast<int64_t>(order_.size()));
  }
}

void BatchPlan::GroupByBucket() {
  std::vector<std::vector<int64_t>> waiting(
      BucketSizes(options_.buckets).size());
  std::vector<int64_t> grouped;
  grouped.reserve(order_.size());
  step_begins_.assign(1, 0);
  const auto close_step = [&](std::vector<int64_t>* samples) {
    if (samples->empty()) return;
    grouped.insert(grouped.end(), samples->begin(), samples->end());
    step_begins_.push_back(static_cast<int64_t>(grouped.size()));
    samples->clear();
  };
  for (const int64_t sample : order_) {
    std::vector<int64_t>& samples = waiting[options_.buckets[sample]];
    samples.push_back(sample);
    if (static_cast<int64_t>(samples.size()) == samples_per_step()) {
      close_step(&samples);
    }
  }
  for (std::vector<int64_t>& samples : waiting) close_step(&samples);
  order_ = std::move(grouped);
}

std::vector<SampleRange> BatchPlan::WindowPieces(int64_t window) const {
  std::vector<SampleRange> pieces;
  const auto count = static_cast<int64_t>(order_.size());
  const int64_t end = std::min(count, (window + 1) * pieces_per_window());
  for (int64_t i = window * pieces_per_window(); i < end; ++i) {
    const int64_t first = order_[i] * kPieceSamples;
    pieces.push_back(
        {first, std::min(kPieceSamples, options_.sample_count - first)});
  }
  return pieces;
}

void BatchPlan::LeaveWindow(int64_t next) {
  if (window_ < 0) return;
  Append(WindowPieces(window_), &moves_.past);
  // The window that was announced to be read ahead; leased data may skip it.
  if (next != window_ + 1) Append(WindowPieces(window_ + 1), &moves_.past);
}

void BatchPlan::EnterWindow(int64_t epoch, int64_t window) {
  if (window_ == window) return;
  LeaveWindow(window);
  const std::vector<SampleRange> pieces = WindowPieces(window);
  if (window_ < 0 || window != window_ + 1) Append(pieces, &moves_.soon);
  Append(WindowPieces(window + 1), &moves_.soon);
  window_ = window;
  window_order_.clear();
  for (const SampleRange& piece : pieces) {
    for (int64_t i = 0; i < piece.count; ++i) {
      window_order_.push_back(piece.first + i);
    }
  }
  Shuffle(
      SeedFor(SeedFor(SeedFor(options_.seed, kWindowStream), epoch), window),
      &window_order_);
}

BatchPlan::Moves BatchPlan::TakeMoves() { return std::exchange(moves_, {}); }

}  // namespace syncline::worker

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

// Of windows within an epoch's.
constexpr uint64_t kWindowStream = 0x77696e646f77;  // "window"

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
  const int64_t begin =
      std::min(options_.sample_count,
               (step * options_.workers + options_.rank) * options_.batch_size);
  const int64_t end =
      std::min(options_.sample_count, begin + options_.batch_size);
  if (!options_.shuffle) {
    indices_.resize(end - begin);
    std::iota(indices_.begin(), indices_.end(), begin);
    return indices_;
  }
  OrderEpoch(epoch);
  if (options_.window_samples == 0) {
    return absl::MakeConstSpan(order_).subspan(begin, end - begin);
  }
  const int64_t window_samples = pieces_per_window() * kPieceSamples;
  indices_.clear();
  for (int64_t at = begin; at < end; ++at) {
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
  if (window_ >= 0) moves_.past = WindowPieces(window_);
  window_ = -1;
  order_.resize(windows ? options_.sample_count / kPieceSamples
                        : options_.sample_count);
  std::iota(order_.begin(), order_.end(), int64_t{0});
  Shuffle(SeedFor(SeedFor(options_.seed, kShuffleStream), epoch), &order_);
  if (windows && options_.sample_count % kPieceSamples > 0) {
    order_.push_back(static_cast<int64_t>(order_.size()));
  }
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

void BatchPlan::EnterWindow(int64_t epoch, int64_t window) {
  if (window_ == window) return;
  const auto add = [](std::vector<SampleRange> from,
                      std::vector<SampleRange>* to) {
    to->insert(to->end(), from.begin(), from.end());
  };
  const std::vector<SampleRange> pieces = WindowPieces(window);
  if (window_ >= 0) add(WindowPieces(window_), &moves_.past);
  if (window_ < 0 || window != window_ + 1) add(pieces, &moves_.soon);
  add(WindowPieces(window + 1), &moves_.soon);
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

}  // namespace syncline

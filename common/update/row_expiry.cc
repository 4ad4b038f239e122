#include "common/update/row_expiry.h"

#include <algorithm>
#include <cmath>

namespace syncline {
namespace {

constexpr int kPowers = 64;
constexpr int kPoints = 64;

}  // namespace

RowExpiry::RowExpiry(const ExpiryOptions& options)
    : options_(options),
      by_age_(options.unseen_clocks > 0 ||
              options.unseen_time > absl::ZeroDuration()),
      by_score_(options.min_score > 0) {
  for (int i = 0; i < kPowers; ++i) {
    powers_.push_back(std::pow(options.decay, static_cast<float>(i)));
  }
}

RowExpiry::Verdict RowExpiry::Judge(float score, uint32_t row_clock,
                                    uint32_t clock, uint32_t too_old) const {
  if (by_age_) {
    const bool unseen = options_.unseen_clocks > 0 && clock > row_clock &&
                        clock - row_clock > options_.unseen_clocks;
    if (unseen || row_clock < too_old) return Verdict::kTooOld;
  }
  if (by_score_ && ScoreAt(score, row_clock, clock) < options_.min_score) {
    return Verdict::kTooLowScore;
  }
  return Verdict::kLives;
}

int64_t RowExpiry::SweepClocks() const {
  constexpr int64_t kSweepsPerLife = 16;
  int64_t clocks = kSweepsPerLife;  // by time alone: clocks say little
  if (options_.unseen_clocks > 0) {
    clocks = options_.unseen_clocks / kSweepsPerLife;
  }
  if (by_score_) clocks = std::min(clocks, options_.decay_clocks);
  return std::max<int64_t>(1, clocks);
}

// Decay comes at multiples of decay_clocks, so that rows pushed at different
// clocks of one period are judged alike.
float RowExpiry::ScoreAt(float score, uint32_t row_clock,
                         uint32_t clock) const {
  if (!by_score_ || clock <= row_clock) return score;
  const int64_t periods =
      clock / options_.decay_clocks - row_clock / options_.decay_clocks;
  if (periods < kPowers) return score * powers_[periods];
  return score * std::pow(options_.decay, static_cast<float>(periods));
}

void ClockHistory::Observe(uint32_t clock, absl::Time now) {
  if (unseen_time_ == absl::ZeroDuration()) return;
  if (points_.empty() ||
      (clock > points_.back().clock &&
       now - points_.back().time >= unseen_time_ / kPoints)) {
    points_.push_back({now, clock});
  }
  while (!points_.empty() && points_.front().time <= now - unseen_time_) {
    too_old_ = points_.front().clock;
    points_.pop_front();
  }
}

ClockHistory::Past ClockHistory::Export(absl::Time now) const {
  Past past;
  past.too_old = too_old_;
  for (const Point& point : points_) {
    past.points.push_back({now - point.time, point.clock});
  }
  return past;
}

void ClockHistory::Import(const Past& past, absl::Time now) {
  too_old_ = past.too_old;
  points_.clear();
  for (const Past::Point& point : past.points) {
    points_.push_back({now - point.age, point.clock});
  }
}

}  // namespace syncline

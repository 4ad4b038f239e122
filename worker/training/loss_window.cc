#include "worker/training/loss_window.h"

#include <cmath>
#include <cstddef>

namespace syncline::worker {
namespace {

// Even. Losses of neighbouring steps that have something in common do so in
// their bins' means no more.
constexpr size_t kBinsMax = 64;
constexpr size_t kBinsMin = 5;

}  // namespace

void LossWindow::Add(double seconds, double loss) {
  now_ += seconds;
  if (bins_.empty() || bins_.back().steps >= steps_per_bin_) {
    if (bins_.size() == kBinsMax) {
      for (size_t i = 0; i < kBinsMax / 2; ++i) {
        const Bin& a = bins_[2 * i];
        const Bin& b = bins_[2 * i + 1];
        bins_[i] = {a.steps + b.steps, a.time + b.time, a.loss + b.loss};
      }
      bins_.resize(kBinsMax / 2);
      steps_per_bin_ *= 2;
    }
    bins_.emplace_back();
  }
  Bin& bin = bins_.back();
  ++bin.steps;
  bin.time += now_;
  bin.loss += loss;
}

// A bin's mean has the weight of its steps, so the residuals' mean square is
// the variance of one step's loss.
LossTrend LossWindow::Trend() const {
  LossTrend trend;
  if (bins_.size() < kBinsMin) return trend;
  double steps = 0;
  double time = 0;
  double loss = 0;
  for (const Bin& bin : bins_) {
    steps += static_cast<double>(bin.steps);
    time += bin.time;
    loss += bin.loss;
  }
  time /= steps;
  loss /= steps;
  double tt = 0;
  double tl = 0;
  for (const Bin& bin : bins_) {
    const auto n = static_cast<double>(bin.steps);
    tt += n * (bin.time / n - time) * (bin.time / n - time);
    tl += n * (bin.time / n - time) * (bin.loss / n - loss);
  }
  if (!(tt > 0)) return trend;
  const double slope = tl / tt;
  double squares = 0;
  for (const Bin& bin : bins_) {
    const auto n = static_cast<double>(bin.steps);
    const double off = bin.loss / n - loss - slope * (bin.time / n - time);
    squares += n * off * off;
  }
  trend.known = true;
  trend.per_second = -slope;
  trend.freedom = static_cast<int>(bins_.size()) - 2;
  trend.scatter = std::sqrt(squares / trend.freedom);
  trend.error = trend.scatter / std::sqrt(tt);
  trend.last = loss + slope * (now_ - time);
  return trend;
}

}  // namespace syncline::worker

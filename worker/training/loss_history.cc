#include "worker/training/loss_history.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/unsigned_nan.h"

namespace syncline::worker {

void LossHistory::Point::Add(const Point& later) {
  last_clock = later.last_clock;
  samples += later.samples;
  loss_sum += later.loss_sum;
  loss_scale = later.loss_scale;
  took += later.took;
}

void LossHistory::Add(int64_t clock, uint64_t samples, double loss_sum,
                      double loss_scale, absl::Duration took) {
  const Point step = {clock, samples, loss_sum, loss_scale, took};
  if (!points_.empty() && steps_in_last_ < steps_per_point_) {
    points_.back().Add(step);
    ++steps_in_last_;
    return;
  }
  if (points_.size() == points_max_) Thin();
  points_.push_back(step);
  steps_in_last_ = 1;
}

void LossHistory::Thin() {
  for (size_t i = 0; i < points_max_ / 2; ++i) {
    points_[i] = points_[2 * i];
    points_[i].Add(points_[2 * i + 1]);
  }
  points_.resize(points_max_ / 2);
  steps_per_point_ *= 2;
}

std::string LossHistory::Csv(
    const Epochs& epochs,
    const std::function<double(int64_t clock)>& rate) const {
  const bool scales = !points_.empty() && points_.back().loss_scale > 0;
  std::string csv =
      absl::StrCat("clock,epoch,chief_samples,chief_loss,learning_rate",
                   scales ? ",loss_scale" : "", "\n");
  uint64_t samples = 0;
  for (const Point& point : points_) {
    samples += point.samples;
    const int64_t closed = point.last_clock + 1;
    absl::StrAppend(&csv, closed, ",", epochs.DoneAt(closed), ",", samples,
                    ",");
    if (point.samples > 0) {
      absl::StrAppendFormat(
          &csv, "%.9g",
          UnsignedNan(point.loss_sum / static_cast<double>(point.samples)));
    }
    absl::StrAppendFormat(&csv, ",%.7g", rate(point.last_clock));
    if (scales) absl::StrAppendFormat(&csv, ",%.9g", point.loss_scale);
    csv += '\n';
  }
  return csv;
}

std::vector<HistoryPoint> LossHistory::Points(
    const std::function<double(int64_t clock)>& rate, absl::Time end) const {
  std::vector<HistoryPoint> points(points_.size());
  for (size_t i = points_.size(); i-- > 0;) {
    const Point& point = points_[i];
    points[i] = {.clock = point.last_clock + 1,
                 .time = end,
                 .samples = point.samples,
                 .learning_rate = rate(point.last_clock),
                 .loss_scale = point.loss_scale,
                 .seconds = absl::ToDoubleSeconds(point.took)};
    if (point.samples > 0) {
      points[i].loss = point.loss_sum / static_cast<double>(point.samples);
    }
    end -= point.took;
  }
  return points;
}

}  // namespace syncline::worker

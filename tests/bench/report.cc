#include "tests/bench/report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

namespace syncline {
namespace {

struct Spread {
  double median = 0;
  double low = 0;
  double high = 0;
};

Spread SpreadOf(std::vector<double> values) {
  SYNCLINE_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1
                            ? values[middle]
                            : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

// By the median, or where there is an interval by both of its ends.
const char* Verdict(const Goal& goal, double median,
                    const std::optional<Interval>& interval) {
  if (!interval.has_value()) {
    return goal.Reached(median) ? "reached" : "missed";
  }
  const bool low = goal.Reached(interval->low);
  const bool high = goal.Reached(interval->high);
  if (low && high) return "reached";
  return low || high ? "undecided" : "missed";
}

}  // namespace

std::optional<Interval> MedianInterval(std::vector<double> values) {
  // The median is below the k-th smallest value if fewer than k values are
  // below the median: each is with a probability of 1/2.
  constexpr double kTail = 0.025;
  const auto n = static_cast<double>(values.size());
  size_t k = 0;
  double below = 0;
  for (; k < values.size(); ++k) {
    const auto count = static_cast<double>(k);
    below += std::exp(std::lgamma(n + 1) - std::lgamma(count + 1) -
                      std::lgamma(n - count + 1) - n * std::log(2.0));
    if (below > kTail) break;
  }
  if (k == 0) return std::nullopt;
  std::sort(values.begin(), values.end());
  return Interval{values[k - 1], values[values.size() - k]};
}

Report::Report(absl::string_view name, absl::string_view what)
    : name_(name), what_(what) {}

void Report::SetText(absl::string_view key, std::string value) {
  for (auto& [known, current] : circumstances_) {
    if (known == key) {
      current = std::move(value);
      return;
    }
  }
  circumstances_.emplace_back(key, std::move(value));
}

void Report::Add(absl::string_view measurement, absl::string_view unit,
                 double value) {
  const auto known = std::find_if(
      series_.begin(), series_.end(),
      [&](const Series& series) { return series.name == measurement; });
  Series& series =
      known != series_.end()
          ? *known
          : series_.emplace_back(
                Series{std::string(measurement), std::string(unit), {}, {}});
  series.values.push_back(value);
  if (progress_ == nullptr) return;
  *progress_ << absl::StrFormat("%s: %s, %d: %.3g %s\n", name_, measurement,
                                series.values.size(), value, unit)
             << std::flush;
}

void Report::AddScaled(absl::string_view name, absl::string_view unit,
                       absl::string_view measurement, double factor) {
  Series scaled = {std::string(name), std::string(unit), {}, std::nullopt};
  for (const double value : Find(measurement).values) {
    scaled.values.push_back(value * factor);
  }
  series_.push_back(std::move(scaled));
}

void Report::AddRatio(absl::string_view name, absl::string_view numerator,
                      absl::string_view denominator, std::optional<Goal> goal) {
  const std::vector<double>& over = Find(numerator).values;
  const std::vector<double>& under = Find(denominator).values;
  SYNCLINE_CHECK(over.size() == under.size());
  Series ratio = {std::string(name), "", {}, goal};
  for (size_t i = 0; i < over.size(); ++i) {
    ratio.values.push_back(over[i] / under[i]);
  }
  series_.push_back(std::move(ratio));
}

void Report::SetGoal(absl::string_view measurement, const Goal& goal) {
  Find(measurement).goal = goal;
}

void Report::ShowInterval(absl::string_view measurement) {
  Find(measurement).has_interval = true;
}

double Report::Median(absl::string_view name) const {
  return SpreadOf(Find(name).values).median;
}

const Report::Series& Report::Find(absl::string_view name) const {
  for (const Series& series : series_) {
    if (series.name == name) return series;
  }
  SYNCLINE_CHECK(false && "no such measurement");
  return series_.front();
}

std::optional<Interval> Report::IntervalOf(const Series& series) {
  if (!series.has_interval) return std::nullopt;
  return MedianInterval(series.values);
}

std::string Report::ToTable() const {
  std::string out = absl::StrCat(name_, ": ", what_, "\n ");
  for (const auto& [key, value] : circumstances_) {
    absl::StrAppend(&out, " ", key, "=", value);
  }
  absl::StrAppendFormat(&out, "\n  %-32s %12s %12s %12s %3s  %s\n",
                        "measurement", "median", "lowest", "highest", "n",
                        "unit");
  for (const Series& series : series_) {
    const Spread spread = SpreadOf(series.values);
    absl::StrAppendFormat(&out, "  %-32s %12.6g %12.6g %12.6g %3d  %s",
                          series.name, spread.median, spread.low, spread.high,
                          series.values.size(), series.unit);
    const std::optional<Interval> interval = IntervalOf(series);
    if (interval.has_value()) {
      absl::StrAppendFormat(&out, "%smedian at 95%% %.4g .. %.4g",
                            series.unit.empty() ? "" : ", ", interval->low,
                            interval->high);
    }
    if (series.goal.has_value()) {
      absl::StrAppendFormat(
          &out, "%sgoal %s %g: %s",
          series.unit.empty() && !interval.has_value() ? "" : ", ",
          series.goal->kind == Goal::Kind::kAtLeast ? ">=" : "<=",
          series.goal->value, Verdict(*series.goal, spread.median, interval));
    }
    absl::StrAppend(&out, "\n");
  }
  return out;
}

std::string Report::ToJson() const {
  google::protobuf::Struct report;
  auto& fields = *report.mutable_fields();
  fields["benchmark"].set_string_value(name_);
  fields["what"].set_string_value(what_);
  auto& circumstances =
      *fields["circumstances"].mutable_struct_value()->mutable_fields();
  for (const auto& [key, value] : circumstances_) {
    circumstances[key].set_string_value(value);
  }
  auto* measurements = fields["measurements"].mutable_list_value();
  for (const Series& series : series_) {
    const Spread spread = SpreadOf(series.values);
    auto& entry =
        *measurements->add_values()->mutable_struct_value()->mutable_fields();
    entry["name"].set_string_value(series.name);
    entry["unit"].set_string_value(series.unit);
    entry["median"].set_number_value(spread.median);
    entry["lowest"].set_number_value(spread.low);
    entry["highest"].set_number_value(spread.high);
    if (const auto interval = IntervalOf(series); interval.has_value()) {
      entry["median_low"].set_number_value(interval->low);
      entry["median_high"].set_number_value(interval->high);
    }
    for (const double value : series.values) {
      entry["values"].mutable_list_value()->add_values()->set_number_value(
          value);
    }
    if (series.goal.has_value()) {
      entry[series.goal->kind == Goal::Kind::kAtLeast ? "goal_min" : "goal_max"]
          .set_number_value(series.goal->value);
    }
  }
  std::string json;
  SYNCLINE_CHECK(
      google::protobuf::util::MessageToJsonString(report, &json).ok());
  return json;
}

}  // namespace syncline

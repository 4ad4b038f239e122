#ifndef SYNCLINE_TESTS_BENCH_REPORT_H_
#define SYNCLINE_TESTS_BENCH_REPORT_H_

#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace syncline {

// The project's goal for a measurement or ratio.
struct Goal {
  enum class Kind { kAtLeast, kAtMost };
  // NOLINTNEXTLINE(google-explicit-constructor): a number is what is promised.
  Goal(double least) : value(least) {}
  Goal(Kind k, double v) : kind(k), value(v) {}

  bool Reached(double median) const {
    return kind == Kind::kAtLeast ? median >= value : median <= value;
  }

  Kind kind = Kind::kAtLeast;
  double value;
};
inline Goal AtMost(double value) { return {Goal::Kind::kAtMost, value}; }

// A 95% confidence interval of the median of what the values are drawn from,
// whatever its distribution: two of the values, by their order (the sign test).
// Nothing: fewer than six values say too little.
struct Interval {
  double low = 0;
  double high = 0;
};
std::optional<Interval> MedianInterval(std::vector<double> values);

// The measurements of one benchmark. Numbers of one report may be compared with
// each other, and with nothing else: they come from one machine and one run,
// and repetitions of the compared sides are taken in turn. Thread-compatible.
class Report {
 public:
  // `what` says in one sentence what is compared with what.
  Report(absl::string_view name, absl::string_view what);

  // From now on each Add writes a line to `out`, which outlives this: what
  // takes minutes shows that it goes on. Null: nothing is written, as at first.
  void ShowProgress(std::ostream* out) { progress_ = out; }

  // A circumstance: batch size, threads, a hash of the result.
  template <typename T>
  void Set(absl::string_view key, const T& value) {
    SetText(key, absl::StrCat(value));
  }
  // One repetition's value of a measurement, which appears in the order of
  // first use.
  void Add(absl::string_view measurement, absl::string_view unit, double value);
  // A measurement added so far, times `factor`, repetition by repetition, as
  // another one.
  void AddScaled(absl::string_view name, absl::string_view unit,
                 absl::string_view measurement, double factor);
  // numerator / denominator, repetition by repetition, of two measurements
  // added so far.
  void AddRatio(absl::string_view name, absl::string_view numerator,
                absl::string_view denominator,
                std::optional<Goal> goal = std::nullopt);
  // For a measurement added so far.
  void SetGoal(absl::string_view measurement, const Goal& goal);
  // Of a measurement or ratio added so far the report has MedianInterval too,
  // if there is one; its goal is then neither reached nor missed where it lies
  // within the interval. For sides that differ by less than their values vary.
  void ShowInterval(absl::string_view measurement);

  // Median of a measurement or ratio; REQUIRES: it has values.
  double Median(absl::string_view name) const;

  std::string ToTable() const;  // for people; ends in \n
  std::string ToJson() const;   // one object

 private:
  struct Series {
    std::string name;
    std::string unit;
    std::vector<double> values;
    std::optional<Goal> goal;
    bool has_interval = false;
  };
  void SetText(absl::string_view key, std::string value);
  // Nothing: it was not asked for, or there is none.
  static std::optional<Interval> IntervalOf(const Series& series);
  const Series& Find(absl::string_view name) const;
  Series& Find(absl::string_view name) {
    return const_cast<Series&>(std::as_const(*this).Find(name));
  }

  const std::string name_;
  const std::string what_;
  std::vector<std::pair<std::string, std::string>> circumstances_;
  std::vector<Series> series_;
  std::ostream* progress_ = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_BENCH_REPORT_H_

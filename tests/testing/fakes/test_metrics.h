#ifndef SYNCLINE_TESTS_TESTING_FAKES_TEST_METRICS_H_
#define SYNCLINE_TESTS_TESTING_FAKES_TEST_METRICS_H_

// Metrics whose values a test reads. Thread-safe.

#include <atomic>
#include <cstdint>

#include "common/daemon/metrics.h"

namespace syncline::testing {

class TestCounter final : public Counter {
 public:
  void Add(double amount) override { value_ += static_cast<int64_t>(amount); }
  int64_t value() const { return value_; }

 private:
  std::atomic<int64_t> value_{0};
};

class TestGauge final : public Gauge {
 public:
  void Set(double value) override { value_ = static_cast<int64_t>(value); }
  void Add(double amount) override { value_ += static_cast<int64_t>(amount); }
  int64_t value() const { return value_; }

 private:
  std::atomic<int64_t> value_{0};
};

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_FAKES_TEST_METRICS_H_

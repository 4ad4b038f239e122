#ifndef SYNCLINE_COMMON_DAEMON_METRICS_H_
#define SYNCLINE_COMMON_DAEMON_METRICS_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace syncline {

// Handles stay valid as long as the registry. Thread-safe. Keep the handle; a
// lookup takes a lock.
class Counter {
 public:
  virtual ~Counter() = default;
  virtual void Add(double amount = 1) = 0;
};
class Gauge {
 public:
  virtual ~Gauge() = default;
  virtual void Set(double value) = 0;
  virtual void Add(double amount) = 0;
};
class Histogram {
 public:
  virtual ~Histogram() = default;
  virtual void Observe(double value) = 0;
};

// Hides prometheus-cpp (only metrics.cc includes it). Thread-safe.
class MetricsRegistry {
 public:
  using Labels = std::map<std::string, std::string>;
  MetricsRegistry();
  ~MetricsRegistry();

  Counter& AddCounter(const std::string& name, const std::string& help,
                      const Labels& labels = {});
  Gauge& AddGauge(const std::string& name, const std::string& help,
                  const Labels& labels = {});
  Histogram& AddHistogram(const std::string& name, const std::string& help,
                          const Labels& labels, std::vector<double> bounds);
  // 100 us * 2^k, 20 of them.
  static std::vector<double> DurationBounds();
  // Prometheus text format.
  std::string Render() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_DAEMON_METRICS_H_

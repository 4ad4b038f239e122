#ifndef SYNCLINE_COMMON_DAEMON_METRICS_H_
#define SYNCLINE_COMMON_DAEMON_METRICS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/daemon/metrics_catalogue.h"

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

// Where a collector puts the values of counters and gauges that are read when
// they are asked for. One thread at a time.
class MetricSamples {
 public:
  using Labels = std::map<std::string, std::string>;
  virtual ~MetricSamples() = default;
  // REQUIRES: the catalogue has the name, as no histogram, with these labels;
  // no other sample has the same name and labels.
  virtual void Add(const std::string& name, const Labels& labels,
                   double value) = 0;
};

// The metrics of a process. A name, its type, its labels and its help are those
// of the catalogue; another one is an error of the programmer, and aborts.
// Hides prometheus-cpp (only metrics.cc includes it). Thread-safe.
class MetricsRegistry {
 public:
  using Labels = std::map<std::string, std::string>;
  using Collector = std::function<void(MetricSamples*)>;
  // Its destructor takes the collector out: it does not run any more then.
  class Collecting {
   public:
    virtual ~Collecting() = default;
  };

  // `catalogue` outlives the registry.
  explicit MetricsRegistry(
      absl::Span<const MetricInfo> catalogue = MetricsCatalogue());
  ~MetricsRegistry();

  // The same name and labels give the same handle.
  Counter& AddCounter(const std::string& name, const Labels& labels = {});
  Gauge& AddGauge(const std::string& name, const Labels& labels = {});
  Histogram& AddHistogram(const std::string& name, const Labels& labels,
                          std::vector<double> bounds);
  // `collector` runs in each Render, on its thread, one at a time; it must be
  // short and must not use the registry. For series that come and go with what
  // they tell of: one that is not added is not there. Outlived by the registry.
  [[nodiscard]] std::unique_ptr<Collecting> AddCollector(Collector collector);

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

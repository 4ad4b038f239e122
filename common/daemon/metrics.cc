#include "common/daemon/metrics.h"

#include <utility>

#include "common/base/mutex.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace syncline {
namespace {

class PrometheusCounter final : public Counter {
 public:
  explicit PrometheusCounter(prometheus::Counter* counter)
      : counter_(counter) {}
  void Add(double amount) override { counter_->Increment(amount); }

 private:
  prometheus::Counter* const counter_;
};

class PrometheusGauge final : public Gauge {
 public:
  explicit PrometheusGauge(prometheus::Gauge* gauge) : gauge_(gauge) {}
  void Set(double value) override { gauge_->Set(value); }
  void Add(double amount) override { gauge_->Increment(amount); }

 private:
  prometheus::Gauge* const gauge_;
};

class PrometheusHistogram final : public Histogram {
 public:
  explicit PrometheusHistogram(prometheus::Histogram* histogram)
      : histogram_(histogram) {}
  void Observe(double value) override { histogram_->Observe(value); }

 private:
  prometheus::Histogram* const histogram_;
};

}  // namespace

// Prometheus gives the same metric for the same name and labels; so the maps
// give the same handle, and adding one twice does not grow anything.
struct MetricsRegistry::Impl {
  prometheus::Registry registry;
  Mutex mu;
  std::map<prometheus::Counter*, PrometheusCounter> counters
      ABSL_GUARDED_BY(mu);
  std::map<prometheus::Gauge*, PrometheusGauge> gauges ABSL_GUARDED_BY(mu);
  std::map<prometheus::Histogram*, PrometheusHistogram> histograms
      ABSL_GUARDED_BY(mu);
};

MetricsRegistry::MetricsRegistry() : impl_(std::make_unique<Impl>()) {}
MetricsRegistry::~MetricsRegistry() = default;

Counter& MetricsRegistry::AddCounter(const std::string& name,
                                     const std::string& help,
                                     const Labels& labels) {
  prometheus::Counter& counter = prometheus::BuildCounter()
                                     .Name(name)
                                     .Help(help)
                                     .Register(impl_->registry)
                                     .Add(labels);
  MutexLock lock(&impl_->mu);
  return impl_->counters.try_emplace(&counter, &counter).first->second;
}

Gauge& MetricsRegistry::AddGauge(const std::string& name,
                                 const std::string& help,
                                 const Labels& labels) {
  prometheus::Gauge& gauge = prometheus::BuildGauge()
                                 .Name(name)
                                 .Help(help)
                                 .Register(impl_->registry)
                                 .Add(labels);
  MutexLock lock(&impl_->mu);
  return impl_->gauges.try_emplace(&gauge, &gauge).first->second;
}

Histogram& MetricsRegistry::AddHistogram(const std::string& name,
                                         const std::string& help,
                                         const Labels& labels,
                                         std::vector<double> bounds) {
  prometheus::Histogram& histogram = prometheus::BuildHistogram()
                                         .Name(name)
                                         .Help(help)
                                         .Register(impl_->registry)
                                         .Add(labels, std::move(bounds));
  MutexLock lock(&impl_->mu);
  return impl_->histograms.try_emplace(&histogram, &histogram).first->second;
}

std::vector<double> MetricsRegistry::DurationBounds() {
  std::vector<double> bounds;
  double seconds = 100e-6;
  for (int i = 0; i < 20; ++i, seconds *= 2) bounds.push_back(seconds);
  return bounds;
}

std::string MetricsRegistry::Render() const {
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace syncline

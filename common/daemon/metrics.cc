#include "common/daemon/metrics.h"

#include <cstdio>
#include <utility>

#include "common/base/check.h"
#include "common/base/mutex.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace syncline {
namespace {

using Labels = MetricsRegistry::Labels;

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

// The handles of one type. Prometheus gives the same metric for the same name
// and labels; so the map gives the same handle, and adding one twice does not
// grow anything.
template <typename Metric, typename Handle>
class HandlesOf {
 public:
  Handle& For(Metric& metric) {
    return handles_.try_emplace(&metric, &metric).first->second;
  }

 private:
  std::map<Metric*, Handle> handles_;
};

// The entry of the catalogue, which must be of this type and have these labels.
const MetricInfo& InfoOf(absl::Span<const MetricInfo> catalogue,
                         const std::string& name, const Labels& labels) {
  const MetricInfo* const info = FindMetric(catalogue, name);
  if (info == nullptr) std::fprintf(stderr, "metric %s\n", name.c_str());
  SYNCLINE_CHECK(info != nullptr);  // common/daemon/metrics_catalogue.cc
  std::vector<std::string> names;
  for (const auto& label : labels) names.push_back(label.first);
  if (names != LabelNames(*info)) {
    std::fprintf(stderr, "labels of metric %s\n", name.c_str());
  }
  SYNCLINE_CHECK(names == LabelNames(*info));
  return *info;
}

prometheus::MetricType TypeOf(MetricType type) {
  return type == MetricType::kCounter ? prometheus::MetricType::Counter
                                      : prometheus::MetricType::Gauge;
}

class CollectedSamples final : public MetricSamples {
 public:
  explicit CollectedSamples(absl::Span<const MetricInfo> catalogue)
      : catalogue_(catalogue) {}
  void Add(const std::string& name, const Labels& labels,
           double value) override {
    const MetricInfo& info = InfoOf(catalogue_, name, labels);
    SYNCLINE_CHECK(info.type != MetricType::kHistogram);
    prometheus::MetricFamily& family = families_[name];
    if (family.metric.empty()) {
      family.name = name;
      family.help = info.help;
      family.type = TypeOf(info.type);
    }
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    for (const auto& [label, its_value] : labels) {
      metric.label.push_back({label, its_value});
    }
    (info.type == MetricType::kCounter ? metric.counter.value
                                       : metric.gauge.value) = value;
  }
  std::map<std::string, prometheus::MetricFamily> Take() {
    return std::move(families_);
  }

 private:
  const absl::Span<const MetricInfo> catalogue_;
  std::map<std::string, prometheus::MetricFamily> families_;
};

// Shared with the handles, which take their collectors out.
struct Collectors {
  Mutex mu;
  std::map<int, MetricsRegistry::Collector> by_number ABSL_GUARDED_BY(mu);
  int next ABSL_GUARDED_BY(mu) = 0;
};

class CollectingImpl final : public MetricsRegistry::Collecting {
 public:
  CollectingImpl(std::shared_ptr<Collectors> collectors, int number)
      : collectors_(std::move(collectors)), number_(number) {}
  ~CollectingImpl() override {
    MutexLock lock(&collectors_->mu);
    collectors_->by_number.erase(number_);
  }

 private:
  const std::shared_ptr<Collectors> collectors_;
  const int number_;
};

}  // namespace

struct MetricsRegistry::Impl {
  explicit Impl(absl::Span<const MetricInfo> its_catalogue)
      : catalogue(its_catalogue) {}

  const absl::Span<const MetricInfo> catalogue;
  prometheus::Registry registry;
  const std::shared_ptr<Collectors> collectors = std::make_shared<Collectors>();
  Mutex mu;
  HandlesOf<prometheus::Counter, PrometheusCounter> counters
      ABSL_GUARDED_BY(mu);
  HandlesOf<prometheus::Gauge, PrometheusGauge> gauges ABSL_GUARDED_BY(mu);
  HandlesOf<prometheus::Histogram, PrometheusHistogram> histograms
      ABSL_GUARDED_BY(mu);
};

MetricsRegistry::MetricsRegistry(absl::Span<const MetricInfo> catalogue)
    : impl_(std::make_unique<Impl>(catalogue)) {}
MetricsRegistry::~MetricsRegistry() = default;

Counter& MetricsRegistry::AddCounter(const std::string& name,
                                     const Labels& labels) {
  const MetricInfo& info = InfoOf(impl_->catalogue, name, labels);
  SYNCLINE_CHECK(info.type == MetricType::kCounter);
  auto& family = prometheus::BuildCounter().Name(name).Help(info.help).Register(
      impl_->registry);
  MutexLock lock(&impl_->mu);
  return impl_->counters.For(family.Add(labels));
}

Gauge& MetricsRegistry::AddGauge(const std::string& name,
                                 const Labels& labels) {
  const MetricInfo& info = InfoOf(impl_->catalogue, name, labels);
  SYNCLINE_CHECK(info.type == MetricType::kGauge);
  auto& family = prometheus::BuildGauge().Name(name).Help(info.help).Register(
      impl_->registry);
  MutexLock lock(&impl_->mu);
  return impl_->gauges.For(family.Add(labels));
}

Histogram& MetricsRegistry::AddHistogram(const std::string& name,
                                         const Labels& labels,
                                         std::vector<double> bounds) {
  const MetricInfo& info = InfoOf(impl_->catalogue, name, labels);
  SYNCLINE_CHECK(info.type == MetricType::kHistogram);
  auto& family =
      prometheus::BuildHistogram().Name(name).Help(info.help).Register(
          impl_->registry);
  MutexLock lock(&impl_->mu);
  return impl_->histograms.For(family.Add(labels, std::move(bounds)));
}

std::unique_ptr<MetricsRegistry::Collecting> MetricsRegistry::AddCollector(
    Collector collector) {
  MutexLock lock(&impl_->collectors->mu);
  const int number = impl_->collectors->next++;
  impl_->collectors->by_number[number] = std::move(collector);
  return std::make_unique<CollectingImpl>(impl_->collectors, number);
}

std::vector<double> MetricsRegistry::DurationBounds() {
  std::vector<double> bounds;
  double seconds = 100e-6;
  for (int i = 0; i < 20; ++i, seconds *= 2) bounds.push_back(seconds);
  return bounds;
}

std::string MetricsRegistry::Render() const {
  CollectedSamples samples(impl_->catalogue);
  {
    MutexLock lock(&impl_->collectors->mu);
    for (const auto& [number, collector] : impl_->collectors->by_number) {
      collector(&samples);
    }
  }
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  auto collected = samples.Take();
  // A name is in the text once.
  for (prometheus::MetricFamily& family : families) {
    const auto more = collected.extract(family.name);
    if (more.empty()) continue;
    family.metric.insert(family.metric.end(), more.mapped().metric.begin(),
                         more.mapped().metric.end());
  }
  for (auto& [name, family] : collected) families.push_back(std::move(family));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace syncline

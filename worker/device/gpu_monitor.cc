#include "worker/device/gpu_monitor.h"

#include <utility>

#include "common/system/log.h"

namespace syncline::worker {

GpuMonitor::GpuMonitor(Read read, MetricsRegistry* metrics,
                       absl::Duration period)
    : read_(std::move(read)),
      utilization_(metrics->AddGauge("syncline_worker_gpu_utilization_ratio")),
      used_bytes_(metrics->AddGauge("syncline_worker_gpu_memory_used_bytes")),
      memory_bytes_(metrics->AddGauge("syncline_worker_gpu_memory_bytes")),
      failures_(metrics->AddCounter("syncline_worker_gpu_read_failures_total")),
      task_("gpu-monitor", period, [this] { Update(); }) {}

std::unique_ptr<GpuMonitor> GpuMonitor::Start(const Device& gpu,
                                              MetricsRegistry* metrics) {
  absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Open();
  if (!nvml.ok()) {
    LogWarning("the GPU has no metrics").Status(nvml.status());
    return nullptr;
  }
  return std::make_unique<GpuMonitor>(
      [nvml = std::shared_ptr<Nvml>(*std::move(nvml)),
       address = gpu.description().address] { return nvml->UsageOf(address); },
      metrics);
}

void GpuMonitor::Update() {
  const absl::StatusOr<Nvml::Usage> usage = read_();
  if (usage.ok()) {
    has_failed_ = false;
    utilization_.Set(usage->utilization);
    used_bytes_.Set(static_cast<double>(usage->used_bytes));
    memory_bytes_.Set(static_cast<double>(usage->memory_bytes));
    return;
  }
  failures_.Add();
  if (!std::exchange(has_failed_, true)) {
    LogWarning("the GPU's metrics cannot be read").Status(usage.status());
  }
}

std::unique_ptr<MetricsRegistry::Collecting> ShowCopies(
    const DeviceMeter& meter, MetricsRegistry* metrics) {
  return metrics->AddCollector([&meter](MetricSamples* samples) {
    for (const auto& [direction, name] :
         {std::make_pair(DeviceMeter::kToDevice, "to_device"),
          std::make_pair(DeviceMeter::kToHost, "to_host")}) {
      const MetricSamples::Labels labels = {{"direction", name}};
      samples->Add("syncline_worker_gpu_copied_bytes_total", labels,
                   static_cast<double>(meter.copied_bytes(direction)));
      samples->Add("syncline_worker_gpu_copy_seconds_total", labels,
                   meter.copy_seconds(direction));
    }
  });
}

}  // namespace syncline::worker

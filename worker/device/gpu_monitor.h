#ifndef SYNCLINE_WORKER_DEVICE_GPU_MONITOR_H_
#define SYNCLINE_WORKER_DEVICE_GPU_MONITOR_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/daemon/metrics.h"
#include "common/system/periodic_task.h"
#include "kernels/cuda/nvml.h"
#include "kernels/device/device.h"
#include "kernels/device/device_meter.h"

namespace syncline::worker {

// Metrics of the GPU that a worker computes on, read every two seconds by a
// thread of its own: syncline_worker_gpu_{utilization_ratio,memory_used_bytes,
// memory_bytes,read_failures_total}. Thread-safe.
class GpuMonitor {
 public:
  using Read = std::function<absl::StatusOr<Nvml::Usage>()>;

  // `metrics` outlives this. What cannot be read leaves the gauges as they are;
  // that is logged once.
  GpuMonitor(Read read, MetricsRegistry* metrics,
             absl::Duration period = absl::Seconds(2));
  // Of a GPU of CUDA's. Null, which is logged, where there is no NVML.
  static std::unique_ptr<GpuMonitor> Start(const Device& gpu,
                                           MetricsRegistry* metrics);

 private:
  void Update();

  const Read read_;
  Gauge& utilization_;
  Gauge& used_bytes_;
  Gauge& memory_bytes_;
  Counter& failures_;
  bool has_failed_ = false;  // the thread's
  PeriodicTask task_;        // last: it uses the others
};

// Has `metrics` show what was copied between this process and the GPU, until
// the result is gone: syncline_worker_gpu_cop{ied_bytes,y_seconds}_total.
// `meter`, the GPU's, and `metrics` outlive the result.
std::unique_ptr<MetricsRegistry::Collecting> ShowCopies(
    const DeviceMeter& meter, MetricsRegistry* metrics);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DEVICE_GPU_MONITOR_H_

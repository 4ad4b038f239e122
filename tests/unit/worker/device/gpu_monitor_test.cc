// Goal: what a GPU's driver says becomes metrics, and its silence costs
// nothing. Method: readings that are made up.

#include "worker/device/gpu_monitor.h"

#include <atomic>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(GpuMonitorTest, ReadingsBecomeGauges) {
  MetricsRegistry metrics;
  std::atomic<bool> is_lost = false;
  std::atomic<int> reads = 0;
  GpuMonitor monitor(
      [&]() -> absl::StatusOr<Nvml::Usage> {
        ++reads;
        if (is_lost) return absl::InternalError("NVML: GPU is lost");
        return Nvml::Usage{
            .utilization = 0.5, .used_bytes = 3000, .memory_bytes = 4096};
      },
      &metrics, absl::Milliseconds(5));
  const auto shows = [&](const char* line) {
    return Eventually(absl::Seconds(20), [&] {
      return metrics.Render().find(line) != std::string::npos;
    });
  };
  EXPECT_TRUE(shows("syncline_worker_gpu_utilization_ratio 0.5"));
  EXPECT_TRUE(shows("syncline_worker_gpu_memory_used_bytes 3000"));
  EXPECT_TRUE(shows("syncline_worker_gpu_memory_bytes 4096"));
  is_lost = true;
  const int before = reads;
  EXPECT_TRUE(
      Eventually(absl::Seconds(20), [&] { return reads > before + 2; }));
  EXPECT_THAT(metrics.Render(),
              HasSubstr("syncline_worker_gpu_utilization_ratio 0.5"));
  EXPECT_THAT(metrics.Render(),
              Not(HasSubstr("syncline_worker_gpu_read_failures_total 0")));
}

TEST(GpuMonitorTest, CopiesAreShownByDirection) {
  MetricsRegistry metrics;
  DeviceMeter meter;
  const auto shown = ShowCopies(meter, &metrics);
  meter.AddCopiedBytes(DeviceMeter::kToDevice, 4096);
  meter.AddCopiedBytes(DeviceMeter::kToHost, 100);
  meter.AddCopiedBytes(DeviceMeter::kToHost, 28);
  meter.AddCopySeconds(DeviceMeter::kToHost, 0.25);
  EXPECT_THAT(
      metrics.Render(),
      AllOf(HasSubstr("syncline_worker_gpu_copied_bytes_total{direction="
                      "\"to_device\"} 4096\n"),
            HasSubstr("syncline_worker_gpu_copied_bytes_total{direction="
                      "\"to_host\"} 128\n"),
            HasSubstr("syncline_worker_gpu_copy_seconds_total{direction="
                      "\"to_device\"} 0\n"),
            HasSubstr("syncline_worker_gpu_copy_seconds_total{direction="
                      "\"to_host\"} 0.25\n")));
}

}  // namespace
}  // namespace syncline::worker

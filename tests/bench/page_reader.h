#ifndef SYNCLINE_TESTS_BENCH_PAGE_READER_H_
#define SYNCLINE_TESTS_BENCH_PAGE_READER_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/system/periodic_task.h"

namespace syncline {

// Reads HTTP pages of daemons on loopback once a second while it is not paused,
// as a Prometheus with a short interval and an open status page do. It begins
// paused. Thread-safe.
class PageReader {
 public:
  struct Page {
    std::string address;  // HOST:PORT, an IPv4 address
    std::string path;     // "/metrics"
  };
  explicit PageReader(std::vector<Page> pages);
  // The seconds go on, so that readings have no fixed place after a pause.
  void SetPaused(bool is_paused) { is_paused_ = is_paused; }
  // Bytes that were read so far, headers included.
  uint64_t bytes() const { return bytes_; }
  // Pages that did not answer.
  uint64_t failures() const { return failures_; }

 private:
  void Read();

  const std::vector<Page> pages_;
  std::atomic<bool> is_paused_{true};
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint64_t> failures_{0};
  std::optional<PeriodicTask> reading_;  // last: its thread uses the rest
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_BENCH_PAGE_READER_H_

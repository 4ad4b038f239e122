#ifndef SYNCLINE_WORKER_EXPORT_FILE_GROWTH_H_
#define SYNCLINE_WORKER_EXPORT_FILE_GROWTH_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "common/system/periodic_task.h"

namespace syncline::worker {

// The bytes of all files of `folder` itself; 0 if it is not there.
uint64_t BytesIn(const std::string& folder);

// Observes the writing of files from outside. While it lives, it calls
// `on_growth` with the bytes of all files of `folder`, from a thread of its
// own, whenever there are more than the last time. It looks once a `period`. A
// write that hangs is therefore not reported. A folder that is not there has no
// bytes. The thread starts in the constructor, and the destructor joins it, so
// `on_growth` needs no lock for state that the owner leaves alone meanwhile.
class FileGrowth {
 public:
  FileGrowth(std::string folder, absl::Duration period,
             std::function<void(uint64_t bytes)> on_growth);

 private:
  void Look();

  const std::string folder_;
  const std::function<void(uint64_t bytes)> on_growth_;
  uint64_t seen_bytes_ = 0;  // the thread's alone
  PeriodicTask task_;        // last: it uses the rest
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EXPORT_FILE_GROWTH_H_

#ifndef SYNCLINE_WORKER_DATA_READING_READ_WATCH_H_
#define SYNCLINE_WORKER_DATA_READING_READ_WATCH_H_

#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace syncline::worker {

// While it lives, whatever its thread reads through InputFile is announced to
// `on_read`, and an error of it ends the reading. So a job can be stopped, and
// can say how far it is, while it loads data for minutes; the loaders, of which
// there is one per format, need not know. One at a time on a thread; single
// thread.
class ReadWatch {
 public:
  // `path` and how many bytes of the file system's content are read next.
  using OnRead =
      std::function<absl::Status(const std::string& path, size_t bytes)>;

  explicit ReadWatch(OnRead on_read);
  ~ReadWatch();
  ReadWatch(const ReadWatch&) = delete;
  ReadWatch& operator=(const ReadWatch&) = delete;

  // Asks the watch of this thread; OK if there is none.
  static absl::Status BeforeRead(const std::string& path, size_t bytes);

 private:
  const OnRead on_read_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_READING_READ_WATCH_H_

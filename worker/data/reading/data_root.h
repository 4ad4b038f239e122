#ifndef SYNCLINE_WORKER_DATA_READING_DATA_ROOT_H_
#define SYNCLINE_WORKER_DATA_READING_DATA_ROOT_H_

#include <string>
#include <utility>

namespace syncline::worker {

// Where the files of a job's data are. (Converts from a path, so that a path is
// a root without a boundary.)
struct DataRoot {
  DataRoot() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): see above
  DataRoot(const char* path) : path(path) {}
  // NOLINTNEXTLINE(google-explicit-constructor): see above
  DataRoot(std::string path, bool bounded = false)
      : path(std::move(path)), bounded(bounded) {}

  // Relative paths are below it; "" is the working directory.
  std::string path;
  // Nothing outside of it is opened, wherever symbolic links lead.
  bool bounded = false;
};

// The folder itself: absolute, without "." and "..", links as they are.
std::string AbsolutePath(const DataRoot& root);

// How a file is called on any host with the same data: relative to the root if
// it is below it, else its absolute path. `file` is what FindFiles gave.
std::string NameBelow(const DataRoot& root, const std::string& file);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_READING_DATA_ROOT_H_

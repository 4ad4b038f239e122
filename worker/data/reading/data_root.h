#ifndef SYNCLINE_WORKER_DATA_READING_DATA_ROOT_H_
#define SYNCLINE_WORKER_DATA_READING_DATA_ROOT_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"

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
  // Of a bounded root: the name of a folder in it that is not entered either.
  std::string closed = {};
  // The tenant whose data it has, for messages; empty: no tenant's.
  std::string tenant = {};
};

// Where the data of a job of `tenant` are: ROOT/tenants/TENANT, and nothing
// outside of that is opened. A job of no tenant has the root, but for
// ROOT/tenants if the root is bounded. Errors: InvalidArgument: the tenant's
// name is none of a folder; FailedPrecondition: the root is not bounded, so
// tenants could not be kept apart.
absl::StatusOr<DataRoot> RootForTenant(const DataRoot& root,
                                       const std::string& tenant);

// The folder itself: absolute, without "." and "..", links as they are.
std::string AbsolutePath(const DataRoot& root);

// How a file is called on any host with the same data: relative to the root if
// it is below it, else its absolute path. `file` is what FindFiles gave.
std::string NameBelow(const DataRoot& root, const std::string& file);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_READING_DATA_ROOT_H_

#ifndef SYNCLINE_WORKER_DATA_DATA_FINGERPRINT_H_
#define SYNCLINE_WORKER_DATA_DATA_FINGERPRINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job_spec.pb.h"
#include "proto/scheduler.pb.h"
#include "worker/data/dataset.h"
#include "worker/data/reading/data_root.h"

namespace syncline::worker {

// A fingerprint that differs between two hosts whose copies of a data source
// differ: of the files that `data` reads of `source`, by their names below
// `root`, and of drawn samples the first ones. `dataset` is the source, opened;
// `field` is its name in the job, "data.train". Reads 128 KiB of each file.
// Errors: FindFiles', and errno's of a file that went away meanwhile.
absl::StatusOr<DataFingerprint::Source> FingerprintOf(absl::string_view field,
                                                      const DataSource& source,
                                                      const DataSpec& data,
                                                      const DataRoot& root,
                                                      const Dataset& dataset);

// Changes whenever a file that `data` reads of `source` does, or one comes or
// goes, as far as its size and times tell. Errors: FindFiles',
// OpenForReading's.
absl::StatusOr<std::string> VersionOfFiles(const DataSource& source,
                                           const DataSpec& data,
                                           const DataRoot& root);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_DATA_FINGERPRINT_H_

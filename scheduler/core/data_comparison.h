#ifndef SYNCLINE_SCHEDULER_CORE_DATA_COMPARISON_H_
#define SYNCLINE_SCHEDULER_CORE_DATA_COMPARISON_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/scheduler.pb.h"

namespace syncline::scheduler {

// Compares the data that the members of a job see. Each of them plans its
// batches from its own files, so a file that one host lacks would change which
// samples a step takes. Pure, thread-compatible.
class DataComparison {
 public:
  // Compares what `who` ("worker 1 at 127.0.0.1:4567") has with what the first
  // member that has the same source said of it. Returns a problem for each
  // source that differs, as `who` would say it: it names the first file that
  // differs and the other member. A member may have none of the sources.
  std::vector<std::string> Add(absl::string_view who,
                               const DataFingerprint& data);

 private:
  struct Seen {
    std::string who;
    DataFingerprint::Source source;
  };
  std::map<std::string, Seen> first_;  // by the source's field
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_DATA_COMPARISON_H_

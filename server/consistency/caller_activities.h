#ifndef SYNCLINE_SERVER_CONSISTENCY_CALLER_ACTIVITIES_H_
#define SYNCLINE_SERVER_CONSISTENCY_CALLER_ACTIVITIES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/consistency/push_ledger.h"

namespace syncline::ps {

// The newest report of each caller of what it does instead of pushing; see
// ReportActivity in proto/parameter_server.proto. Pure, thread-compatible.
class CallerActivities {
 public:
  struct Activity {
    int64_t clock = -1;
    std::string what;
    uint64_t done = 0;
    uint64_t total = 0;
  };

  explicit CallerActivities(size_t caller_count) : newest_(caller_count) {}

  // Takes a report. False: it says no more than the last one, or it is of a
  // clock that the worker has closed; nothing has changed. `worker`: null for
  // the evaluator.
  bool OnReport(uint32_t rank, Activity activity, const PushLedger* worker);

  // "reading batch 12, 3 of 7"; empty: the caller has reported nothing, or the
  // worker has pushed since.
  std::string Text(uint32_t rank, const PushLedger* worker) const;

 private:
  std::vector<Activity> newest_;  // by rank
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CONSISTENCY_CALLER_ACTIVITIES_H_

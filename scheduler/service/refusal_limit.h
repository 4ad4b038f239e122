#ifndef SYNCLINE_SCHEDULER_SERVICE_REFUSAL_LIMIT_H_
#define SYNCLINE_SCHEDULER_SERVICE_REFUSAL_LIMIT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace syncline::scheduler {

// How many refused calls the audit log takes: of each caller kEachMax in a
// kPeriod, of all together kAllMax. The rest is counted. So whoever is refused
// all the time pushes nothing out of the log, and hides no other caller but in
// the periods in which very many are refused. Pure, thread-compatible.
class RefusalLimit {
 public:
  static constexpr absl::Duration kPeriod = absl::Minutes(1);
  static constexpr uint64_t kEachMax = 10;
  static constexpr uint64_t kAllMax = 200;
  // Callers that are told apart in a period; the others count as one.
  static constexpr size_t kCallersMax = 1000;

  struct LeftOut {
    std::string who;
    uint64_t calls = 0;
  };
  // The calls left out in periods that are over at `now`, by caller; to be
  // written before the calls of the new period.
  std::vector<LeftOut> TakeLeftOut(absl::Time now);
  // Whether a refused call of `who` is written, in the period of the last
  // TakeLeftOut.
  bool Takes(const std::string& who);

 private:
  struct Count {
    uint64_t taken = 0;
    uint64_t left_out = 0;
  };
  absl::Time began_ = absl::InfinitePast();
  uint64_t taken_ = 0;
  std::map<std::string, Count> callers_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_REFUSAL_LIMIT_H_

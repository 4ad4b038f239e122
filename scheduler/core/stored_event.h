#ifndef SYNCLINE_SCHEDULER_CORE_STORED_EVENT_H_
#define SYNCLINE_SCHEDULER_CORE_STORED_EVENT_H_

#include <cstdint>

#include "proto/job.pb.h"

namespace syncline::scheduler {

// An event and its place among all events of its job, from 1.
struct StoredEvent {
  uint64_t number = 0;
  JobEvent event = {};
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_STORED_EVENT_H_

#ifndef SYNCLINE_SCHEDULER_SERVICE_EVENTS_STREAM_H_
#define SYNCLINE_SCHEDULER_SERVICE_EVENTS_STREAM_H_

#include "proto/scheduler.grpc.pb.h"
#include "scheduler/service/control_loop.h"

namespace syncline::scheduler {

// Jobs.Events: the events that a job has had, and with `follow` those to come,
// until it is in a final state. Where some are no longer kept, the first one
// says how many.
grpc::ServerWriteReactor<JobEvent>* SendEvents(ControlLoop* loop,
                                               const EventsRequest& request);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_EVENTS_STREAM_H_

#ifndef SYNCLINE_SCHEDULER_CTL_TEXT_EVENT_TEXT_H_
#define SYNCLINE_SCHEDULER_CTL_TEXT_EVENT_TEXT_H_

#include <string>

#include "absl/time/time.h"
#include "proto/job.pb.h"

namespace syncline::ctl {

// "2026-11-26 16:12:01  clock 1,250   checkpoint  at clock ...": a line of
// `synctl events`, without its end. Pure.
std::string EventText(const JobEvent& event, absl::TimeZone zone);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TEXT_EVENT_TEXT_H_

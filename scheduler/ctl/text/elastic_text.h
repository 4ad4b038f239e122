#ifndef SYNCLINE_SCHEDULER_CTL_TEXT_ELASTIC_TEXT_H_
#define SYNCLINE_SCHEDULER_CTL_TEXT_ELASTIC_TEXT_H_

#include <string>

#include "proto/job.pb.h"

namespace syncline::ctl {

// Of a job that runs with other workers than it should have: how many, and when
// that changes, in a sentence without a full stop; else empty. Pure.
std::string ElasticText(const JobStatus& job);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TEXT_ELASTIC_TEXT_H_

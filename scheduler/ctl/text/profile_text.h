#ifndef SYNCLINE_SCHEDULER_CTL_TEXT_PROFILE_TEXT_H_
#define SYNCLINE_SCHEDULER_CTL_TEXT_PROFILE_TEXT_H_

#include <string>

#include "google/protobuf/struct.pb.h"
#include "proto/profile.pb.h"

namespace syncline::ctl {

// True if the profile's columns fit together. REQUIRED below.
bool IsWellFormed(const StepProfile& profile);

// For people: what a step's time went into, operators and nodes by time.
std::string ProfileText(const StepProfile& profile);

// The same, all nodes, in seconds a step.
google::protobuf::Struct ProfileJson(const StepProfile& profile);

// For chrome://tracing and Perfetto: a row of steps and one of what they did.
// Source: "Trace Event Format", complete events.
std::string ChromeTrace(const StepProfile& profile);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TEXT_PROFILE_TEXT_H_

#ifndef SYNCLINE_SCHEDULER_CORE_DESCRIBE_H_
#define SYNCLINE_SCHEDULER_CORE_DESCRIBE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"

namespace syncline::scheduler {

// How tasks, members and times are written in messages for people.

absl::string_view TaskTypeName(TaskType type);  // "ps"
std::string TaskText(const Task& task);         // "ps 1"
// "ps 1 at 127.0.0.1:4567".
std::string MemberText(const Member& member);
// "ps 1 at 127.0.0.1:4567 (incarnation 0x9f3c)".
std::string MemberTextWithIncarnation(const Member& member);
// "1 worker", "2 workers", "2 ps".
std::string CountText(uint64_t count, absl::string_view noun);
std::string SecondsText(absl::Duration duration);  // "5.2 s"

bool IsFinal(JobState state);

// "j-0042" -> 42; 0 if it is not a job's id.
uint64_t JobNumber(absl::string_view job_id);

google::protobuf::Timestamp ToTimestamp(absl::Time time);
absl::Time FromTimestamp(const google::protobuf::Timestamp& timestamp);

// "\nwarning: ..." if a step of the job takes more samples than there are; else
// empty.
std::string StepWarning(const JobStatus& job, uint64_t train_samples);
// "\nwarning: ..." if some of its workers compute on a GPU and some do not, or
// if their GPUs are of different models, or have their convolutions computed by
// different libraries; else empty.
std::string DeviceWarning(const JobStatus& job);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_DESCRIBE_H_

#ifndef SYNCLINE_SCHEDULER_CTL_TEXT_JOB_TEXT_H_
#define SYNCLINE_SCHEDULER_CTL_TEXT_JOB_TEXT_H_

// Jobs and clusters as text for people. Pure functions; several lines end with
// a newline, single ones do not.

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"

namespace syncline::ctl {

std::string FormatCount(uint64_t count);         // "60,000"
std::string FormatBytes(uint64_t bytes);         // "1.2 MiB"
std::string FormatElapsed(absl::Duration time);  // "0:07", "1:02:03"
// "1 worker", "2 workers".
std::string FormatAmount(uint64_t count, absl::string_view noun);
absl::Time ToTime(const google::protobuf::Timestamp& timestamp);

// "epoch 2/5  step 1,250/3,130  loss 0.1234  24,310 samples/s  0:12 left"; then
// "12 skipped" and "3 dropped" if JobProgress says so.
std::string ProgressText(const JobProgress& progress);

// "from clock 40  ASYNC, learning rate x 0.5 (rule 1: loss below 0.5, pause
// 0.012 s)", "stays  SYNC (why)", "not made: why (reason)": an entry of
// job.regimes.
std::string RegimeEntryText(const JobStatus& job, int entry);

// "epoch 2: test loss 0.1012, accuracy 96.92%, AUC 0.9021 (10,000 samples)". Of
// a job that trains nothing (evaluate.only): "clock 1,250: test loss ...",
// since epochs are those of the job that made the checkpoint.
std::string EvaluationText(const Evaluation& evaluation, const JobSpec& spec);

// "evaluates /ckpt/j-0007/..., of clock 1,250": what such a job does.
std::string OnlyEvaluatesText(const JobSpec& spec);

// Why the job is in its state; may have several lines; empty: nothing to say.
std::string ReasonText(const JobStatus& job);

// Why a job went back to its queue, in a line; empty: it did not.
std::string RestartText(const JobTransition& transition);
// "clock 1,250  1.2 MiB  in 0.3 s  /ckpt/j-0001/...".
std::string CheckpointText(const CheckpointInfo& checkpoint);

// Time from the first to the last transition, or to `now` while it goes on.
absl::Duration JobAge(const JobStatus& job, absl::Time now);

// `synctl get`: everything about one job.
std::string JobDetails(const JobStatus& job, absl::Time now);
// `synctl list`: one line per job, under a head line.
std::string JobTable(const ListResponse& jobs, absl::Time now);
// Says that a job asks for more than there is, and what follows; empty if it
// does not. `spec` as submitted.
std::string CapacityWarning(const JobSpec& spec, const ClusterStatus& cluster);
// `synctl cluster`: one line per member, under a head line.
std::string ClusterTable(const ClusterStatus& cluster);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TEXT_JOB_TEXT_H_

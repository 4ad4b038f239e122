#ifndef SYNCLINE_COMMON_JOB_WORKER_GROUPS_H_
#define SYNCLINE_COMMON_JOB_WORKER_GROUPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// The groups of a job's workers, each of which is one worker to the ps (ADR
// 083): a pure function of the specification and of the hosts of the workers,
// so the scheduler, the ps and the workers have the same ones. Group 0 is the
// chief's.

// True if several workers may be one to the ps. Groups of one worker each are
// the same as none.
bool HasGroups(const JobSpec& spec);

// Regime.group_size, as far as the specification says it: by hosts it is 0
// until the job has its workers.
uint32_t KnownGroupSize(const JobSpec& spec);

class WorkerGroups {
 public:
  WorkerGroups() = default;  // of no worker
  // Each worker is a group of its own.
  static WorkerGroups None(uint32_t workers);
  // `hosts`: of the workers, by rank. Groups are numbered by their lowest rank.
  // Errors: InvalidArgument, "field: why": neither field of `spec` is set, or
  // both; the size does not divide the number of workers; by_host, and a host
  // is not known, or one has more workers than another.
  static absl::StatusOr<WorkerGroups> Of(const GroupSpec& spec,
                                         absl::Span<const std::string> hosts);
  // The same of a job whose workers are known. None where it has no groups.
  static absl::StatusOr<WorkerGroups> Of(const JobAssignment& job);
  static absl::StatusOr<WorkerGroups> Of(const JobStatus& job);

  // Groups; the ps have as many workers.
  uint32_t count() const { return static_cast<uint32_t>(members_.size()); }
  uint32_t workers() const { return static_cast<uint32_t>(group_of_.size()); }
  // Workers of each group; 1: there is nothing to reduce among them.
  uint32_t size() const { return count() == 0 ? 1 : workers() / count(); }
  // REQUIRES: rank < workers().
  uint32_t GroupOf(uint32_t rank) const { return group_of_[rank]; }
  // By rank, ascending; the first one is the leader, which speaks to the ps.
  absl::Span<const uint32_t> MembersOf(uint32_t group) const {
    return members_[group];
  }
  uint32_t LeaderOf(uint32_t group) const { return members_[group][0]; }
  // Of the worker's group: its place among the members. REQUIRES: rank <
  // workers().
  uint32_t PlaceOf(uint32_t rank) const { return place_of_[rank]; }

  // Values of workers, by rank, as those of groups: the largest of the members'
  // values. Another length than workers() is left as it is.
  std::vector<int64_t> ToGroups(absl::Span<const int64_t> by_rank) const;
  // Values of groups as those of workers. Another length than count() is left
  // as it is.
  std::vector<int64_t> ToWorkers(absl::Span<const int64_t> by_group) const;

 private:
  explicit WorkerGroups(std::vector<std::vector<uint32_t>> members);

  std::vector<std::vector<uint32_t>> members_;  // by group
  std::vector<uint32_t> group_of_;              // by rank
  std::vector<uint32_t> place_of_;              // by rank
};

// The most groups that the job can have: the workers of the ps, where memory is
// planned before it is known who they are. REQUIRES: `spec` has its defaults.
uint32_t GroupCountMax(const JobSpec& spec);

// For people: "2 groups of 2 workers: worker:0 (leader), worker:1; worker:2
// (leader), worker:3". Empty: the job has no groups, or its workers are not
// known yet.
std::string GroupsText(const JobStatus& job);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_WORKER_GROUPS_H_

#include "common/job/worker_groups.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace syncline {
namespace {

using Members = std::vector<std::vector<uint32_t>>;

absl::Status Refuse(absl::string_view field, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("groups.", field, ": ", why));
}

absl::StatusOr<Members> OfSize(uint32_t size, uint32_t workers) {
  if (workers % size != 0) {
    return Refuse("size", absl::StrCat(size,
                                       " does not divide the number of "
                                       "workers, ",
                                       workers));
  }
  Members members(workers / size);
  for (uint32_t rank = 0; rank < workers; ++rank) {
    members[rank / size].push_back(rank);
  }
  return members;
}

absl::StatusOr<Members> OfHosts(absl::Span<const std::string> hosts) {
  Members members;
  std::map<std::string, size_t> group_of;
  for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank].empty()) {
      return Refuse("by_host", absl::StrCat("the host of the worker of rank ",
                                            rank, " is not known"));
    }
    const auto [found, is_new] = group_of.emplace(hosts[rank], members.size());
    if (is_new) members.emplace_back();
    members[found->second].push_back(rank);
  }
  for (const std::vector<uint32_t>& group : members) {
    if (group.size() == members[0].size()) continue;
    return Refuse(
        "by_host",
        absl::StrCat(
            "hosts have different numbers of workers: ", hosts[members[0][0]],
            " has ", members[0].size(), ", ", hosts[group[0]], " has ",
            group.size(), "; every host needs as many, or use groups.size"));
  }
  return members;
}

template <typename Job>
absl::StatusOr<WorkerGroups> GroupsOf(const Job& job) {
  const auto workers = static_cast<uint32_t>(job.workers_size());
  if (!HasGroups(job.spec())) return WorkerGroups::None(workers);
  std::vector<std::string> hosts;
  for (const Participant& worker : job.workers()) {
    hosts.push_back(worker.member().hostname());
  }
  return WorkerGroups::Of(job.spec().groups(), hosts);
}

}  // namespace

bool HasGroups(const JobSpec& spec) {
  return spec.has_groups() &&
         (spec.groups().by_host() || spec.groups().size() > 1);
}

uint32_t KnownGroupSize(const JobSpec& spec) {
  return HasGroups(spec) && !spec.groups().by_host() ? spec.groups().size() : 0;
}

WorkerGroups::WorkerGroups(std::vector<std::vector<uint32_t>> members)
    : members_(std::move(members)) {
  size_t workers = 0;
  for (const auto& group : members_) workers += group.size();
  group_of_.resize(workers);
  place_of_.resize(workers);
  for (uint32_t g = 0; g < members_.size(); ++g) {
    for (uint32_t place = 0; place < members_[g].size(); ++place) {
      group_of_[members_[g][place]] = g;
      place_of_[members_[g][place]] = place;
    }
  }
}

WorkerGroups WorkerGroups::None(uint32_t workers) {
  Members members;
  for (uint32_t rank = 0; rank < workers; ++rank) members.push_back({rank});
  return WorkerGroups(std::move(members));
}

absl::StatusOr<WorkerGroups> WorkerGroups::Of(
    const GroupSpec& spec, absl::Span<const std::string> hosts) {
  if (spec.by_host() && spec.size() > 0) {
    return Refuse("size", "is not together with groups.by_host");
  }
  if (!spec.by_host() && spec.size() == 0) {
    return Refuse("size",
                  "is 0: set it to the workers of a group, or set "
                  "groups.by_host");
  }
  absl::StatusOr<Members> members =
      spec.by_host() ? OfHosts(hosts)
                     : OfSize(spec.size(), static_cast<uint32_t>(hosts.size()));
  if (!members.ok()) return members.status();
  return WorkerGroups(*std::move(members));
}

absl::StatusOr<WorkerGroups> WorkerGroups::Of(const JobAssignment& job) {
  return GroupsOf(job);
}

absl::StatusOr<WorkerGroups> WorkerGroups::Of(const JobStatus& job) {
  return GroupsOf(job);
}

std::vector<int64_t> WorkerGroups::ToGroups(
    absl::Span<const int64_t> by_rank) const {
  if (by_rank.size() != workers()) return {by_rank.begin(), by_rank.end()};
  std::vector<int64_t> by_group;
  for (const std::vector<uint32_t>& group : members_) {
    int64_t most = by_rank[group[0]];
    for (const uint32_t rank : group) most = std::max(most, by_rank[rank]);
    by_group.push_back(most);
  }
  return by_group;
}

std::vector<int64_t> WorkerGroups::ToWorkers(
    absl::Span<const int64_t> by_group) const {
  if (by_group.size() != count()) return {by_group.begin(), by_group.end()};
  std::vector<int64_t> by_rank;
  for (const uint32_t group : group_of_) by_rank.push_back(by_group[group]);
  return by_rank;
}

uint32_t GroupCountMax(const JobSpec& spec) {
  const uint32_t workers = std::max(1u, spec.resources().workers());
  if (!HasGroups(spec) || spec.groups().by_host()) return workers;
  return std::max(1u, workers / spec.groups().size());
}

std::string GroupsText(const JobStatus& job) {
  if (!HasGroups(job.spec()) || job.workers().empty()) return "";
  const absl::StatusOr<WorkerGroups> groups = WorkerGroups::Of(job);
  if (!groups.ok()) return std::string(groups.status().message());
  std::vector<std::string> texts;
  for (uint32_t g = 0; g < groups->count(); ++g) {
    std::vector<std::string> names;
    for (const uint32_t rank : groups->MembersOf(g)) {
      const Task& task = job.workers(static_cast<int>(rank)).member().task();
      names.push_back(
          absl::StrCat(absl::AsciiStrToLower(TaskType_Name(task.type())), ":",
                       task.index(), names.empty() ? " (leader)" : ""));
    }
    texts.push_back(absl::StrJoin(names, ", "));
  }
  return absl::StrCat(
      groups->count(), groups->count() == 1 ? " group of " : " groups of ",
      groups->size(), groups->size() == 1 ? " worker: " : " workers: ",
      absl::StrJoin(texts, "; "));
}

}  // namespace syncline

#include "scheduler/core/cluster/tenant_rules.h"

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/job/hidden_job.h"

namespace syncline::scheduler {
namespace {

// Begins and ends the tenant's name in a key; names have no such character.
constexpr char kMark[] = "\x1f";

// Without ".", ".." and a slash at the end.
std::string Normal(const std::string& path) {
  std::string normal = std::filesystem::path(path).lexically_normal().string();
  if (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

// Whether `path` is `folder` or below it. An empty folder has nothing.
bool IsWithin(const std::string& path, const std::string& folder) {
  if (folder.empty()) return false;
  const std::string normal = Normal(path);
  const std::string outer = Normal(folder);
  return normal == outer || absl::StartsWith(normal, absl::StrCat(outer, "/"));
}

std::string Whose(const std::string& tenant) {
  return tenant.empty() ? "a job without a tenant"
                        : absl::StrCat("a job of tenant ", tenant);
}

// Members use a path as it is: behind a link ".." is not what its text says.
absl::Status CheckParts(absl::string_view field, const std::string& path,
                        const std::string& tenant) {
  if (tenant.empty()) return absl::OkStatus();
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (part != "." && part != "..") continue;
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", Printable(path), " has the part \"", part,
                     "\", and this is ", Whose(tenant)));
  }
  return absl::OkStatus();
}

std::string OwnFolder(const std::string& tenant,
                      const std::string& checkpoints) {
  if (tenant.empty() || checkpoints.empty()) return "";
  return absl::StrCat(checkpoints, "/", tenant);
}

absl::Status CheckDirectory(const std::string& directory,
                            const std::string& tenant,
                            const std::string& checkpoints) {
  if (directory.empty()) return absl::OkStatus();
  if (tenant.empty()) {
    if (!IsWithin(directory, checkpoints)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint.directory: ", Printable(directory),
                     " belongs to tenants, and this is ", Whose(tenant)));
  }
  const std::string own = OwnFolder(tenant, checkpoints);
  if (IsWithin(directory, own)) return absl::OkStatus();
  if (own.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "checkpoint.directory: ", Whose(tenant), " may name none, because the ",
        "scheduler has no --tenant-checkpoints; without it each ps writes to ",
        "its own --checkpoint-dir"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "checkpoint.directory: ", Printable(directory), " is not within ", own,
      ", where the checkpoints of tenant ", tenant, " are"));
}

// The job that has made the checkpoint at `path`, as its record says; null:
// none of `jobs` has.
const Job* MakerOf(const std::string& path, absl::Span<const Job* const> jobs) {
  const std::string normal = Normal(path);
  for (const Job* job : jobs) {
    for (const CheckpointInfo& checkpoint : job->status().checkpoints()) {
      if (Normal(checkpoint.path()) == normal) return job;
    }
  }
  return nullptr;
}

absl::Status CheckStart(const std::string& path, const std::string& tenant,
                        const std::string& checkpoints,
                        absl::Span<const Job* const> jobs) {
  if (path.empty()) return absl::OkStatus();
  const Job* const maker = MakerOf(path, jobs);
  if (maker != nullptr ? maker->status().tenant() == tenant
                       : IsWithin(path, OwnFolder(tenant, checkpoints))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("start.checkpoint: ", Printable(path),
                   " is no checkpoint that ", Whose(tenant), " has here"));
}

}  // namespace

absl::StatusOr<std::string> ScopedClientKey(absl::string_view tenant,
                                            absl::string_view key) {
  if (absl::StartsWith(key, kMark)) {
    return absl::InvalidArgumentError(
        "client_key: it begins with the character 0x1f, which is kept for the "
        "keys of tenants");
  }
  if (tenant.empty() || key.empty()) return std::string(key);
  return absl::StrCat(kMark, tenant, kMark, key);
}

absl::string_view KeyAsGiven(absl::string_view scoped) {
  if (!absl::ConsumePrefix(&scoped, kMark)) return scoped;
  return scoped.substr(scoped.find(kMark) + 1);
}

std::string TenantOfOperators(const JobSpec& spec,
                              const std::string& checkpoints,
                              absl::Span<const Job* const> jobs) {
  const StartSpec& start = spec.start();
  if (start.checkpoint().empty() || start.weights_only()) return "";
  const Job* const maker = MakerOf(start.checkpoint(), jobs);
  if (maker != nullptr) return maker->status().tenant();
  if (!IsWithin(start.checkpoint(), checkpoints)) return "";
  const std::string below =
      Normal(start.checkpoint()).substr(Normal(checkpoints).size());
  const std::vector<std::string> parts =
      absl::StrSplit(below, '/', absl::SkipEmpty());
  return parts.empty() ? "" : parts[0];
}

absl::Status CheckTenantPaths(const JobSpec& spec, const std::string& tenant,
                              const std::string& checkpoints, bool of_operator,
                              absl::Span<const Job* const> jobs) {
  SYNCLINE_RETURN_IF_ERROR(CheckParts("checkpoint.directory",
                                      spec.checkpoint().directory(), tenant));
  SYNCLINE_RETURN_IF_ERROR(
      CheckParts("start.checkpoint", spec.start().checkpoint(), tenant));
  SYNCLINE_RETURN_IF_ERROR(
      CheckDirectory(spec.checkpoint().directory(), tenant, checkpoints));
  if (of_operator) return absl::OkStatus();
  return CheckStart(spec.start().checkpoint(), tenant, checkpoints, jobs);
}

void HideOthersJobs(absl::FunctionRef<bool(const std::string& job_id)> sees,
                    ClusterStatus* cluster) {
  for (ClusterStatus::Entry& entry : *cluster->mutable_members()) {
    if (!entry.job_id().empty() && !sees(entry.job_id())) {
      entry.set_job_id(kHiddenJob);
    }
  }
}

}  // namespace syncline::scheduler

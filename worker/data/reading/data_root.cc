#include "worker/data/reading/data_root.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace syncline::worker {

namespace fs = std::filesystem;

namespace {

constexpr char kTenants[] = "tenants";

}  // namespace

absl::StatusOr<DataRoot> RootForTenant(const DataRoot& root,
                                       const std::string& tenant) {
  DataRoot own = root;
  if (tenant.empty()) {
    if (own.bounded) own.closed = kTenants;
    return own;
  }
  if (tenant[0] == '.' || absl::StrContains(tenant, '/') ||
      absl::StrContains(tenant, '\0')) {
    return absl::InvalidArgumentError(
        "the job's tenant has a name that is none of a folder");
  }
  if (!root.bounded) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job is of tenant ", tenant,
        ", and this worker reads data from "
        "anywhere: it needs --data-root, and not --data-outside-root"));
  }
  own.tenant = tenant;
  own.path = absl::StrCat(AbsolutePath(root), "/", kTenants, "/", tenant);
  return own;
}

std::string AbsolutePath(const DataRoot& root) {
  // Not fs::absolute, which throws for an empty path.
  std::error_code error;
  std::string path =
      (fs::current_path(error) / root.path).lexically_normal().string();
  if (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string NameBelow(const DataRoot& root, const std::string& file) {
  std::error_code error;
  for (const std::string& folder :
       {AbsolutePath(root),
        fs::canonical(AbsolutePath(root), error).string()}) {
    const std::string prefix =
        absl::EndsWith(folder, "/") ? folder : absl::StrCat(folder, "/");
    if (!folder.empty() && absl::StartsWith(file, prefix)) {
      return file.substr(prefix.size());
    }
  }
  return file;
}

}  // namespace syncline::worker

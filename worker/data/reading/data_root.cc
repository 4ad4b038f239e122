#include "worker/data/reading/data_root.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace syncline::worker {

namespace fs = std::filesystem;

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

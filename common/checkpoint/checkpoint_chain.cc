#include "common/checkpoint/checkpoint_chain.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/manifest.h"
#include "common/system/file.h"

namespace syncline {
namespace {

// So many are no burden, whatever the table's size.
constexpr uint64_t kChangesLeast = 1 << 16;

absl::Status LinkOne(const std::string& from, const std::string& to,
                     uint64_t bytes) {
  SYNCLINE_ASSIGN_OR_RETURN(const uint64_t there, FileSize(from));
  if (there != bytes) {
    return absl::DataLossError(absl::StrCat(
        from, ": the file has ", there, " bytes, ", bytes, " were written"));
  }
  // Of an earlier process of the job that came to the same cut.
  unlink(to.c_str());
  if (link(from.c_str(), to.c_str()) != 0) return FileError(errno, "link", to);
  return absl::OkStatus();
}

// The first has all rows, the others have changes.
bool HasManyChanges(const std::vector<StateFileInfo>& files) {
  uint64_t changes = 0;
  for (size_t i = 1; i < files.size(); ++i) changes += files[i].rows;
  return changes > kChangesLeast && changes > files[0].rows / 2;
}

}  // namespace

CheckpointChain::Plan CheckpointChain::Next(bool is_committed) {
  if (written_.has_value() && is_committed) {
    base_ = {.base_cut = written_->file.cut_id,
             .base_folder = written_->folder,
             .older = std::move(written_older_)};
    base_.older.push_back(written_->file);
  }
  written_.reset();
  Plan plan = base_;
  if (plan.older.size() >= full_every_ || HasManyChanges(plan.older)) {
    plan.older.clear();
  }
  return plan;
}

void CheckpointChain::OnWritten(const std::vector<StateFileInfo>& older,
                                Written written) {
  written_older_ = older;
  written_ = std::move(written);
}

absl::Status LinkOlderFiles(const CheckpointChain::Plan& plan,
                            const std::string& folder,
                            const std::string& file) {
  const std::string own = absl::StrCat(folder, "/", file);
  const std::string base = absl::StrCat(plan.base_folder, "/", file);
  absl::Status linked;
  for (const StateFileInfo& older : plan.older) {
    const std::string from = older.cut_id == plan.base_cut
                                 ? base
                                 : OlderStateFile(base, older.cut_id);
    if (linked.ok()) {
      linked = LinkOne(from, OlderStateFile(own, older.cut_id), older.bytes);
    }
  }
  if (linked.ok()) return linked;
  for (const StateFileInfo& older : plan.older) {
    unlink(OlderStateFile(own, older.cut_id).c_str());
  }
  return linked;
}

void RemoveShardFiles(const std::string& folder, const std::string& file) {
  const std::string prefix =
      absl::StrCat(absl::StripSuffix(file, ".state"), ".");
  std::error_code error;
  std::vector<std::filesystem::path> files;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (absl::StartsWith(name, prefix)) files.push_back(entry->path());
  }
  for (const auto& path : files) std::filesystem::remove(path, error);
  std::filesystem::remove(folder, error);
}

}  // namespace syncline

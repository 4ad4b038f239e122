#include "worker/export/file_growth.h"

#include <filesystem>
#include <system_error>
#include <utility>

namespace syncline::worker {
uint64_t BytesIn(const std::string& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  while (!error && entry != std::filesystem::directory_iterator()) {
    std::error_code gone;
    const uint64_t size = entry->file_size(gone);
    if (!gone) bytes += size;
    entry.increment(error);
  }
  return bytes;
}

FileGrowth::FileGrowth(std::string folder, absl::Duration period,
                       std::function<void(uint64_t bytes)> on_growth)
    : folder_(std::move(folder)),
      on_growth_(std::move(on_growth)),
      task_("growth", period, [this] { Look(); }) {}

void FileGrowth::Look() {
  const uint64_t bytes = BytesIn(folder_);
  if (bytes <= seen_bytes_) return;
  seen_bytes_ = bytes;
  on_growth_(bytes);
}

}  // namespace syncline::worker

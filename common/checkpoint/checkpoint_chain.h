#ifndef SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_CHAIN_H_
#define SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_CHAIN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace syncline {

// A shard's file of a checkpoint, of which a later one leaves out rows.
struct StateFileInfo {
  uint64_t cut_id = 0;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
  // Rows of tables in it, and keys without one.
  uint64_t rows = 0;
};

// The base of one shard's next checkpoint: which of its files are needed, and
// since which cut rows have to be written. One in `full_every` has all rows,
// and one that would come behind changes of more than half of them: who
// restores keeps the keys of changes in memory. Pure. Thread-compatible.
class CheckpointChain {
 public:
  // A file that was written, whose checkpoint may be committed by now.
  struct Written {
    std::string folder;  // of the checkpoint
    StateFileInfo file;
  };
  struct Plan {
    // The last committed checkpoint: its cut, 0: none, and its folder.
    uint64_t base_cut = 0;
    std::string base_folder;
    // The files that the next one needs, the oldest first; the last is that of
    // the base. Empty: it is to have all rows.
    std::vector<StateFileInfo> older;
  };

  // full_every >= 1; 1: all have all rows.
  explicit CheckpointChain(uint32_t full_every) : full_every_(full_every) {}

  bool is_used() const { return full_every_ > 1; }
  // Of the last OnWritten, until the next Next.
  const std::optional<Written>& written() const { return written_; }
  // For a checkpoint that begins. `is_committed`: written() is; one that is not
  // is forgotten, whether it will be or not.
  Plan Next(bool is_committed);
  // The file was written with these older ones, which may be fewer than the
  // plan's: none.
  void OnWritten(const std::vector<StateFileInfo>& older, Written written);

 private:
  const uint32_t full_every_;
  Plan base_;  // its `older` with the base's own file
  std::optional<Written> written_;
  std::vector<StateFileInfo> written_older_;
};

// Links the files that `plan` needs from its base's folder into `folder`, for
// the shard whose own file there is `file`. Errors, and no link is left: the
// disk has no hard links, a file is gone, or has another size.
absl::Status LinkOlderFiles(const CheckpointChain::Plan& plan,
                            const std::string& folder, const std::string& file);
// Removes a shard's files of a checkpoint that is not to be, and the folder if
// it is empty then. Errors are ignored.
void RemoveShardFiles(const std::string& folder, const std::string& file);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_CHAIN_H_

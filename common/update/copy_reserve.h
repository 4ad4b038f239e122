#ifndef SYNCLINE_COMMON_UPDATE_COPY_RESERVE_H_
#define SYNCLINE_COMMON_UPDATE_COPY_RESERVE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/system/huge_floats.h"
#include "common/system/memory_claim.h"

namespace syncline {

// Memory for copies of dense blocks that are pushed before a checkpoint has
// them. Thread-compatible.
class CopyReserve {
 public:
  // `floats`: of each block's state; 0: it is never taken. `bytes`: unset: a
  // place for each block, so that none is ever refused; else places for the
  // largest block, as many as there is room for, down to none.
  CopyReserve(const std::vector<size_t>& floats, std::optional<uint64_t> bytes);

  // The bytes that it would take.
  static uint64_t BytesFor(const std::vector<size_t>& floats,
                           std::optional<uint64_t> bytes);

  uint64_t bytes() const { return memory_.size() * sizeof(float); }
  // Takes the memory from the system. Errors: TouchMemory's.
  absl::Status MakeResident(const GoOnCheck& go_on);

  // A place for the state of this block; null: none is left. A block has one
  // place at a time.
  float* Take(uint32_t block);
  void Free(float* place);

 private:
  std::vector<size_t> starts_;  // by block; empty: places are free_'s
  HugeFloats memory_;
  std::vector<float*> free_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_UPDATE_COPY_RESERVE_H_

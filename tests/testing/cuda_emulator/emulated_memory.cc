#include "tests/testing/cuda_emulator/emulated_memory.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace syncline::testing {
namespace {

constexpr size_t kAlignment = 256;
// A kernel that computes with what nobody has written shall be seen to.
constexpr unsigned char kPoison = 0xff;

bool Race(const Accessor& a, const Accessor& b) {
  if (a.launch != b.launch) return false;
  if (a.block != b.block) return true;
  return a.thread != b.thread && a.barriers == b.barriers;
}

std::string Describe(const Accessor& by) {
  return absl::StrCat("block ", by.block, " thread ", by.thread);
}

}  // namespace

EmulatedMemory::EmulatedMemory(std::string name, size_t bytes)
    : name_(std::move(name)),
      bytes_(bytes),
      storage_(bytes + kAlignment, kPoison),
      cells_(bytes) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(storage_.data());
  data_ = storage_.data() + (kAlignment - begin % kAlignment) % kAlignment;
}

void EmulatedMemory::SetWritten(size_t begin, size_t bytes) {
  for (size_t i = begin; i < begin + bytes; ++i) cells_[i].is_written = true;
}

bool EmulatedMemory::IsWritten(size_t begin, size_t bytes) const {
  for (size_t i = begin; i < begin + bytes; ++i) {
    if (!cells_[i].is_written) return false;
  }
  return true;
}

void EmulatedMemory::Forget() {
  cells_.assign(bytes_, Cell());
  storage_.assign(storage_.size(), kPoison);
}

std::string EmulatedMemory::Place(const void* at, size_t bytes) const {
  const ptrdiff_t offset = static_cast<const unsigned char*>(at) - data_;
  return absl::StrCat(bytes, " bytes at ", offset, " of ", name_, " of ",
                      bytes_, " bytes");
}

bool EmulatedMemory::IsInside(absl::string_view verb, const void* at,
                              size_t bytes, size_t alignment,
                              const Report& report) const {
  const uintptr_t address = reinterpret_cast<uintptr_t>(at);
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data_);
  if (address < begin || address + bytes > begin + bytes_) {
    report(absl::StrCat(verb, " ", Place(at, bytes), ", which is outside"));
    return false;
  }
  if (address % alignment != 0) {
    report(absl::StrCat(verb, " ", Place(at, bytes),
                        ", which is no multiple of ", alignment));
    return false;
  }
  return true;
}

bool EmulatedMemory::Read(const void* at, size_t bytes, size_t alignment,
                          const Accessor& by, const Report& report) {
  if (!IsInside("reads", at, bytes, alignment, report)) return false;
  const size_t begin = static_cast<const unsigned char*>(at) - data_;
  for (size_t i = begin; i < begin + bytes; ++i) {
    Cell& cell = cells_[i];
    if (!cell.is_written) {
      report(absl::StrCat("reads ", Place(at, bytes),
                          ", which nobody has written"));
      return true;
    }
    if (Race(cell.writer, by)) {
      report(absl::StrCat("reads ", Place(at, bytes), ", which ",
                          Describe(cell.writer),
                          " has written without a barrier between"));
      return true;
    }
    if (cell.reader.launch != by.launch) {
      cell.several_blocks = cell.several_threads = false;
    } else if (cell.reader.block != by.block) {
      cell.several_blocks = true;
    } else if (cell.reader.barriers != by.barriers) {
      cell.several_threads = false;
    } else if (cell.reader.thread != by.thread) {
      cell.several_threads = true;
    }
    cell.reader = by;
  }
  return true;
}

bool EmulatedMemory::Write(const void* at, size_t bytes, size_t alignment,
                           const Accessor& by, const Report& report) {
  if (!IsInside("writes", at, bytes, alignment, report)) return false;
  const size_t begin = static_cast<const unsigned char*>(at) - data_;
  for (size_t i = begin; i < begin + bytes; ++i) {
    Cell& cell = cells_[i];
    if (Race(cell.writer, by)) {
      report(absl::StrCat("writes ", Place(at, bytes), ", which ",
                          Describe(cell.writer),
                          " has written without a barrier between"));
      return true;
    }
    const bool others_read =
        cell.reader.launch == by.launch &&
        (cell.several_blocks ||
         (cell.several_threads && cell.reader.barriers == by.barriers) ||
         Race(cell.reader, by));
    if (others_read) {
      report(absl::StrCat("writes ", Place(at, bytes), ", which ",
                          Describe(cell.reader),
                          " has read without a barrier between"));
      return true;
    }
    cell.writer = by;
    cell.is_written = true;
  }
  return true;
}

}  // namespace syncline::testing

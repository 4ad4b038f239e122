#include "common/system/memory_claim.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kStepBytes = size_t{64} << 20;

absl::Status NotThere(absl::string_view what, uint64_t bytes,
                      uint64_t available) {
  const uint64_t free = available - std::min(available, kMemoryKeptFreeBytes);
  return absl::ResourceExhaustedError(
      absl::StrCat(what, " need ", MebibytesText(bytes), ", ",
                   MebibytesText(free), " are available"));
}

bool Fits(uint64_t bytes, uint64_t available) {
  return available >= kMemoryKeptFreeBytes &&
         bytes <= available - kMemoryKeptFreeBytes;
}

}  // namespace

std::string MebibytesText(uint64_t bytes) {
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  return mebibytes < 100 ? absl::StrFormat("%.1f MiB", mebibytes)
                         : absl::StrFormat("%.0f MiB", mebibytes);
}

absl::Status CheckMemoryFor(absl::string_view what, uint64_t bytes,
                            const std::function<uint64_t()>& available) {
  const uint64_t there = available();
  return Fits(bytes, there) ? absl::OkStatus() : NotThere(what, bytes, there);
}

absl::Status TouchMemory(absl::string_view what, absl::Span<char> memory,
                         const GoOnCheck& go_on,
                         const std::function<uint64_t()>& available) {
  for (size_t step = 0; step < memory.size(); step += kStepBytes) {
    if (go_on != nullptr) SYNCLINE_RETURN_IF_ERROR(go_on());
    const size_t end = std::min(memory.size(), step + kStepBytes);
    if (end - step == kStepBytes) {
      const uint64_t there = available();
      if (!Fits(kStepBytes, there)) {
        return NotThere(what, memory.size() - step, there);
      }
    }
    for (size_t at = step; at < end; at += kPageBytes) {
      // A plain store of the same value could be left out by the compiler.
      const std::atomic_ref<char> byte(memory[at]);
      byte.store(byte.load(std::memory_order_relaxed),
                 std::memory_order_relaxed);
    }
  }
  return absl::OkStatus();
}

void ReleasePages(absl::Span<char> memory) {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  const uintptr_t first = (begin + kPageBytes - 1) / kPageBytes * kPageBytes;
  const uintptr_t end = (begin + memory.size()) / kPageBytes * kPageBytes;
  if (first >= end) return;
  // Where the system will not have them they stay resident, and no more.
  static_cast<void>(
      madvise(memory.data() + (first - begin), end - first, MADV_DONTNEED));
}

}  // namespace syncline

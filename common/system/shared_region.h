#ifndef SYNCLINE_COMMON_SYSTEM_SHARED_REGION_H_
#define SYNCLINE_COMMON_SYSTEM_SHARED_REGION_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/system/file_descriptor.h"

namespace syncline {

// Anonymous memory of a fixed size that two processes of one host map. It is
// freed when both have unmapped it or have ended. Immutable but for its bytes,
// which either process may change at any time. So a reader copies a value out
// before it decides anything by it.
class SharedRegion {
 public:
  enum class Access { kRead, kReadWrite };

  // A new zeroed one, all of it resident: the first touch of a page costs more
  // than copying it. Errors: ResourceExhausted, InvalidArgument (no bytes).
  static absl::StatusOr<std::shared_ptr<SharedRegion>> Create(size_t bytes);

  // The size of what another process created. Quick, unlike Map. Errors:
  // FailedPrecondition: not such memory, or not sealed against shrinking, which
  // would turn reading it into a crash.
  static absl::StatusOr<size_t> SizeOf(const FileDescriptor& memory);

  // Maps memory that another process made, of at most `bytes_max`. kRead seals
  // it: no process can map it to write any more, or take pages out of it; older
  // mappings still can write. Errors, of which none maps it: those of SizeOf;
  // FailedPrecondition: also not allocated, which would turn reading it into an
  // allocation of this process, or kRead and pages could be taken out;
  // ResourceExhausted: larger, or it cannot be mapped.
  static absl::StatusOr<std::shared_ptr<SharedRegion>> Map(
      const FileDescriptor& memory, size_t bytes_max, Access access);

  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // To hand to another process; invalid in a region that was mapped.
  const FileDescriptor& memory() const { return memory_; }

  // True if [bytes, bytes + size) lies within the region.
  bool Contains(const void* bytes, size_t size) const;

 private:
  SharedRegion(FileDescriptor memory, uint8_t* data, size_t size)
      : memory_(std::move(memory)), data_(data), size_(size) {}

  const FileDescriptor memory_;
  uint8_t* const data_;
  const size_t size_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_SHARED_REGION_H_

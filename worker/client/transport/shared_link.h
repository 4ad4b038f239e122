#ifndef SYNCLINE_WORKER_CLIENT_TRANSPORT_SHARED_LINK_H_
#define SYNCLINE_WORKER_CLIENT_TRANSPORT_SHARED_LINK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/area_allocator.h"
#include "common/base/mutex.h"
#include "common/system/file_descriptor.h"
#include "common/system/shared_region.h"
#include "grpcpp/support/slice.h"
#include "proto/parameter_server.pb.h"

namespace syncline::worker {

// Memory of this process that one ps of this host has mapped, divided into
// areas for payloads and answers. The ps unmaps the memory when this object has
// been destroyed. Thread-safe; shared with the areas.
class SharedLink : public std::enable_shared_from_this<SharedLink> {
 public:
  // `name` is what the ps calls the region, `connection` what it watches.
  SharedLink(std::shared_ptr<SharedRegion> region, uint64_t name,
             FileDescriptor connection);

  // Bytes for one payload or answer. Its destructor gives them back. Move-only.
  class Area {
   public:
    Area() = default;
    Area(Area&& other) noexcept { *this = std::move(other); }
    Area& operator=(Area&& other) noexcept {
      std::swap(link_, other.link_);
      std::swap(offset_, other.offset_);
      std::swap(size_, other.size_);
      return *this;
    }
    ~Area();

    explicit operator bool() const { return link_ != nullptr; }
    uint8_t* data() const { return link_->region_->data() + offset_; }
    size_t size() const { return size_; }
    SharedRange range() const;
    // Never gives the bytes back: the ps might still write there.
    void Lose() &&;
    // The first `size` bytes as a slice that owns the whole area.
    grpc::Slice ToSlice(size_t size) &&;

   private:
    friend class SharedLink;
    std::shared_ptr<SharedLink> link_;
    size_t offset_ = 0;
    size_t size_ = 0;
  };

  // More memory that the ps has mapped, to read only: payloads that already lie
  // there need no area. At most once.
  void AddPayloads(std::shared_ptr<const SharedRegion> region, uint64_t name,
                   FileDescriptor connection) ABSL_LOCKS_EXCLUDED(mu_);
  // The ps's name for these bytes; nothing if they are not in memory that it
  // has mapped.
  std::optional<SharedRange> Find(const void* bytes, size_t size) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // An area of `bytes` > 0, or none if there is no room.
  Area Allocate(size_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  // Whether so many areas are lost that a new link should replace this one.
  bool worn_out() const ABSL_LOCKS_EXCLUDED(mu_);
  size_t used_bytes() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::shared_ptr<SharedRegion> region_;
  const uint64_t name_;
  const FileDescriptor connection_;
  mutable Mutex mu_;
  std::shared_ptr<const SharedRegion> payloads_ ABSL_GUARDED_BY(mu_);
  uint64_t payloads_name_ ABSL_GUARDED_BY(mu_) = 0;
  FileDescriptor payloads_connection_ ABSL_GUARDED_BY(mu_);
  AreaAllocator areas_ ABSL_GUARDED_BY(mu_);
  size_t lost_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_TRANSPORT_SHARED_LINK_H_

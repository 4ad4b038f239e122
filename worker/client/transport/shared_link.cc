#include "worker/client/transport/shared_link.h"

#include <optional>
#include <utility>

namespace syncline::worker {

SharedLink::SharedLink(std::shared_ptr<SharedRegion> region, uint64_t name,
                       FileDescriptor connection)
    : region_(std::move(region)),
      name_(name),
      connection_(std::move(connection)),
      areas_(region_->size()) {}

SharedLink::Area::~Area() {
  if (link_ == nullptr) return;
  MutexLock lock(&link_->mu_);
  link_->areas_.Free(offset_);
}

SharedRange SharedLink::Area::range() const {
  SharedRange range;
  range.set_region(link_->name_);
  range.set_offset(offset_);
  range.set_size(size_);
  return range;
}

void SharedLink::Area::Lose() && {
  const std::shared_ptr<SharedLink> link = std::move(link_);
  MutexLock lock(&link->mu_);
  link->lost_bytes_ += size_;
}

grpc::Slice SharedLink::Area::ToSlice(size_t size) && {
  auto* const owner = new Area(std::move(*this));
  return grpc::Slice(
      owner->data(), size, [](void* area) { delete static_cast<Area*>(area); },
      owner);
}

void SharedLink::AddPayloads(std::shared_ptr<const SharedRegion> region,
                             uint64_t name, FileDescriptor connection) {
  MutexLock lock(&mu_);
  payloads_ = std::move(region);
  payloads_name_ = name;
  payloads_connection_ = std::move(connection);
}

std::optional<SharedRange> SharedLink::Find(const void* bytes,
                                            size_t size) const {
  MutexLock lock(&mu_);
  if (payloads_ == nullptr || !payloads_->Contains(bytes, size)) {
    return std::nullopt;
  }
  SharedRange range;
  range.set_region(payloads_name_);
  range.set_offset(static_cast<const uint8_t*>(bytes) - payloads_->data());
  range.set_size(size);
  return range;
}

SharedLink::Area SharedLink::Allocate(size_t bytes) {
  Area area;
  MutexLock lock(&mu_);
  const std::optional<size_t> offset = areas_.Allocate(bytes);
  if (!offset.has_value()) return area;
  area.link_ = shared_from_this();
  area.offset_ = *offset;
  area.size_ = bytes;
  return area;
}

bool SharedLink::worn_out() const {
  MutexLock lock(&mu_);
  return lost_bytes_ > region_->size() / 4;
}

size_t SharedLink::used_bytes() const {
  MutexLock lock(&mu_);
  return areas_.used_bytes();
}

}  // namespace syncline::worker

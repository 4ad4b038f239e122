#include "server/memory/shared_regions.h"

#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/aligned_buffer.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/system/log.h"

namespace syncline::ps {
namespace {

using Region = std::shared_ptr<const SharedRegion>;

constexpr absl::Duration kTokenLifetime = absl::Minutes(1);
// Between a connection and what is sent over it lies no more than two system
// calls of the peer. A peer that connects and sends nothing can push out
// connections before it.
constexpr absl::Duration kWaitingLifetime = absl::Seconds(10);
constexpr size_t kWaitingMax = 64;
// Connections that are taken in at a time.
constexpr int kAcceptsMax = 256;
constexpr int kPartsMax = 1024;

absl::Status WithDetail(absl::Status status, absl::string_view detail) {
  status.SetPayload(kSharedMemoryDetail, absl::Cord(detail));
  return status;
}

absl::Status OutOfBounds(const SharedRange& range, size_t region_bytes) {
  return absl::InvalidArgumentError(
      absl::StrCat("shared memory: bytes ", range.offset(), " and the ",
                   range.size(), " after, of a region of ", region_bytes));
}

// Bytes of a region that keep it mapped.
grpc::Slice SharedSlice(uint8_t* data, size_t bytes, Region region) {
  return grpc::Slice(
      data, bytes, [](void* owner) { delete static_cast<Region*>(owner); },
      new Region(std::move(region)));
}

}  // namespace

SharedRegions::SharedRegions(const Options& options) : options_(options) {
  if (!options.enabled) return;
  absl::StatusOr<LocalListener> listener = ListenLocally();
  if (listener.ok()) {
    listener_ = *std::move(listener);
  } else {
    LogWarning("no shared memory").Status(listener.status());
  }
}

absl::StatusOr<SharedRegions::Offer> SharedRegions::MakeOffer(
    absl::string_view boot_id, absl::Time now) {
  if (!listener_.socket.valid()) {
    return WithDetail(
        absl::FailedPreconditionError("this ps takes no shared memory"), "off");
  }
  if (boot_id.empty() || boot_id != options_.boot_id) {
    return WithDetail(absl::FailedPreconditionError(absl::StrCat(
                          "this ps runs on another host, with boot id ",
                          options_.boot_id, ", not ", boot_id)),
                      "other_host");
  }
  Offer offer;
  offer.socket = listener_.name;
  offer.token = absl::StrFormat("%016x%016x", EntropySeed(), EntropySeed());
  MutexLock lock(&mu_);
  if (tokens_.size() + arrived_.size() + regions_.size() >=
      options_.regions_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat(options_.regions_max,
                     " regions of shared memory are mapped or offered"));
  }
  tokens_[offer.token] = now + kTokenLifetime;
  return offer;
}

void SharedRegions::Receive(absl::Time now) {
  if (!listener_.socket.valid()) return;
  MutexLock receiving(&receive_mu_);
  for (int i = 0; i < kAcceptsMax; ++i) {
    auto connection = AcceptLocally(listener_.socket);
    if (!connection.has_value()) break;
    waiting_.push_back({*std::move(connection), now + kWaitingLifetime});
  }
  std::deque<Waiting> still;
  for (Waiting& one : waiting_) {
    absl::StatusOr<ReceivedDescriptor> received =
        ReceiveDescriptor(one.connection);
    // Its peer is between connecting and sending.
    if (absl::IsUnavailable(received.status()) && one.expires > now) {
      still.push_back(std::move(one));
      continue;
    }
    if (!received.ok() || !TakeToken(received->text)) continue;
    MutexLock lock(&mu_);
    arrived_[received->text] = {std::move(one.connection),
                                std::move(received->descriptor),
                                now + kTokenLifetime};
  }
  while (still.size() > kWaitingMax) still.pop_front();
  waiting_ = std::move(still);
}

bool SharedRegions::TakeToken(const std::string& token) {
  MutexLock lock(&mu_);
  return tokens_.erase(token) > 0;
}

absl::Status SharedRegions::ReserveBytes(size_t bytes) {
  MutexLock lock(&mu_);
  const uint64_t room = options_.bytes_max - mapped_bytes_;
  if (bytes > room) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "shared memory of ", bytes, " bytes, there is room for ", room));
  }
  mapped_bytes_ += bytes;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> SharedRegions::Attach(const std::string& token,
                                               SharedRegion::Access access,
                                               absl::Time now) {
  Receive(now);
  Arrived arrived;
  {
    MutexLock lock(&mu_);
    const auto found = arrived_.find(token);
    if (found == arrived_.end()) {
      return absl::NotFoundError(
          "shared memory: nothing has come with this token");
    }
    arrived = std::move(found->second);
    arrived_.erase(found);
  }
  SYNCLINE_ASSIGN_OR_RETURN(const size_t bytes,
                            SharedRegion::SizeOf(arrived.memory));
  SYNCLINE_RETURN_IF_ERROR(ReserveBytes(bytes));
  auto region = SharedRegion::Map(arrived.memory, bytes, access);
  MutexLock lock(&mu_);
  if (!region.ok()) {
    mapped_bytes_ -= bytes;
    return region.status();
  }
  uint64_t name = EntropySeed();
  while (regions_.count(name) > 0) name = EntropySeed();
  regions_[name] = {
      *std::move(region), access,
      std::make_shared<const FileDescriptor>(std::move(arrived.connection))};
  return name;
}

absl::StatusOr<SharedRegions::Place> SharedRegions::Find(
    const SharedRange& range) const {
  const auto found = regions_.find(range.region());
  if (found == regions_.end()) {
    return WithDetail(absl::FailedPreconditionError(absl::StrCat(
                          "shared memory: unknown region ", range.region())),
                      "unknown");
  }
  const Entry& entry = found->second;
  const size_t size = entry.region->size();
  if (range.size() == 0 || range.offset() > size ||
      range.size() > size - range.offset()) {
    return OutOfBounds(range, size);
  }
  return Place{entry.region, entry.access,
               entry.region->data() + range.offset()};
}

absl::StatusOr<PayloadView> SharedRegions::Payload(
    const SharedMemory& shared) const {
  if (shared.payload_size() > kPartsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory: a payload in ", shared.payload_size(),
                     " parts, at most ", kPartsMax, " are allowed"));
  }
  std::vector<grpc::Slice> slices;
  size_t bytes = 0;
  MutexLock lock(&mu_);
  for (const SharedRange& range : shared.payload()) {
    SYNCLINE_ASSIGN_OR_RETURN(Place place, Find(range));
    bytes += range.size();  // of less than 2^48 each
    if (bytes > kChunkBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "shared memory: a payload of ", bytes, " bytes or more, at most ",
          kChunkBytesMax, " are allowed"));
    }
    slices.push_back(
        SharedSlice(place.data, range.size(), std::move(place.region)));
  }
  return PayloadView(std::move(slices));
}

absl::StatusOr<AnswerArea> SharedRegions::Answer(
    const SharedRange& range) const {
  MutexLock lock(&mu_);
  SYNCLINE_ASSIGN_OR_RETURN(Place place, Find(range));
  if (place.access != SharedRegion::Access::kReadWrite) {
    return absl::InvalidArgumentError(
        "shared memory: an answer in a region that is read only");
  }
  if (range.offset() % kCacheLineBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory: an answer at ", range.offset(),
                     ", not a multiple of ", kCacheLineBytes));
  }
  return AnswerArea{reinterpret_cast<float*>(place.data), range.size(), range,
                    std::move(place.region)};
}

std::vector<uint64_t> SharedRegions::Abandoned() const {
  std::vector<std::pair<uint64_t, std::shared_ptr<const FileDescriptor>>> all;
  {
    MutexLock lock(&mu_);
    for (const auto& [name, entry] : regions_) {
      all.push_back({name, entry.connection});
    }
  }
  std::vector<uint64_t> abandoned;
  for (const auto& [name, connection] : all) {
    if (IsClosedByPeer(*connection)) abandoned.push_back(name);
  }
  return abandoned;
}

void SharedRegions::Tick(absl::Time now) {
  Receive(now);
  const std::vector<uint64_t> abandoned = Abandoned();
  // Unmapped after the lock.
  std::vector<Entry> gone;
  MutexLock lock(&mu_);
  for (auto it = tokens_.begin(); it != tokens_.end();) {
    it = it->second <= now ? tokens_.erase(it) : std::next(it);
  }
  for (auto it = arrived_.begin(); it != arrived_.end();) {
    it = it->second.expires <= now ? arrived_.erase(it) : std::next(it);
  }
  for (const uint64_t name : abandoned) {
    const auto found = regions_.find(name);
    if (found == regions_.end()) continue;
    mapped_bytes_ -= found->second.region->size();
    gone.push_back(std::move(found->second));
    regions_.erase(found);
  }
}

uint64_t SharedRegions::mapped_bytes() const {
  MutexLock lock(&mu_);
  return mapped_bytes_;
}

}  // namespace syncline::ps

#ifndef SYNCLINE_SERVER_MEMORY_SHARED_REGIONS_H_
#define SYNCLINE_SERVER_MEMORY_SHARED_REGIONS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/system/local_socket.h"
#include "common/system/shared_region.h"
#include "common/wire/frame.h"

namespace syncline::ps {

// Where an answer goes that its caller wants in shared memory.
struct AnswerArea {
  float* data = nullptr;  // null: nowhere, the answer travels
  size_t bytes = 0;
  SharedRange range = {};
  std::shared_ptr<const SharedRegion> owner = nullptr;
};

// Memory of workers on this host that this ps has mapped, and how more is
// handed over. Whatever they say of it is checked here: ranges lie within
// regions, regions cannot shrink, and their bytes in all are bounded. A region
// goes when its worker does; calls that use it keep it mapped until they end.
// Thread-safe; never blocks on I/O, and maps memory outside its lock.
class SharedRegions {
 public:
  struct Options {
    bool enabled = true;
    // Of all regions mapped at a time.
    uint64_t bytes_max = 16ull << 30;
    // Offers that are open, and regions. Each takes a file descriptor.
    size_t regions_max = 4096;
    std::string boot_id = BootId();  // of this host
  };
  explicit SharedRegions(const Options& options);

  struct Offer {
    std::string socket;
    std::string token;
  };
  // Errors: FailedPrecondition, with kSharedMemoryDetail: not wanted, not
  // possible here, or another host's; ResourceExhausted: regions_max.
  absl::StatusOr<Offer> MakeOffer(absl::string_view boot_id, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Maps what was sent with `token` and returns its name. Errors: NotFound:
  // nothing was; those of SharedRegion::Map.
  absl::StatusOr<uint64_t> Attach(const std::string& token,
                                  SharedRegion::Access access, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mu_);

  // A message's payload, in place. Errors: FailedPrecondition with
  // kSharedMemoryDetail: an unknown region; InvalidArgument: out of bounds, too
  // many parts, too long.
  absl::StatusOr<PayloadView> Payload(const SharedMemory& shared) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // Errors: the same; InvalidArgument: also not aligned, or not to be written.
  absl::StatusOr<AnswerArea> Answer(const SharedRange& range) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // Removes the regions and connections of workers that have gone.
  void Tick(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);

  uint64_t mapped_bytes() const ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t bytes_max() const { return options_.bytes_max; }

 private:
  // A connection over which no message has come yet.
  struct Waiting {
    FileDescriptor connection;
    absl::Time expires;
  };
  struct Arrived {
    FileDescriptor connection;
    FileDescriptor memory;
    absl::Time expires;
  };
  struct Entry {
    std::shared_ptr<SharedRegion> region;
    SharedRegion::Access access = SharedRegion::Access::kRead;
    // The connection closes when the worker ends. Shared with the polling code.
    std::shared_ptr<const FileDescriptor> connection;
  };
  // A part of a region as a peer names it, checked.
  struct Place {
    std::shared_ptr<SharedRegion> region;
    SharedRegion::Access access = SharedRegion::Access::kRead;
    uint8_t* data = nullptr;
  };

  absl::StatusOr<Place> Find(const SharedRange& range) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes in connections that wait, a bounded number, and what came over them.
  void Receive(absl::Time now) ABSL_LOCKS_EXCLUDED(receive_mu_, mu_);
  // True if an offer has this token, which is used up then.
  bool TakeToken(const std::string& token) ABSL_LOCKS_EXCLUDED(mu_);
  // Regions whose workers have gone.
  std::vector<uint64_t> Abandoned() const ABSL_LOCKS_EXCLUDED(mu_);
  // Bytes of regions that are to be mapped.
  absl::Status ReserveBytes(size_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  LocalListener listener_;  // invalid: cannot listen
  // System calls for new connections are made under this one alone.
  Mutex receive_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  std::deque<Waiting> waiting_
      ABSL_GUARDED_BY(receive_mu_);  // in order of arrival

  // Every payload is looked up under this one: it is held for moments.
  mutable Mutex mu_;
  std::map<std::string, absl::Time> tokens_ ABSL_GUARDED_BY(mu_);  // expiry
  std::map<std::string, Arrived> arrived_ ABSL_GUARDED_BY(mu_);    // by token
  std::map<uint64_t, Entry> regions_ ABSL_GUARDED_BY(mu_);
  uint64_t mapped_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_MEMORY_SHARED_REGIONS_H_

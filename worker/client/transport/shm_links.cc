#include "worker/client/transport/shm_links.h"

#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "common/base/clock.h"
#include "common/system/local_socket.h"
#include "common/system/log.h"
#include "common/wire/frame.h"

namespace syncline::worker {
namespace {

// With one ps: the first, and a few in place of worn out ones.
constexpr int kRegistrationsMax = 8;

}  // namespace

ShmLinks::ShmLinks(const FanoutCall::Options& options,
                   std::vector<grpc::GenericStub*> stubs)
    : options_(options), stubs_(std::move(stubs)), links_(stubs_.size()) {}

void ShmLinks::Connect() {
  if (!options_.shared.enabled) return;
  for (uint32_t shard = 0; shard < stubs_.size(); ++shard) Connect(shard);
}

bool ShmLinks::IsConnected(uint32_t shard) const {
  MutexLock lock(&mu_);
  return links_[shard].shared != nullptr;
}

void ShmLinks::Connect(uint32_t shard) {
  {
    MutexLock lock(&mu_);
    ++links_[shard].registrations;
  }
  Register(
      shard, /*read_only=*/false,
      [bytes = options_.shared.region_bytes] {
        return SharedRegion::Create(bytes);
      },
      [this, shard](ShmRegistration::Result result) {
        OnConnected(shard, std::move(result));
      });
}

void ShmLinks::Register(uint32_t shard, bool read_only, RegionSource region,
                        ShmRegistration::Done done) {
  ShmRegistration::Options options;
  options.caller = options_.shared.caller;
  options.caller.set_shard(shard);
  options.boot_id =
      options_.shared.boot_id.empty() ? BootId() : options_.shared.boot_id;
  options.deadline = MonotonicNow() + options_.patience;
  options.read_only = read_only;
  options.region = std::move(region);
  // A callback counts until it holds nothing any more.
  auto registration = std::make_shared<ShmRegistration>(
      options, stubs_[shard],
      [self = shared_from_this(),
       done](ShmRegistration::Result result) mutable {
        done(std::move(result));
        self->EndCallback();
      });
  {
    MutexLock lock(&mu_);
    if (closed_) return;
    links_[shard].registration = registration;
    ++callbacks_;
  }
  registration->Start();
}

void ShmLinks::EndCallback() {
  MutexLock lock(&mu_);
  if (--callbacks_ == 0) idle_.SignalAll();
}

void ShmLinks::OnConnected(uint32_t shard, ShmRegistration::Result result) {
  if (!result.status.ok()) {
    CountFallback(result.reason);
    LogInfo("no shared memory with a ps")
        .Job(options_.job_id)
        .Field("reason", FallbackName(result.reason))
        .Status(result.status);
    return;
  }
  auto shared = std::make_shared<SharedLink>(
      std::move(result.region), result.name, std::move(result.connection));
  if (options_.shared.payloads == nullptr) return Use(shard, std::move(shared));
  Register(
      shard, /*read_only=*/true, [this] { return options_.shared.payloads; },
      [this, shard, shared](ShmRegistration::Result payloads) {
        if (payloads.status.ok()) {
          shared->AddPayloads(std::move(payloads.region), payloads.name,
                              std::move(payloads.connection));
        } else {
          LogInfo("a ps does not map the gradients; they are copied")
              .Job(options_.job_id)
              .Status(payloads.status);
        }
        Use(shard, shared);
      });
}

void ShmLinks::Use(uint32_t shard, std::shared_ptr<SharedLink> shared) {
  {
    MutexLock lock(&mu_);
    links_[shard].registration.reset();
    if (closed_) return;
    links_[shard].shared = std::move(shared);
  }
  AddToLinkCount(1);
}

grpc::ByteBuffer ShmLinks::Prepare(const FanoutCall::Call& call, ShmCall* shm) {
  const std::shared_ptr<SharedLink> shared = LinkTo(call.shard);
  if (shared == nullptr) return {};
  std::optional<grpc::ByteBuffer> request =
      shm->Prepare(shared, call.request, call.answer_bytes);
  if (request.has_value()) return *std::move(request);
  CountFallback(SharedFallback::kFull);
  return {};
}

bool ShmLinks::OnOutcome(uint32_t shard, ShmCall* shm,
                         grpc::ByteBuffer* response, absl::Status* status) {
  if (status->ok()) {
    const absl::StatusOr<size_t> pulled = shm->TakeAnswer(response);
    *status = pulled.status();
    AddCount(options_.telemetry.shared_pushed_bytes, shm->payload_bytes());
    AddCount(options_.telemetry.shared_pulled_bytes, pulled.value_or(0));
    return false;
  }
  const std::shared_ptr<SharedLink> shared = shm->link();
  if (shm->OnError(*status)) return false;
  Drop(shard, shared);
  const absl::optional<absl::Cord> detail =
      status->GetPayload(kSharedMemoryDetail);
  return detail.has_value() && *detail == "unknown";
}

void ShmLinks::Drop(uint32_t shard, const std::shared_ptr<SharedLink>& shared) {
  bool again = false;
  {
    MutexLock lock(&mu_);
    Link& link = links_[shard];
    if (link.shared != shared) return;
    link.shared.reset();
    again = link.registrations < kRegistrationsMax;
  }
  AddToLinkCount(-1);
  CountFallback(SharedFallback::kLost);
  if (again) Connect(shard);
}

void ShmLinks::Close() {
  std::vector<std::shared_ptr<ShmRegistration>> registrations;
  {
    MutexLock lock(&mu_);
    closed_ = true;
    for (const Link& link : links_) {
      if (link.registration != nullptr) {
        registrations.push_back(link.registration);
      }
    }
  }
  for (const auto& registration : registrations) registration->Cancel();
}

void ShmLinks::Disconnect() {
  std::vector<Link> ended;  // ends after the lock
  {
    MutexLock lock(&mu_);
    while (callbacks_ > 0) {
      idle_.WaitUntil(&mu_, MonotonicNow() + absl::Seconds(1));
    }
    ended.swap(links_);
  }
  for (const Link& link : ended) {
    if (link.shared != nullptr) AddToLinkCount(-1);
  }
}

std::shared_ptr<SharedLink> ShmLinks::LinkTo(uint32_t shard) const {
  MutexLock lock(&mu_);
  return links_[shard].shared;
}

void ShmLinks::CountFallback(SharedFallback reason) const {
  if (options_.telemetry.on_shared_fallback != nullptr) {
    options_.telemetry.on_shared_fallback(reason);
  }
}

void ShmLinks::AddToLinkCount(double change) const {
  if (options_.telemetry.shared_links != nullptr) {
    options_.telemetry.shared_links->Add(change);
  }
}

}  // namespace syncline::worker

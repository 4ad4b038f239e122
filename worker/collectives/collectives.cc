#include "worker/collectives/collectives.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "kernels/optimizer/optimizer.h"

namespace syncline::worker {
namespace {

constexpr size_t kSchedulesMax = 256;
constexpr size_t kScratchMax = 4;
// Kinds of tags: 1 to 3 by CollectiveKind, 4 of swaps, then those of
// measurements.
constexpr uint32_t kSwapKind = 4;
constexpr uint32_t kPingKind = 8;
constexpr uint32_t kBulkKind = 9;
constexpr uint32_t kModelKind = 10;
constexpr int64_t kMeasureClock = -1;

// sum += addend, of bytes that may begin anywhere.
void AddBytes(absl::Span<const uint8_t> bytes, float* sum) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(float) == 0) {
    AddTo(reinterpret_cast<const float*>(bytes.data()), sum,
          bytes.size() / sizeof(float));
    return;
  }
  std::array<float, 1024> aligned;
  while (!bytes.empty()) {
    const size_t now = std::min(bytes.size(), sizeof(aligned));
    std::memcpy(aligned.data(), bytes.data(), now);
    AddTo(aligned.data(), sum, now / sizeof(float));
    sum += now / sizeof(float);
    bytes.remove_prefix(now);
  }
}

// own = the sum in rank order of own and of what the others have staged, one
// behind the other in rank order; staged is overwritten.
void FoldStaged(uint32_t rank, uint32_t ranks, size_t count, float* staged,
                float* own) {
  // The sum of those before this rank's own is made in the first's place.
  for (uint32_t i = 1; i < rank; ++i) AddTo(staged + i * count, staged, count);
  if (rank > 0) AddTo(staged, own, count);
  for (uint32_t i = rank; i + 1 < ranks; ++i) {
    AddTo(staged + i * count, own, count);
  }
}

}  // namespace

// A schedule under way. Shared with the callbacks of its messages.
class Collectives::Running
    : public std::enable_shared_from_this<Collectives::Running> {
 public:
  Running(Collectives* owner, const Collective& collective,
          std::shared_ptr<const CollectiveSchedule> schedule, Done done)
      : owner_(owner),
        collective_(collective),
        schedule_(std::move(schedule)),
        done_(std::move(done)) {
    waits_for_.reserve(schedule_->steps.size());
    for (const CollectiveStep& step : schedule_->steps) {
      waits_for_.push_back(step.waits_for);
    }
    if (schedule_->scratch_elements > 0) {
      scratch_ = owner_->TakeScratch(schedule_->scratch_elements);
    }
  }

  void Start() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    left_ = schedule_->steps.size();
    for (size_t i = 0; i < schedule_->steps.size(); ++i) {
      if (schedule_->steps[i].waits_for == 0) Post(i);
    }
  }

 private:
  void Post(size_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const CollectiveStep& step = schedule_->steps[index];
    if (step.kind == CollectiveStep::Kind::kFoldAll) {
      FoldStaged(owner_->transport_->rank(), owner_->transport_->ranks(),
                 step.elements.size(), scratch_.data() + step.scratch,
                 collective_.values.data() + step.elements.begin);
      End(index);
      return;
    }
    const PeerTag tag = {collective_.clock,
                         static_cast<uint32_t>(collective_.kind) + 1,
                         (collective_.bucket << 16) | step.message};
    ++posted_;
    auto done = [self = shared_from_this(), index](absl::Status status) {
      self->OnDone(index, status);
    };
    const absl::Span<float> own =
        collective_.values.subspan(step.elements.begin, step.elements.size());
    PeerTransport* const transport = owner_->transport_;
    switch (step.kind) {
      case CollectiveStep::Kind::kSend: {
        const ConstPeerMemory piece = BytesOf(absl::Span<const float>(own));
        transport->Send(step.peer, tag, {&piece, 1}, collective_.deadline,
                        std::move(done));
        return;
      }
      case CollectiveStep::Kind::kReceive:
        transport->Receive(step.peer, tag, BytesOf(own), collective_.deadline,
                           std::move(done));
        return;
      case CollectiveStep::Kind::kStage:
        transport->Receive(
            step.peer, tag,
            BytesOf(scratch_.span().subspan(step.scratch, own.size())),
            collective_.deadline, std::move(done));
        return;
      case CollectiveStep::Kind::kAdd:
      case CollectiveStep::Kind::kStageAdd:
      case CollectiveStep::Kind::kFold:
      case CollectiveStep::Kind::kFoldAll:
        break;
    }
    float* const values = own.data();
    const auto kind = step.kind;
    // A kAdd adds its bytes at once: it needs no scratch, and may have none.
    float* const scratch = kind == CollectiveStep::Kind::kAdd
                               ? nullptr
                               : scratch_.data() + step.scratch;
    transport->ReceivePieces(
        step.peer, tag, own.size() * sizeof(float), collective_.deadline,
        [=](size_t offset, absl::Span<const uint8_t> bytes) {
          const size_t first = offset / sizeof(float);
          if (kind == CollectiveStep::Kind::kAdd) {
            AddBytes(bytes, values + first);
            return;
          }
          AddBytes(bytes, scratch + first);
          if (kind == CollectiveStep::Kind::kFold) {
            AddTo(scratch + first, values + first,
                  bytes.size() / sizeof(float));
          }
        },
        std::move(done));
  }

  // The step has ended: those that waited for it begin.
  void End(size_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    --left_;
    for (const uint32_t next : schedule_->steps[index].next) {
      if (--waits_for_[next] == 0) Post(next);
    }
  }

  void OnDone(size_t index, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_) {
    Done done;
    {
      MutexLock lock(&mu_);
      --posted_;
      if (!status.ok() && status_.ok()) status_ = status;
      if (status_.ok()) {
        End(index);
        if (left_ > 0) return;
      } else if (posted_ > 0) {
        return;
      }
      // No message of the collective is under way any more.
      done = std::move(done_);
      if (scratch_.size() > 0) owner_->ReturnScratch(std::move(scratch_));
    }
    done(status_);
  }

  Collectives* const owner_;
  const Collective collective_;
  const std::shared_ptr<const CollectiveSchedule> schedule_;
  Mutex mu_;
  Done done_ ABSL_GUARDED_BY(mu_);
  AlignedFloats scratch_;
  std::vector<uint32_t> waits_for_ ABSL_GUARDED_BY(mu_);
  size_t posted_ ABSL_GUARDED_BY(mu_) = 0;  // and not ended
  size_t left_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_;  // const once posted_ is 0 and it is not OK
};

Collectives::Collectives(PeerTransport* transport, const Options& options)
    : transport_(transport),
      options_(options),
      swapped_elements_max_(SwappedElementsMax()) {}

size_t Collectives::SwappedElementsMax() const {
  const auto is_exchanged = [this](size_t count) {
    return AlgorithmFor(CollectiveKind::kAllReduce, count) ==
           CollectiveAlgorithm::kExchange;
  };
  if (transport_->ranks() < 2) return 0;
  size_t most = kSwapBytesMax / sizeof(float);
  while (most > 0 && !is_exchanged(most)) most /= 2;
  return most;
}

CollectiveAlgorithm Collectives::AlgorithmFor(CollectiveKind kind,
                                              size_t count) const {
  if (options_.algorithm.has_value()) return *options_.algorithm;
  return ChooseAlgorithm(options_.model, options_.bits, kind, count,
                         transport_->ranks());
}

std::shared_ptr<const CollectiveSchedule> Collectives::ScheduleFor(
    CollectiveKind kind, size_t count) {
  const std::pair<int, size_t> key = {static_cast<int>(kind), count};
  MutexLock lock(&mu_);
  if (const auto known = schedules_.find(key); known != schedules_.end()) {
    return known->second;
  }
  if (schedules_.size() >= kSchedulesMax) schedules_.clear();
  auto schedule = std::make_shared<const CollectiveSchedule>(
      MakeSchedule(kind, AlgorithmFor(kind, count), count, transport_->rank(),
                   transport_->ranks()));
  schedules_[key] = schedule;
  return schedule;
}

AlignedFloats Collectives::TakeScratch(size_t elements) {
  MutexLock lock(&mu_);
  for (AlignedFloats& scratch : scratch_) {
    if (scratch.size() < elements) continue;
    AlignedFloats taken = std::move(scratch);
    std::swap(scratch, scratch_.back());
    scratch_.pop_back();
    return taken;
  }
  return AlignedFloats(elements);
}

void Collectives::ReturnScratch(AlignedFloats scratch) {
  MutexLock lock(&mu_);
  if (scratch_.size() >= kScratchMax) scratch_.erase(scratch_.begin());
  scratch_.push_back(std::move(scratch));
}

void Collectives::Start(const Collective& collective, Done done) {
  if (collective.bucket >= kBucketsMax ||
      collective.values.size() > kCollectiveElementsMax) {
    done(absl::InvalidArgumentError(absl::StrCat(
        "a collective of bucket ", collective.bucket, " with ",
        collective.values.size(), " elements; there are ", kBucketsMax,
        " buckets of ", kCollectiveElementsMax, " at most")));
    return;
  }
  auto schedule = ScheduleFor(collective.kind, collective.values.size());
  if (schedule->steps.empty()) {
    done(transport_->status());
    return;
  }
  std::make_shared<Running>(this, collective, std::move(schedule),
                            std::move(done))
      ->Start();
}

absl::Status Collectives::RunSwap(const Collective& collective) {
  const size_t count = collective.values.size();
  const uint32_t rank = transport_->rank();
  const uint32_t ranks = transport_->ranks();
  AlignedFloats scratch = TakeScratch((ranks - 1) * count);
  absl::InlinedVector<uint8_t*, 16> theirs(ranks);
  for (uint32_t r = 0; r < ranks; ++r) {
    if (r == rank) continue;
    theirs[r] = reinterpret_cast<uint8_t*>(scratch.data() +
                                           (r < rank ? r : r - 1) * count);
  }
  const ConstPeerMemory own =
      BytesOf(absl::Span<const float>(collective.values));
  const absl::Status status =
      transport_->SwapAll({collective.clock, kSwapKind, collective.bucket},
                          {own.data, own.size}, theirs, collective.deadline);
  if (status.ok()) {
    FoldStaged(rank, ranks, count, scratch.data(), collective.values.data());
  }
  ReturnScratch(std::move(scratch));
  return status;
}

absl::Status Collectives::Run(const Collective& wanted) {
  Collective collective = wanted;
  if (collective.deadline == absl::InfiniteFuture()) {
    collective.deadline = MonotonicNow() + kRunMax;
  }
  if (collective.kind == CollectiveKind::kAllReduce &&
      !collective.values.empty() &&
      collective.values.size() <= swapped_elements_max_) {
    return RunSwap(collective);
  }
  std::atomic<bool> is_done = false;
  absl::Status result;
  bool started = false;
  // It is started inside Await, which spares waking the transport's thread.
  // Its messages have deadlines, so this ends.
  transport_->Await(
      [&] {
        if (!started) {
          started = true;
          Start(collective, [&](absl::Status status) {
            result = std::move(status);
            is_done.store(true, std::memory_order_release);
          });
        }
        return is_done.load(std::memory_order_acquire);
      },
      absl::InfiniteFuture());
  return result;
}

namespace {

// Sends `out` to `to` and receives as much of `from`; blocks.
absl::Status Swap(PeerTransport* transport, uint32_t to, uint32_t from,
                  const PeerTag& tag, ConstPeerMemory out, PeerMemory in,
                  absl::Time deadline) {
  std::atomic<int> left = 2;
  absl::Status result;
  bool started = false;
  const auto done = [&](absl::Status status) {
    if (!status.ok()) result = std::move(status);
    left.fetch_sub(1, std::memory_order_acq_rel);
  };
  transport->Await(
      [&] {
        if (!started) {
          started = true;
          transport->Receive(from, tag, in, deadline, done);
          transport->Send(to, tag, {&out, 1}, deadline, done);
        }
        return left.load(std::memory_order_acquire) == 0;
      },
      absl::InfiniteFuture());
  return result;
}

}  // namespace

absl::StatusOr<CollectiveModel> MeasureModel(PeerTransport* transport,
                                             absl::Time deadline) {
  constexpr int kPings = 8;
  constexpr int kBulks = 2;
  constexpr size_t kPingBytes = 64;
  constexpr size_t kBulkBytes = 1 << 20;
  const uint32_t n = transport->ranks();
  if (n < 2) return CollectiveModel();
  const uint32_t next = (transport->rank() + 1) % n;
  const uint32_t previous = (transport->rank() + n - 1) % n;
  std::vector<uint8_t> out(kBulkBytes);
  std::vector<uint8_t> in(kBulkBytes);
  const auto measure = [&](uint32_t kind, int times,
                           size_t bytes) -> absl::StatusOr<MessageTime> {
    // Several at a time: whoever comes late to one finds its message there.
    constexpr int kAtATime = 4;
    MessageTime least = {bytes, 1e9};
    for (int i = 0; i < times; ++i) {
      const absl::Time start = MonotonicNow();
      for (int k = 0; k < kAtATime; ++k) {
        SYNCLINE_RETURN_IF_ERROR(
            Swap(transport, next, previous,
                 {kMeasureClock, kind, static_cast<uint32_t>(i * kAtATime + k)},
                 {out.data(), bytes}, {in.data(), bytes}, deadline));
      }
      least.seconds =
          std::min(least.seconds,
                   absl::ToDoubleSeconds(MonotonicNow() - start) / kAtATime);
    }
    return least;
  };
  SYNCLINE_ASSIGN_OR_RETURN(const MessageTime ping,
                            measure(kPingKind, kPings, kPingBytes));
  SYNCLINE_ASSIGN_OR_RETURN(const MessageTime bulk,
                            measure(kBulkKind, kBulks, kBulkBytes));
  std::vector<CollectiveModel> models = {FitModel(ping, bulk)};
  static_assert(std::is_trivially_copyable_v<CollectiveModel>);
  for (uint32_t i = 1; i < n; ++i) {
    CollectiveModel theirs;
    SYNCLINE_RETURN_IF_ERROR(
        Swap(transport, (transport->rank() + i) % n,
             (transport->rank() + n - i) % n, {kMeasureClock, kModelKind, 0},
             {reinterpret_cast<const uint8_t*>(&models.front()),
              sizeof(CollectiveModel)},
             {reinterpret_cast<uint8_t*>(&theirs), sizeof(theirs)}, deadline));
    models.push_back(theirs);
  }
  return SlowestOf(models);
}

}  // namespace syncline::worker

#include "kernels/cuda/nccl_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/library_device.h"

namespace syncline::cuda {
namespace {

// The library has no call that waits with a deadline: it is asked again and
// again, less often as the wait goes on.
constexpr absl::Duration kPauseMin = absl::Microseconds(20);
constexpr absl::Duration kPauseMax = absl::Milliseconds(1);
// Of a rank that leaves, for the others.
constexpr absl::Duration kLeaveMax = absl::Seconds(5);

}  // namespace

absl::StatusOr<std::unique_ptr<NcclGroup>> NcclGroup::Join(
    Options options, const NcclId& id, Stream* stream, absl::Time deadline) {
  SYNCLINE_ASSIGN_OR_RETURN(std::unique_ptr<Event> event,
                            stream->device().MakeEvent());
  auto group = std::unique_ptr<NcclGroup>(
      new NcclGroup(std::move(options), stream, std::move(event)));
  SYNCLINE_RETURN_IF_ERROR(group->Begin(id, deadline));
  return group;
}

absl::Status NcclGroup::Begin(const NcclId& id, absl::Time deadline) {
  constexpr char kWhat[] = "join the group";
  NcclConfig config;
  config.blocking = 0;
  NcclResult result = kNcclSuccess;
  {
    MutexLock lock(&mu_);
    LibraryDevice::Of(stream_.device()).Enter();
    result = options_.library->functions().init(
        &communicator_, static_cast<int>(options_.ranks), id,
        static_cast<int>(options_.rank), &config);
    if (result != kNcclSuccess && result != kNcclInProgress) {
      communicator_ = nullptr;  // there is none to abort
    }
  }
  return Settle(result, kWhat, deadline);
}

NcclGroup::~NcclGroup() {
  NcclResult result = kNcclSuccess;
  {
    MutexLock lock(&mu_);
    if (communicator_ == nullptr) return;
    result = options_.library->functions().finalize(communicator_);
  }
  const absl::Status left =
      Settle(result, "leave the group", MonotonicNow() + kLeaveMax);
  if (!left.ok()) return;  // it is aborted
  MutexLock lock(&mu_);
  if (communicator_ == nullptr) return;
  options_.library->functions().destroy(communicator_);
}

absl::Status NcclGroup::status() const {
  MutexLock lock(&mu_);
  return status_;
}

void NcclGroup::Abort(const absl::Status& why) { Break(why).IgnoreError(); }

absl::Status NcclGroup::Break(const absl::Status& why) {
  MutexLock lock(&mu_);
  if (!status_.ok()) return status_;
  status_ = Annotate(why, options_.label);
  if (communicator_ != nullptr) {
    // Under the lock: nobody may use the communicator meanwhile, and whoever
    // hears why may count on its kernels having ended.
    options_.library->functions().abort(std::exchange(communicator_, nullptr));
  }
  broken_.SignalAll();
  return status_;
}

absl::Status NcclGroup::WaitFor(absl::FunctionRef<bool(NcclResult latest)> done,
                                NcclResult latest, absl::string_view what,
                                absl::Time deadline) {
  const Nccl& library = *options_.library;
  for (absl::Duration pause = kPauseMin;;
       pause = std::min(2 * pause, kPauseMax)) {
    absl::Status failure;
    {
      MutexLock lock(&mu_);
      if (!status_.ok()) return status_;
      if (latest != kNcclSuccess && latest != kNcclInProgress) {
        failure = library.StatusOf(latest, what, communicator_);
      }
    }
    if (!failure.ok()) return Break(failure);
    if (done(latest)) return absl::OkStatus();
    const absl::Time now = MonotonicNow();
    if (now >= deadline) {
      const std::string missing =
          options_.missing != nullptr ? options_.missing() : "";
      return Break(absl::DeadlineExceededError(
          absl::StrCat(library.name(), ": ", what, ": the time is over",
                       missing.empty() ? "" : "; missing: ", missing)));
    }
    MutexLock lock(&mu_);
    if (status_.ok()) {
      broken_.WaitUntil(&mu_, std::min(deadline, now + pause));
    }
    if (!status_.ok()) return status_;
    const NcclResult asked =
        library.functions().async_error(communicator_, &latest);
    if (asked != kNcclSuccess) latest = asked;
  }
}

absl::Status NcclGroup::Settle(NcclResult result, absl::string_view what,
                               absl::Time deadline) {
  return WaitFor([](NcclResult latest) { return latest == kNcclSuccess; },
                 result, what, deadline);
}

absl::Status NcclGroup::Enqueue(
    const char* what, absl::Time deadline,
    absl::FunctionRef<NcclResult(NcclCommunicator, void* stream)> call) {
  LibraryStream& stream = LibraryStream::Of(stream_);
  NcclResult result = kNcclSuccess;
  {
    MutexLock lock(&mu_);
    if (!status_.ok()) return status_;
    result = call(communicator_, stream.ForLibraries());
  }
  SYNCLINE_RETURN_IF_ERROR(Settle(result, what, deadline));
  stream.NoteLibraryCall(what);
  return absl::OkStatus();
}

absl::Status NcclGroup::AllReduce(float* values, size_t count,
                                  absl::Time deadline) {
  return Enqueue("an all-reduce by NCCL", deadline,
                 [&](NcclCommunicator communicator, void* stream) {
                   return options_.library->functions().all_reduce(
                       values, values, count, kNcclFloat32, kNcclSum,
                       communicator, stream);
                 });
}

absl::Status NcclGroup::ReduceScatter(const float* from, float* to,
                                      size_t count, absl::Time deadline) {
  return Enqueue("a reduce-scatter by NCCL", deadline,
                 [&](NcclCommunicator communicator, void* stream) {
                   return options_.library->functions().reduce_scatter(
                       from, to, count, kNcclFloat32, kNcclSum, communicator,
                       stream);
                 });
}

absl::Status NcclGroup::AllGather(const float* from, float* to, size_t count,
                                  absl::Time deadline) {
  return Enqueue("an all-gather by NCCL", deadline,
                 [&](NcclCommunicator communicator, void* stream) {
                   return options_.library->functions().all_gather(
                       from, to, count, kNcclFloat32, communicator, stream);
                 });
}

absl::Status NcclGroup::Await(absl::Time deadline) {
  event_->Record(stream_);
  SYNCLINE_RETURN_IF_ERROR(
      WaitFor([this](NcclResult) { return event_->IsDone(); }, kNcclSuccess,
              "work of the group", deadline));
  if (const absl::Status waited = event_->Wait(); !waited.ok()) {
    return Break(waited);
  }
  // Kernels that another rank has left in the lurch end, too.
  NcclResult latest = kNcclSuccess;
  {
    MutexLock lock(&mu_);
    if (!status_.ok()) return status_;
    const NcclResult asked =
        options_.library->functions().async_error(communicator_, &latest);
    if (asked != kNcclSuccess) latest = asked;
  }
  return Settle(latest, "work of the group", deadline);
}

}  // namespace syncline::cuda

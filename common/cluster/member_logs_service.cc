#include "common/cluster/member_logs_service.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/rpc/grpc_status.h"
#include "common/system/job_logs.h"

namespace syncline {
namespace {

// How soon a line is sent after it was logged.
constexpr absl::Duration kPeriod = absl::Milliseconds(200);

absl::Status Ends() {
  return absl::UnavailableError("this process ends: its log is at its end");
}

}  // namespace

// A call. It owns itself until gRPC is done with it.
class MemberLogsService::Reader final
    : public grpc::ServerWriteReactor<LogLines> {
 public:
  Reader(MemberLogsService* service, grpc::CallbackServerContext* call,
         bool follow)
      : service_(service), call_(call), follow_(follow) {}

  // Before the first Advance.
  void SetOpener(Opener open) { open_ = std::move(open); }
  void Own(std::shared_ptr<Reader> self) { self_ = std::move(self); }

  // Sends the next piece, if gRPC has taken the last one and there is one. From
  // one thread at a time.
  void Advance(absl::Time now, absl::Duration stall_limit)
      ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      if (ended_) return;
      if (is_writing_) {
        // The trailing status would wait behind the piece: the call is broken.
        if (now - written_at_ > stall_limit) call_->TryCancel();
        return;
      }
    }
    if (file_ == nullptr) {
      auto file = open_();
      if (!file.ok()) return End(file.status());
      file_ = *std::move(file);
    }
    auto piece = file_->Next();
    if (piece.ok() && piece->empty() && !follow_)
      *piece = file_->TakeTornLine();
    if (!piece.ok()) return End(piece.status());
    if (piece->empty()) return follow_ ? void() : End(absl::OkStatus());
    MutexLock lock(&mu_);
    if (ended_) return;
    lines_.set_text(*std::move(piece));
    is_writing_ = true;
    written_at_ = now;
    StartWrite(&lines_);
  }

  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (std::exchange(ended_, true)) return;
    Finish(ToGrpcStatus(status));
  }

 private:
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      is_writing_ = false;
    }
    if (!ok) return End(absl::CancelledError("the reader left"));
    service_->ServeSoon();
  }
  void OnCancel() override { End(absl::CancelledError("the reader left")); }
  void OnDone() override {
    const std::shared_ptr<Reader> self = std::move(self_);
  }

  MemberLogsService* const service_;
  grpc::CallbackServerContext* const call_;  // until OnDone
  const bool follow_;
  Opener open_;
  std::unique_ptr<LogFileReader> file_;  // null: not opened yet
  std::shared_ptr<Reader> self_;

  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool is_writing_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time written_at_ ABSL_GUARDED_BY(mu_);
  LogLines lines_;  // being written
};

MemberLogsService::MemberLogsService(const IdentityService* identity,
                                     absl::Duration stall_limit)
    : identity_(identity), stall_limit_(stall_limit) {}

MemberLogsService::~MemberLogsService() { Stop(); }

void MemberLogsService::Stop() {
  std::vector<std::weak_ptr<Reader>> readers;
  PeriodicTask* pump = nullptr;
  {
    MutexLock lock(&mu_);
    stopped_ = true;
    readers.swap(readers_);
    if (pump_.has_value()) pump = &*pump_;
  }
  if (pump != nullptr) pump->Stop();
  for (const auto& weak : readers) {
    if (const auto reader = weak.lock()) reader->End(Ends());
  }
}

absl::StatusOr<MemberLogsService::Opener> MemberLogsService::MakeOpener(
    const grpc::CallbackServerContext& call,
    const MemberLogRequest& request) const {
  if (!identity_->Knows(request.incarnation())) {
    return absl::FailedPreconditionError("this is another process");
  }
  const std::shared_ptr<JobLogs> logs = KeptJobLogs();
  if (logs == nullptr) {
    return absl::NotFoundError("this process keeps no logs of jobs");
  }
  const auto trace = call.client_metadata().find(kTraceMetadata);
  const std::string trace_id =
      trace == call.client_metadata().end()
          ? JobTraceOf(request.job_id())
          : std::string(trace->second.data(), trace->second.size());
  return Opener([logs, job_id = request.job_id(), trace_id,
                 tail_lines = request.tail_lines()] {
    return logs->Read(job_id, trace_id, tail_lines);
  });
}

grpc::ServerWriteReactor<LogLines>* MemberLogsService::Read(
    grpc::CallbackServerContext* call, const MemberLogRequest* request) {
  const auto reader = std::make_shared<Reader>(this, call, request->follow());
  reader->Own(reader);
  Reader* const reactor = reader.get();
  auto open = MakeOpener(*call, *request);
  absl::Status status = open.status();
  if (status.ok()) {
    reactor->SetOpener(*std::move(open));
    MutexLock lock(&mu_);
    std::erase_if(readers_, [](const auto& r) { return r.expired(); });
    if (stopped_) {
      status = Ends();
    } else if (readers_.size() >= kReadersMax) {
      status = absl::ResourceExhaustedError(
          absl::StrCat(kReadersMax, " calls read this process's logs already"));
    } else {
      readers_.push_back(reader);
      if (!pump_.has_value()) {
        pump_.emplace("job-logs", kPeriod, [this] { Serve(); });
      }
      pump_->RunSoon();
    }
  }
  if (!status.ok()) reactor->End(status);
  return reactor;
}

void MemberLogsService::ServeSoon() {
  MutexLock lock(&mu_);
  if (!stopped_ && pump_.has_value()) pump_->RunSoon();
}

void MemberLogsService::Serve() {
  std::vector<std::weak_ptr<Reader>> readers;
  {
    MutexLock lock(&mu_);
    readers = readers_;
  }
  const absl::Time now = MonotonicNow();
  for (const auto& weak : readers) {
    if (const auto reader = weak.lock()) reader->Advance(now, stall_limit_);
  }
}

}  // namespace syncline

#include "tests/testing/row_client.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/system/local_socket.h"
#include "common/system/shared_region.h"
#include "tests/testing/assignment_builder.h"
#include "worker/client/transport/shm_call.h"
#include "worker/client/transport/shm_registration.h"

namespace syncline {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(120);
constexpr absl::Duration kRetryDelay = absl::Milliseconds(20);
constexpr char kPush[] = "/syncline.ParameterServer/Push";
constexpr char kPull[] = "/syncline.ParameterServer/Pull";

// Bytes that outlive the call.
template <typename T>
grpc::Slice Borrow(absl::Span<const T> values) {
  return grpc::Slice(values.data(), values.size() * sizeof(T),
                     grpc::Slice::STATIC_SLICE);
}

}  // namespace

// Makes calls of one method, so many at a time.
class RowClient::Window {
 public:
  // `shared` is null where payloads go over the network.
  Window(grpc::GenericStub* stub, std::shared_ptr<worker::SharedLink> shared,
         Calls calls)
      : stub_(stub), shared_(std::move(shared)), calls_(std::move(calls)) {}

  absl::Status Run(int in_flight) {
    for (int i = 0; i < in_flight; ++i) StartNext();
    MutexLock lock(&mu_);
    while (done_ < calls_.count && status_.ok()) {
      changed_.WaitUntil(&mu_, absl::Now() + kRetryDelay);
      std::deque<size_t> again = std::exchange(refused_, {});
      if (again.empty()) continue;
      retries_.insert(retries_.end(), again.begin(), again.end());
      const size_t starts = again.size();
      mu_.Unlock();
      for (size_t i = 0; i < starts; ++i) StartNext();
      mu_.Lock();
    }
    while (running_ > 0) changed_.WaitUntil(&mu_, absl::Now() + kTimeout);
    return status_;
  }
  uint64_t refusals() const { return refusals_; }

 private:
  struct Call {
    size_t index = 0;
    std::unique_ptr<grpc::ClientContext> context;
    grpc::ByteBuffer request;
    grpc::ByteBuffer response;
    worker::ShmCall shared;
  };

  void StartNext() {
    auto call = std::make_shared<Call>();
    {
      MutexLock lock(&mu_);
      if (!status_.ok()) return;
      if (!retries_.empty()) {
        call->index = retries_.front();
        retries_.pop_front();
      } else if (next_ < calls_.count) {
        call->index = next_++;
      } else {
        return;
      }
      ++running_;
    }
    call->request = calls_.request(call->index);
    if (shared_ != nullptr && !Share(call.get())) {
      return OnDone(call.get(),
                    absl::ResourceExhaustedError("no room in shared memory"));
    }
    call->context = MakeContext(absl::Now() + kTimeout);
    stub_->UnaryCall(call->context.get(), calls_.method, grpc::StubOptions(),
                     &call->request, &call->response,
                     [this, call](grpc::Status status) {
                       // The context holds the channel, which must not end on
                       // gRPC's own thread: OnDone may release the rest.
                       call->context.reset();
                       OnDone(call.get(), FromGrpcStatus(status));
                     });
  }

  // Moves the payload into shared memory; false if there is no room.
  bool Share(Call* call) {
    std::optional<grpc::ByteBuffer> request = call->shared.Prepare(
        shared_, call->request,
        calls_.answer_bytes ? calls_.answer_bytes(call->index) : 0);
    if (request.has_value()) call->request = std::move(*request);
    return request.has_value();
  }

  void OnDone(Call* call, absl::Status status) {
    if (shared_ != nullptr && status.ok()) {
      status = call->shared.TakeAnswer(&call->response).status();
    } else if (shared_ != nullptr) {
      call->shared.OnError(status);
    }
    const bool refused = absl::IsResourceExhausted(status);
    {
      MutexLock lock(&mu_);
      if (status.ok() && calls_.answer) {
        status = calls_.answer(call->index, call->response);
      }
    }
    // Before its memory is needed again.
    call->response.Clear();
    call->shared.Clear();
    if (!refused) StartNext();
    MutexLock lock(&mu_);
    --running_;
    if (refused) {
      ++refusals_;
      refused_.push_back(call->index);
    } else if (status.ok()) {
      ++done_;
    } else {
      status_ = status;
    }
    if (done_ == calls_.count || !status_.ok()) changed_.Signal();
  }

  grpc::GenericStub* const stub_;
  const std::shared_ptr<worker::SharedLink> shared_;
  const Calls calls_;
  Mutex mu_;
  CondVar changed_;
  absl::Status status_;
  size_t next_ = 0;
  size_t done_ = 0;
  size_t running_ = 0;
  std::deque<size_t> refused_;  // wait a little
  std::deque<size_t> retries_;  // may go
  uint64_t refusals_ = 0;
};

RowClient::RowClient(const std::string& address, uint32_t rank,
                     const TableMap& map, uint32_t shard, uint32_t dim)
    : channel_(MakeChannel(address)),
      stub_(channel_),
      rank_(rank),
      map_(map),
      shard_(shard),
      dim_(dim) {}

Caller RowClient::MakeCaller() const {
  Caller caller;
  caller.set_job_id("j-0001");
  caller.set_rank(rank_);
  caller.set_incarnation(kTestWorkerIncarnation + rank_);
  caller.set_routing_version(1);
  caller.set_shard(shard_);
  caller.set_attempt(kTestPass.attempt);
  caller.set_job_secret(kTestPass.secret);
  return caller;
}

RowBatch RowClient::MakeBatch(absl::Span<const int64_t> keys) const {
  RowBatch batch;
  for (const int64_t key : keys) {
    if (map_.ShardOf(key) == shard_) batch.keys.push_back(key);
  }
  std::sort(batch.keys.begin(), batch.keys.end(),
            [&](int64_t a, int64_t b) { return map_.Before(a, b); });
  std::vector<SlotRun> runs;
  const absl::Status cut = map_.CutBySlot(batch.keys, shard_, &runs);
  if (!cut.ok()) return {};
  batch.slots = static_cast<uint32_t>(runs.size());
  const size_t rows_max =
      kChunkBytesMax / (sizeof(int64_t) + dim_ * sizeof(float));
  for (const SlotRun& run : runs) {
    if (batch.parts.empty() ||
        batch.parts.back().count + run.count > rows_max) {
      batch.parts.push_back({run.first, 0});
    }
    batch.parts.back().count += run.count;
  }
  return batch;
}

std::vector<RowClient::Message> RowClient::Messages(
    absl::Span<const RowBatch* const> batches, int64_t first_clock) {
  std::vector<Message> messages;
  for (size_t i = 0; i < batches.size(); ++i) {
    for (const RowBatch::Part& part : batches[i]->parts) {
      messages.push_back(
          {batches[i], part, first_clock + static_cast<int64_t>(i)});
    }
  }
  return messages;
}

absl::Span<const int64_t> RowClient::KeysOf(const Message& message) {
  return absl::MakeConstSpan(message.batch->keys)
      .subspan(message.part.first, message.part.count);
}

absl::Status RowClient::Init() {
  InitRequest request;
  *request.mutable_header()->mutable_caller() = MakeCaller();
  if (shard_ == 0) {  // the job's only dense block is there
    request.mutable_header()->add_blocks(0);
    request.set_payload(std::string(sizeof(float), '\0'));
  }
  InitResponse response;
  return FromGrpcStatus(ParameterServer::NewStub(channel_)->Init(
      MakeContext(absl::Now() + kTimeout).get(), request, &response));
}

absl::Status RowClient::ShareMemory(size_t bytes) {
  worker::ShmRegistration::Options options;
  options.caller = MakeCaller();
  options.boot_id = BootId();
  options.deadline = absl::Now() + kTimeout;
  options.region = [bytes] { return SharedRegion::Create(bytes); };
  Mutex mu;
  CondVar done;
  std::optional<worker::ShmRegistration::Result> result;
  const auto registration = std::make_shared<worker::ShmRegistration>(
      options, &stub_, [&](worker::ShmRegistration::Result handed) {
        MutexLock lock(&mu);
        result = std::move(handed);
        done.Signal();
      });
  registration->Start();
  MutexLock lock(&mu);
  while (!result.has_value()) done.WaitUntil(&mu, absl::Now() + kTimeout);
  SYNCLINE_RETURN_IF_ERROR(result->status);
  shared_ = std::make_shared<worker::SharedLink>(
      std::move(result->region), result->name, std::move(result->connection));
  return absl::OkStatus();
}

void RowClient::SetPath(Path path) {
  SYNCLINE_CHECK(path == Path::kNetwork || shared_ != nullptr);
  path_ = path;
}

absl::Status RowClient::Run(Calls calls, int in_flight) {
  Window window(&stub_, path_ == Path::kSharedMemory ? shared_ : nullptr,
                std::move(calls));
  absl::Status status = window.Run(in_flight);
  refusals_ += window.refusals();
  return status;
}

absl::Status RowClient::Push(absl::Span<const RowBatch* const> batches,
                             absl::Span<const float> gradients, int in_flight) {
  const std::vector<Message> messages = Messages(batches, clock_);
  clock_ += static_cast<int64_t>(batches.size());
  const auto request = [&](size_t i) {
    const Message& message = messages[i];
    PushHeader header;
    *header.mutable_caller() = MakeCaller();
    header.set_clock(message.clock);
    header.set_sample_count(1);
    header.set_blocks_in_clock(message.batch->slots);
    header.add_tables()->set_rows(static_cast<uint32_t>(message.part.count));
    return EncodeFrame(header,
                       {Borrow(KeysOf(message)),
                        Borrow(gradients.subspan(message.part.first * dim_,
                                                 message.part.count * dim_))});
  };
  return Run({.method = kPush, .count = messages.size(), .request = request},
             in_flight);
}

absl::Status RowClient::Pull(absl::Span<const RowBatch* const> batches,
                             int in_flight, const OnRows& rows) {
  const std::vector<Message> messages = Messages(batches, clock_);
  const auto request = [&](size_t i) {
    PullHeader header;
    *header.mutable_caller() = MakeCaller();
    header.set_clock(clock_);
    header.set_wait_seconds(absl::ToDoubleSeconds(kTimeout));
    header.add_tables()->set_rows(
        static_cast<uint32_t>(messages[i].part.count));
    return EncodeFrame(header, {Borrow(KeysOf(messages[i]))});
  };
  const auto answer_bytes = [&](size_t i) {
    return messages[i].part.count * dim_ * sizeof(float);
  };
  const auto answer = [&](size_t i,
                          const grpc::ByteBuffer& response) -> absl::Status {
    PullResponseHeader header;
    PayloadView values;
    SYNCLINE_RETURN_IF_ERROR(DecodeFrame(response, &header, &values));
    if (values.size_bytes() != answer_bytes(i)) {
      return absl::InternalError("answered with another number of rows");
    }
    if (rows) rows(KeysOf(messages[i]), values);
    return absl::OkStatus();
  };
  return Run({.method = kPull,
              .count = messages.size(),
              .request = request,
              .answer_bytes = answer_bytes,
              .answer = answer},
             in_flight);
}

absl::StatusOr<ShardStatus> RowClient::Status() {
  ShardStatus status;
  SYNCLINE_RETURN_IF_ERROR(
      FromGrpcStatus(ParameterServer::NewStub(channel_)->GetShardStatus(
          MakeContext(absl::Now() + kTimeout).get(), ShardStatusRequest(),
          &status)));
  return status;
}

}  // namespace syncline

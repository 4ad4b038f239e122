#include "tests/testing/row_client.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "tests/testing/ps_processes.h"

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

// Makes `count` calls of one method, so many at a time.
class RowClient::Window {
 public:
  Window(grpc::GenericStub* stub, const char* method, size_t count,
         std::function<grpc::ByteBuffer(size_t)> request,
         std::function<absl::Status(size_t, const grpc::ByteBuffer&)> answer)
      : stub_(stub),
        method_(method),
        count_(count),
        request_(std::move(request)),
        answer_(std::move(answer)) {}

  absl::Status Run(int in_flight) {
    for (int i = 0; i < in_flight; ++i) StartNext();
    MutexLock lock(&mu_);
    while (done_ < count_ && status_.ok()) {
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
  };

  void StartNext() {
    auto call = std::make_shared<Call>();
    {
      MutexLock lock(&mu_);
      if (!status_.ok()) return;
      if (!retries_.empty()) {
        call->index = retries_.front();
        retries_.pop_front();
      } else if (next_ < count_) {
        call->index = next_++;
      } else {
        return;
      }
      ++running_;
    }
    call->request = request_(call->index);
    call->context = MakeContext(absl::Now() + kTimeout);
    stub_->UnaryCall(call->context.get(), method_, grpc::StubOptions(),
                     &call->request, &call->response,
                     [this, call](grpc::Status status) {
                       // It holds the channel, which must not end here, on
                       // gRPC's own thread: OnDone may let go of the others.
                       call->context.reset();
                       OnDone(*call, FromGrpcStatus(status));
                     });
  }

  void OnDone(const Call& call, absl::Status status) {
    const bool refused = absl::IsResourceExhausted(status);
    {
      MutexLock lock(&mu_);
      if (status.ok() && answer_) status = answer_(call.index, call.response);
    }
    if (!refused) StartNext();
    MutexLock lock(&mu_);
    --running_;
    if (refused) {
      ++refusals_;
      refused_.push_back(call.index);
    } else if (status.ok()) {
      ++done_;
    } else {
      status_ = status;
    }
    if (done_ == count_ || !status_.ok()) changed_.Signal();
  }

  grpc::GenericStub* const stub_;
  const char* const method_;
  const size_t count_;
  const std::function<grpc::ByteBuffer(size_t)> request_;
  const std::function<absl::Status(size_t, const grpc::ByteBuffer&)> answer_;
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

absl::Status RowClient::Init() {
  InitRequest request;
  *request.mutable_header()->mutable_caller() = MakeCaller();
  request.mutable_header()->add_blocks(0);
  request.set_payload(std::string(sizeof(float), '\0'));
  InitResponse response;
  return FromGrpcStatus(ParameterServer::NewStub(channel_)->Init(
      MakeContext(absl::Now() + kTimeout).get(), request, &response));
}

absl::Status RowClient::Push(absl::Span<const RowBatch* const> batches,
                             absl::Span<const float> gradients, int in_flight) {
  const std::vector<Message> messages = Messages(batches, clock_);
  clock_ += static_cast<int64_t>(batches.size());
  Window window(
      &stub_, kPush, messages.size(),
      [&](size_t i) {
        const Message& message = messages[i];
        PushHeader header;
        *header.mutable_caller() = MakeCaller();
        header.set_clock(message.clock);
        header.set_sample_count(1);
        header.set_blocks_in_clock(message.batch->slots);
        header.add_tables()->set_rows(
            static_cast<uint32_t>(message.part.count));
        return EncodeFrame(
            header,
            {Borrow(absl::MakeConstSpan(message.batch->keys)
                        .subspan(message.part.first, message.part.count)),
             Borrow(gradients.subspan(message.part.first * dim_,
                                      message.part.count * dim_))});
      },
      nullptr);
  const absl::Status pushed = window.Run(in_flight);
  refusals_ += window.refusals();
  return pushed;
}

absl::Status RowClient::Pull(absl::Span<const RowBatch* const> batches,
                             int in_flight, const OnRows& rows) {
  const std::vector<Message> messages = Messages(batches, clock_);
  Window window(
      &stub_, kPull, messages.size(),
      [&](size_t i) {
        const Message& message = messages[i];
        PullHeader header;
        *header.mutable_caller() = MakeCaller();
        header.set_clock(clock_);
        header.set_wait_seconds(absl::ToDoubleSeconds(kTimeout));
        header.add_tables()->set_rows(
            static_cast<uint32_t>(message.part.count));
        return EncodeFrame(
            header,
            {Borrow(absl::MakeConstSpan(message.batch->keys)
                        .subspan(message.part.first, message.part.count))});
      },
      [&](size_t i, const grpc::ByteBuffer& response) -> absl::Status {
        const RowBatch::Part& part = messages[i].part;
        PullResponseHeader header;
        PayloadView values;
        SYNCLINE_RETURN_IF_ERROR(DecodeFrame(response, &header, &values));
        if (values.size_bytes() != part.count * dim_ * sizeof(float)) {
          return absl::InternalError("answered with another number of rows");
        }
        if (rows) {
          rows(absl::MakeConstSpan(messages[i].batch->keys)
                   .subspan(part.first, part.count),
               values);
        }
        return absl::OkStatus();
      });
  const absl::Status pulled = window.Run(in_flight);
  refusals_ += window.refusals();
  return pulled;
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

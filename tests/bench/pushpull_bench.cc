// The product's inner loop: 64 MiB of gradients to a ps in another process over
// TCP loopback, an SGD step there, 64 MiB of values back; against gRPC alone,
// which echoes the same bytes in the same messages.

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/crc32c.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/wire/block_map.h"
#include "common/wire/frame.h"
#include "grpcpp/generic/generic_stub.h"
#include "tests/bench/benchmarks.h"
#include "tests/bench/serve.h"
#include "tests/testing/process_memory.h"
#include "worker/message_call.h"
#include "worker/ps_client.h"
#include "worker/send_window.h"

namespace syncline {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);

// Sends `values` in messages of `chunk_bytes`, at most `window_bytes` leaving
// at a time, as the worker's client does, and takes back what comes.
class EchoClient {
 public:
  EchoClient(const std::string& address, size_t chunk_bytes,
             size_t window_bytes, const std::vector<float>& values)
      : stub_(MakeChannel(address)), window_(window_bytes) {
    const char* data = reinterpret_cast<const char*>(values.data());
    const size_t bytes = values.size() * sizeof(float);
    for (size_t at = 0; at < bytes; at += chunk_bytes) {
      const grpc::Slice slice(data + at, std::min(chunk_bytes, bytes - at),
                              grpc::Slice::STATIC_SLICE);
      calls_.emplace_back().request = grpc::ByteBuffer(&slice, 1);
    }
  }

  absl::Status RoundTrip() {
    std::vector<Call*> first;
    {
      MutexLock lock(&mu_);
      pending_ = calls_.size();
      status_ = absl::OkStatus();
      for (Call& call : calls_) {
        if (window_.TryEnter(call.request.Length(), &call)) {
          first.push_back(&call);
        }
      }
    }
    for (Call* call : first) Start(call);
    MutexLock lock(&mu_);
    while (pending_ > 0) done_.WaitUntil(&mu_, absl::Now() + kTimeout);
    return status_;
  }

  // Everything came back as it went.
  absl::Status Verify() const {
    for (const Call& call : calls_) {
      if (Checksum(call.request) != Checksum(call.response)) {
        return absl::InternalError("the echo changed a byte");
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Call {
    std::unique_ptr<grpc::ClientContext> context;
    grpc::ByteBuffer request;
    grpc::ByteBuffer response;
  };

  static uint32_t Checksum(const grpc::ByteBuffer& buffer) {
    std::vector<grpc::Slice> slices;
    uint32_t crc = 0;
    if (!buffer.Dump(&slices).ok()) return 0;
    for (const grpc::Slice& slice : slices) {
      crc = ExtendCrc32c(
          crc, {reinterpret_cast<const char*>(slice.begin()), slice.size()});
    }
    return crc;
  }

  void Start(Call* call) {
    call->response.Clear();
    call->context = MakeContext(absl::Now() + kTimeout);
    MessageCall message;
    message.context = call->context.get();
    message.method = "/syncline.ParameterServer/PushPull";
    message.request = &call->request;
    message.response = &call->response;
    message.on_sent = [this, call] { OnSent(call->request.Length()); };
    message.on_taken = [] {};
    message.on_done = [this](const grpc::Status& status) { OnDone(status); };
    StartMessageCall(&stub_, std::move(message));
  }

  void OnSent(size_t bytes) {
    std::vector<Call*> next;
    {
      MutexLock lock(&mu_);
      next = window_.Leave(bytes);
    }
    for (Call* call : next) Start(call);
  }

  void OnDone(const grpc::Status& status) {
    MutexLock lock(&mu_);
    if (!status.ok()) status_ = FromGrpcStatus(status);
    if (--pending_ == 0) done_.Signal();
  }

  grpc::GenericStub stub_;
  std::deque<Call> calls_;
  Mutex mu_;
  CondVar done_;
  SendWindow<Call*> window_ ABSL_GUARDED_BY(mu_);
  size_t pending_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

// A worker's client and its memory.
class PsTrainer {
 public:
  PsTrainer(const std::string& address, int64_t elements)
      : values_(elements), gradient_(elements) {
    Random random(1);
    for (float& value : values_) value = static_cast<float>(random.Uniform());
    for (float& g : gradient_) g = static_cast<float>(random.Uniform() - 0.5);
    expected_ = values_;
    PsClient::Options options;
    options.job_id = "bench";
    options.incarnation = kBenchWorkerIncarnation;
    options.ps = {{"ps:0", address}};
    options.step_timeout = kTimeout;
    PsClient::Tensors tensors;
    tensors.values = {absl::MakeSpan(values_)};
    tensors.gradients = {absl::MakeConstSpan(gradient_)};
    client_ = std::make_unique<PsClient>(
        options, *BlockMap::Create({{TensorSize{"w", elements}}}, 1),
        std::move(tensors));
  }

  absl::Status Init() { return client_->Init(/*total_clocks=*/0); }
  absl::Status Step() {
    client_->BeginStep({.clock = clock_++, .sample_count = kSamples});
    client_->OnGradientReady(0);
    client_->EndBackward();
    return client_->Wait();
  }
  // REQUIRES: SGD at rate 1, one Step since the last Verify (or Init).
  absl::Status Verify() {
    for (size_t i = 0; i < values_.size(); ++i) {
      expected_[i] -= gradient_[i] * (1.0f / kSamples);
      if (values_[i] != expected_[i]) {
        return absl::InternalError(absl::StrCat(
            "element ", i, " is ", values_[i], ", expected ", expected_[i]));
      }
    }
    return absl::OkStatus();
  }
  const std::vector<float>& gradient() const { return gradient_; }
  uint32_t Checksum() const {
    return Crc32c({reinterpret_cast<const char*>(values_.data()),
                   values_.size() * sizeof(float)});
  }

 private:
  static constexpr uint64_t kSamples = 32;
  std::vector<float> values_;
  std::vector<float> gradient_;
  std::vector<float> expected_;
  std::unique_ptr<PsClient> client_;
  int64_t clock_ = 0;
};

// Adds what the ps has needed, and fails if that is more than is promised.
absl::Status CheckMemory(const std::string& optimizer, pid_t ps,
                         double state_bytes, Report* report) {
  const double most = static_cast<double>(ProcessMemoryBytes(ps, "VmHWM"));
  const double limit = PsMemoryLimitBytes(state_bytes, 0);
  report->Add(absl::StrCat(optimizer, ": memory at most (VmHWM)"), "MiB",
              most / kMiB);
  report->Add(absl::StrCat(optimizer, ": memory allowed"), "MiB", limit / kMiB);
  if (most <= limit) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the ps has had ", most / kMiB, " MiB resident with ",
                   optimizer, ", promised are at most ", limit / kMiB));
}

// Adam's state is three times its parameters, and its step takes longer than
// the network: gradients would pile up if anything let them.
absl::Status CheckMemoryWithAdam(int64_t elements, int steps, Report* report) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto ps,
                            ServedPeer::Ps(elements, OptimizerSpec::ADAM));
  PsTrainer trainer(ps->address(), elements);
  SYNCLINE_RETURN_IF_ERROR(trainer.Init());
  for (int i = 0; i < steps; ++i) SYNCLINE_RETURN_IF_ERROR(trainer.Step());
  return CheckMemory("Adam", ps->pid(), 3.0 * sizeof(float) * elements, report);
}

template <typename Run>
absl::StatusOr<double> TimeMs(Run run) {
  const absl::Time begin = absl::Now();
  SYNCLINE_RETURN_IF_ERROR(run());
  return absl::ToDoubleMilliseconds(absl::Now() - begin);
}

}  // namespace

absl::Status RunPushPullBench(const BenchOptions& options, Report* report) {
  const int64_t elements = options.smoke ? 1 << 20 : 16 << 20;
  const PsClient::Options client;
  const double megabytes = elements * sizeof(float) / kMiB;
  SYNCLINE_ASSIGN_OR_RETURN(const auto ps,
                            ServedPeer::Ps(elements, OptimizerSpec::SGD));
  SYNCLINE_ASSIGN_OR_RETURN(const auto echo, ServedPeer::Echo());
  PsTrainer trainer(ps->address(), elements);
  EchoClient echoing(echo->address(), client.chunk_bytes,
                     client.push_window_bytes, trainer.gradient());

  SYNCLINE_RETURN_IF_ERROR(trainer.Init());
  for (int i = 0; i < 2; ++i) {
    SYNCLINE_RETURN_IF_ERROR(trainer.Step());
    SYNCLINE_RETURN_IF_ERROR(trainer.Verify());
    SYNCLINE_RETURN_IF_ERROR(echoing.RoundTrip());
    SYNCLINE_RETURN_IF_ERROR(echoing.Verify());
  }
  for (int i = 0; i < options.repetitions; ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(const double echo_ms,
                              TimeMs([&] { return echoing.RoundTrip(); }));
    SYNCLINE_ASSIGN_OR_RETURN(const double ps_ms,
                              TimeMs([&] { return trainer.Step(); }));
    report->Add("gRPC echo", "ms", echo_ms);
    report->Add("PushPull", "ms", ps_ms);
    report->Add("gRPC echo, each way", "MiB/s", megabytes / echo_ms * 1000);
    report->Add("PushPull, each way", "MiB/s", megabytes / ps_ms * 1000);
  }
  report->Set("optimizer", "SGD");
  report->Set("values", absl::StrCat(megabytes, " MiB"));
  report->Set("messages", absl::StrCat(client.chunk_bytes >> 10, " KiB"));
  report->Set("leaving at a time",
              absl::StrCat(client.push_window_bytes >> 10, " KiB"));
  report->Set("result crc32c", absl::Hex(trainer.Checksum()));
  report->AddRatio("rate against echo", "PushPull, each way",
                   "gRPC echo, each way", 0.6);

  SYNCLINE_RETURN_IF_ERROR(
      CheckMemory("SGD", ps->pid(), sizeof(float) * elements, report));
  return CheckMemoryWithAdam(elements, options.repetitions, report);
}

}  // namespace syncline

// The product's inner loop: gradients to a ps in another process, an SGD step
// there, values back. Sizes and ways of transport, each against the least that
// could be done with the same bytes: gRPC alone, which echoes them in the same
// messages, or one memcpy.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/aligned_buffer.h"
#include "common/base/crc32c.h"
#include "common/base/element_type.h"
#include "common/base/status_macros.h"
#include "common/system/shared_region.h"
#include "common/wire/block_map.h"
#include "tests/bench/benchmarks.h"
#include "tests/bench/echo_client.h"
#include "tests/bench/serve.h"
#include "tests/bench/tls_files.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/eventually.h"
#include "tests/testing/process_memory.h"
#include "worker/client/ps_client.h"

namespace syncline {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);
constexpr int64_t kElementsPerMiB = (1 << 20) / sizeof(float);
// The smallest that is asked for: a row of 16.
constexpr int64_t kSmallest = 16;

class LinkCount final : public Gauge {
 public:
  void Set(double value) override { value_ = static_cast<int>(value); }
  void Add(double amount) override { value_ += static_cast<int>(amount); }
  bool any() const { return value_ > 0; }

 private:
  std::atomic<int> value_{0};
};

// A worker's client, its memory, and a ps of its own. Values and gradients are
// whole numbers and SGD's rate is 1, so results are exact after any number of
// steps.
class DenseWorker {
 public:
  enum class Path { kNetwork, kSharedMemory };

  static absl::StatusOr<std::unique_ptr<DenseWorker>> Start(
      const ServedPeer::Tensors& tensors, Path path,
      OptimizerSpec::Kind optimizer = OptimizerSpec::SGD) {
    auto worker = std::make_unique<DenseWorker>(tensors);
    SYNCLINE_ASSIGN_OR_RETURN(worker->ps_, ServedPeer::Ps(tensors, optimizer));
    worker->Connect(path);
    if (path == Path::kSharedMemory &&
        !Eventually(kTimeout, [&] { return worker->links_.any(); })) {
      return absl::UnavailableError("no shared memory");
    }
    SYNCLINE_RETURN_IF_ERROR(worker->client_->Init(/*total_clocks=*/0));
    for (int i = 0; i < 2 && optimizer == OptimizerSpec::SGD; ++i) {
      SYNCLINE_RETURN_IF_ERROR(worker->Step());
      SYNCLINE_RETURN_IF_ERROR(worker->Verify());
    }
    return worker;
  }

  explicit DenseWorker(const ServedPeer::Tensors& tensors)
      : tensors_(tensors),
        values_(tensors.count * tensors.elements),
        gradient_(*SharedRegion::Create(values_.size() * sizeof(float))) {
    const absl::Span<float> gradient = {
        reinterpret_cast<float*>(gradient_->data()), values_.size()};
    for (size_t i = 0; i < values_.size(); ++i) {
      values_.data()[i] = InitialValue(i);
      gradient[i] = kSamples * Change(i);
    }
  }

  absl::Status Step() {
    client_->BeginStep({.clock = clock_++, .sample_count = kSamples});
    for (uint32_t i = tensors_.count; i-- > 0;) client_->OnGradientReady(i);
    client_->EndBackward({});
    return client_->Wait();
  }
  absl::Status Verify() const {
    for (size_t i = 0; i < values_.size(); ++i) {
      float expected = InitialValue(i) - static_cast<float>(clock_) * Change(i);
      uint32_t travelled = 0;
      Narrow(Type(), &expected, &travelled, 1);
      Widen(Type(), &travelled, &expected, 1);
      if (values_.data()[i] != expected) {
        return absl::InternalError(
            absl::StrCat("after ", clock_, " steps element ", i, " is ",
                         values_.data()[i], ", expected ", expected));
      }
    }
    return absl::OkStatus();
  }

  absl::Span<const float> gradient() const {
    return {reinterpret_cast<const float*>(gradient_->data()), values_.size()};
  }
  uint32_t Checksum() const {
    return Crc32c({reinterpret_cast<const char*>(values_.data()),
                   values_.size() * sizeof(float)});
  }
  const ServedPeer& ps() const { return *ps_; }

 private:
  static constexpr uint64_t kSamples = 32;

  static float InitialValue(size_t i) { return static_cast<float>(i % 1009); }
  static float Change(size_t i) { return static_cast<float>(i % 7) - 3; }

  ElementType Type() const {
    return tensors_.wire_type == WIRE_BFLOAT16 ? ElementType::kBfloat16
                                               : ElementType::kFloat32;
  }
  void Connect(Path path) {
    worker::PsClient::Options options;
    options.regimes = RegimeSchedule(TrainingRegime{.wire_type = Type()});
    options.job_id = "bench";
    options.incarnation = kTestWorkerIncarnation;
    options.pass = kTestPass;
    options.ps = {{"ps:0", ps_->address()}};
    options.step_timeout = kTimeout;
    options.shared_memory = path == Path::kSharedMemory;
    options.telemetry.shared_links = &links_;
    worker::DenseTensors memory;
    memory.gradient_region = gradient_;
    std::vector<TensorSize> sizes;
    for (uint32_t i = 0; i < tensors_.count; ++i) {
      const size_t first = i * static_cast<size_t>(tensors_.elements);
      const auto count = static_cast<size_t>(tensors_.elements);
      sizes.push_back({absl::StrCat("w", i), tensors_.elements});
      memory.values.push_back(values_.span().subspan(first, count));
      memory.gradients.push_back(gradient().subspan(first, count));
    }
    client_ = std::make_unique<worker::PsClient>(
        options, *BlockMap::Create(sizes, 1), std::move(memory));
  }

  const ServedPeer::Tensors tensors_;
  AlignedFloats values_;
  // Where the executor has it too, if there is a ps on its host.
  const std::shared_ptr<SharedRegion> gradient_;
  LinkCount links_;
  std::unique_ptr<ServedPeer> ps_;
  std::unique_ptr<worker::PsClient> client_;
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
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto worker,
      DenseWorker::Start({1, elements}, DenseWorker::Path::kNetwork,
                         OptimizerSpec::ADAM));
  for (int i = 0; i < steps; ++i) SYNCLINE_RETURN_IF_ERROR(worker->Step());
  return CheckMemory("Adam", worker->ps().pid(),
                     3.0 * sizeof(float) * static_cast<double>(elements),
                     report);
}

// Milliseconds of one of `count` runs.
template <typename Run>
absl::StatusOr<double> TimeMs(int count, Run run) {
  const absl::Time begin = absl::Now();
  for (int i = 0; i < count; ++i) SYNCLINE_RETURN_IF_ERROR(run());
  return absl::ToDoubleMilliseconds(absl::Now() - begin) / count;
}

// The measurements, in turn.
class PushPullBench {
 public:
  PushPullBench(const BenchOptions& options, Report* report)
      : options_(options),
        report_(*report),
        megabytes_(options.smoke ? 4 : 64),
        large_megabytes_(options.smoke ? 16 : options.large_mib),
        small_steps_(options.smoke ? 20 : 500),
        bucket_steps_(options.smoke ? 2 : 20) {}

  absl::Status Run() {
    SYNCLINE_RETURN_IF_ERROR(Start());
    for (int i = 0; i < options_.repetitions; ++i) {
      SYNCLINE_RETURN_IF_ERROR(MeasureOnce());
    }
    SYNCLINE_RETURN_IF_ERROR(VerifyAll());
    Conclude();
    return CheckMemories();
  }

 private:
  using Path = DenseWorker::Path;
  struct Load {
    const char* name;
    std::unique_ptr<DenseWorker> worker;
    int steps = 1;
  };

  absl::Status Add(const char* name, uint32_t tensors, int64_t elements,
                   Path path, int steps, WireType wire_type = WIRE_FLOAT32) {
    Load load = {name, nullptr, steps};
    SYNCLINE_ASSIGN_OR_RETURN(
        load.worker, DenseWorker::Start({tensors, elements, wire_type}, path));
    loads_.push_back(std::move(load));
    return absl::OkStatus();
  }

  absl::Status Start() {
    const int64_t elements = megabytes_ * kElementsPerMiB;
    const int64_t large = large_megabytes_ * kElementsPerMiB;
    SYNCLINE_RETURN_IF_ERROR(Add(kNetwork, 1, elements, Path::kNetwork, 1));
    SYNCLINE_RETURN_IF_ERROR(Add(kShared, 1, elements, Path::kSharedMemory, 1));
    SYNCLINE_RETURN_IF_ERROR(
        Add(kNarrow, 1, elements, Path::kNetwork, 1, WIRE_BFLOAT16));
    SYNCLINE_RETURN_IF_ERROR(
        Add(kNarrowShared, 1, elements, Path::kSharedMemory, 1, WIRE_BFLOAT16));
    SYNCLINE_RETURN_IF_ERROR(Add(kLarge, 1, large, Path::kNetwork, 1));
    SYNCLINE_RETURN_IF_ERROR(
        Add(kMany, 1000, 256, Path::kNetwork, bucket_steps_));
    SYNCLINE_RETURN_IF_ERROR(
        Add(kOne, 1, kElementsPerMiB, Path::kNetwork, bucket_steps_));
    SYNCLINE_RETURN_IF_ERROR(
        Add(kSmall, 1, kSmallest, Path::kNetwork, small_steps_));
    if (options_.tls) SYNCLINE_RETURN_IF_ERROR(StartTls(elements));
    const worker::PsClient::Options client;
    const absl::Span<const float> gradient = loads_[0].worker->gradient();
    SYNCLINE_ASSIGN_OR_RETURN(echo_peer_, ServedPeer::Echo());
    echo_ =
        std::make_unique<EchoClient>(echo_peer_->address(), client.chunk_bytes,
                                     client.push_window_bytes, gradient);
    small_echo_ = std::make_unique<EchoClient>(
        echo_peer_->address(), client.chunk_bytes, client.push_window_bytes,
        gradient.subspan(0, kSmallest));
    for (EchoClient* echo : {echo_.get(), small_echo_.get()}) {
      SYNCLINE_RETURN_IF_ERROR(echo->RoundTrip());
      SYNCLINE_RETURN_IF_ERROR(echo->Verify());
    }
    copied_ = AlignedFloats(gradient.size());
    return absl::OkStatus();
  }

  // The same two loads by TLS, each through a ps of its own; and the cipher
  // alone.
  absl::Status StartTls(int64_t elements) {
    tls_ = std::make_unique<TlsBenchFiles>();
    SYNCLINE_ASSIGN_OR_RETURN(const auto security, tls_->Worker());
    SetProcessSecurity(security);
    tls_->SetForServed(true);
    SYNCLINE_RETURN_IF_ERROR(Add(kTls, 1, elements, Path::kNetwork, 1));
    SYNCLINE_RETURN_IF_ERROR(
        Add(kSmallTls, 1, kSmallest, Path::kNetwork, small_steps_));
    tls_->SetForServed(false);
    SetProcessSecurity(nullptr);
    return absl::OkStatus();
  }

  absl::Status MeasureOnce() {
    SYNCLINE_RETURN_IF_ERROR(
        Measure(kEcho, 1, [&] { return echo_->RoundTrip(); }));
    SYNCLINE_RETURN_IF_ERROR(Measure(kMemcpy, 1, [&] {
      const absl::Span<const float> from = loads_[0].worker->gradient();
      std::memcpy(copied_.data(), from.data(), from.size() * sizeof(float));
      return absl::OkStatus();
    }));
    for (const Load& load : loads_) {
      SYNCLINE_RETURN_IF_ERROR(
          Measure(load.name, load.steps, [&] { return load.worker->Step(); }));
    }
    if (options_.tls) {
      const absl::Span<const float> from = loads_[0].worker->gradient();
      SYNCLINE_RETURN_IF_ERROR(Measure(kAesGcm, 1, [&] {
        return EncryptOnce({reinterpret_cast<const char*>(from.data()),
                            from.size() * sizeof(float)});
      }));
    }
    return Measure(kSmallEcho, small_steps_,
                   [&] { return small_echo_->RoundTrip(); });
  }

  template <typename Run>
  absl::Status Measure(const char* name, int count, Run run) {
    SYNCLINE_ASSIGN_OR_RETURN(const double ms, TimeMs(count, run));
    report_.Add(name, "ms", ms);
    return absl::OkStatus();
  }

  absl::Status VerifyAll() const {
    for (const Load& load : loads_) {
      SYNCLINE_RETURN_IF_ERROR(load.worker->Verify());
    }
    return absl::OkStatus();
  }

  void Conclude() {
    const worker::PsClient::Options client;
    report_.Set("optimizer", "SGD");
    report_.Set("values", absl::StrCat(megabytes_, " MiB"));
    report_.Set("large", absl::StrCat(large_megabytes_, " MiB"));
    report_.Set("messages", absl::StrCat(client.chunk_bytes >> 10, " KiB"));
    report_.Set("leaving at a time",
                absl::StrCat(client.push_window_bytes >> 10, " KiB"));
    report_.Set("result crc32c", absl::Hex(loads_[0].worker->Checksum()));
    report_.AddRatio("rate / echo's rate", kEcho, kNetwork, 0.85);
    // The time that its bytes would take at the rate of the first.
    report_.AddScaled("large at that rate", "ms", kNetwork,
                      static_cast<double>(large_megabytes_) / megabytes_);
    report_.AddRatio("rate of large / that rate", "large at that rate", kLarge,
                     0.9);
    report_.AddRatio("time, shared memory / memcpy", kShared, kMemcpy,
                     AtMost(4));
    report_.AddRatio("rate, bfloat16 / float32, TCP", kNetwork, kNarrow);
    report_.AddRatio("rate, bfloat16 / float32, shared memory", kShared,
                     kNarrowShared);
    if (options_.tls) {
      report_.AddRatio("time, TLS / plain, TCP", kTls, kNetwork);
      report_.AddRatio("time, 16 values, TLS / plain", kSmallTls, kSmall);
      // Sent and received, each encrypted once and decrypted once.
      report_.AddScaled("AES-GCM of what a PushPull moves", "ms", kAesGcm, 4);
    }
    report_.AddRatio("time, many tensors / one", kMany, kOne, AtMost(3));
    report_.AddRatio("time, 16 values / echo", kSmall, kSmallEcho, AtMost(1.2));
  }

  // Measures a ps without shared memory, because that memory is the worker's.
  absl::Status CheckMemories() {
    const int64_t elements = megabytes_ * kElementsPerMiB;
    SYNCLINE_RETURN_IF_ERROR(
        CheckMemory("SGD", loads_[0].worker->ps().pid(),
                    sizeof(float) * static_cast<double>(elements), &report_));
    return CheckMemoryWithAdam(elements, options_.repetitions, &report_);
  }

  static constexpr char kEcho[] = "gRPC echo";
  static constexpr char kMemcpy[] = "memcpy";
  static constexpr char kNetwork[] = "PushPull, TCP";
  static constexpr char kShared[] = "PushPull, shared memory";
  static constexpr char kNarrow[] = "PushPull, bfloat16, TCP";
  static constexpr char kNarrowShared[] = "PushPull, bfloat16, shared memory";
  static constexpr char kLarge[] = "PushPull, large, TCP";
  static constexpr char kMany[] = "1,000 tensors of 1 KiB, TCP";
  static constexpr char kOne[] = "one tensor of 1 MiB, TCP";
  static constexpr char kSmall[] = "16 values, TCP";
  static constexpr char kTls[] = "PushPull, TLS";
  static constexpr char kSmallTls[] = "16 values, TLS";
  static constexpr char kAesGcm[] = "AES-128-GCM of the same bytes";
  static constexpr char kSmallEcho[] = "gRPC echo of 16 values";

  const BenchOptions options_;
  Report& report_;
  const int megabytes_;
  const int64_t large_megabytes_;
  const int small_steps_;
  const int bucket_steps_;
  std::unique_ptr<TlsBenchFiles> tls_;  // before who connects with them
  std::vector<Load> loads_;
  std::unique_ptr<ServedPeer> echo_peer_;
  std::unique_ptr<EchoClient> echo_;
  std::unique_ptr<EchoClient> small_echo_;
  AlignedFloats copied_;
};

}  // namespace

absl::Status RunPushPullBench(const BenchOptions& options, Report* report) {
  return PushPullBench(options, report).Run();
}

}  // namespace syncline

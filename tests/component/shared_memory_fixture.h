#ifndef SYNCLINE_TESTS_COMPONENT_SHARED_MEMORY_FIXTURE_H_
#define SYNCLINE_TESTS_COMPONENT_SHARED_MEMORY_FIXTURE_H_

// The parts of shared_memory_test share a worker's client that counts what goes
// through shared memory.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/random.h"
#include "common/regime/job_regimes.h"
#include "common/system/shared_region.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fakes/test_metrics.h"
#include "tests/testing/ps_fixture.h"
#include "worker/client/ps_client.h"

namespace syncline {

using testing::TestCounter;
using testing::TestGauge;

enum class Gradients { kPrivate, kShared };

using Values = std::vector<std::vector<float>>;

// A worker's client with memory of its own.
class SharingClient {
 public:
  SharingClient(PsFixture* fixture, uint32_t rank,
                worker::PsClient::Options options = {},
                Gradients gradients = Gradients::kPrivate)
      : gradient_memory_(*SharedRegion::Create(fixture->map().element_count() *
                                               sizeof(float))) {
    auto* at = reinterpret_cast<float*>(gradient_memory_->data());
    Random random(rank + 1);
    worker::DenseTensors tensors;
    for (const ParameterInfo& info : fixture->assignment().parameters()) {
      const auto count = static_cast<size_t>(info.dims(0));
      values_.emplace_back(count);
      gradients_.push_back({at, count});
      at += count;
      for (float& g : gradients_.back()) {
        g = static_cast<float>(random.Uniform() - 0.5);
      }
    }
    for (auto& v : values_) tensors.values.push_back(absl::MakeSpan(v));
    for (const auto& g : gradients_) tensors.gradients.push_back(g);
    if (gradients == Gradients::kShared) {
      tensors.gradient_region = gradient_memory_;
    }
    options.regimes = *ReadRegimes(fixture->assignment());
    options.job_id = "j-0001";
    options.rank = rank;
    options.incarnation = 100 + rank;
    options.pass = kTestPass;
    for (uint32_t ps = 0; ps < fixture->ps_count(); ++ps) {
      options.ps.push_back({absl::StrCat("ps:", ps), fixture->address(ps)});
    }
    options.step_timeout = kPsTimeout;
    options.telemetry.shared_links = &links_;
    options.telemetry.shared_pushed_bytes = &pushed_;
    options.telemetry.shared_pulled_bytes = &pulled_;
    options.telemetry.on_shared_fallback =
        [this](worker::SharedFallback reason) {
          ++fallbacks_[static_cast<int>(reason)];
        };
    client_ = std::make_unique<worker::PsClient>(options, fixture->map(),
                                                 std::move(tensors));
  }

  bool AwaitLinks(int64_t count) {
    return Eventually(kPsTimeout, [&] { return links_.value() == count; });
  }
  bool AwaitFallback(worker::SharedFallback reason) {
    return Eventually(kPsTimeout, [&] { return fallbacks(reason) > 0; });
  }
  absl::Status Step(int64_t clock, bool pull = true) {
    client_->BeginStep({.clock = clock, .sample_count = 3, .pull = pull});
    for (size_t i = gradients_.size(); i-- > 0;) {
      client_->OnGradientReady(static_cast<uint32_t>(i));
    }
    client_->EndBackward({});
    return client_->Wait();
  }

  // Without samples.
  absl::Status EmptyStep(int64_t clock) {
    client_->BeginStep({.clock = clock});
    client_->EndBackward({});
    return client_->Wait();
  }

  worker::PsClient& client() { return *client_; }
  std::vector<std::vector<float>>& values() { return values_; }
  const std::vector<absl::Span<float>>& gradients() { return gradients_; }
  int fallbacks(worker::SharedFallback reason) const {
    return fallbacks_[static_cast<int>(reason)];
  }
  int64_t pushed() const { return pushed_.value(); }
  int64_t pulled() const { return pulled_.value(); }

 private:
  std::vector<std::vector<float>> values_;
  const std::shared_ptr<SharedRegion> gradient_memory_;
  std::vector<absl::Span<float>> gradients_;
  TestGauge links_;
  TestCounter pushed_;
  TestCounter pulled_;
  std::array<std::atomic<int>, worker::kSharedFallbackCount> fallbacks_{};
  std::unique_ptr<worker::PsClient> client_;
};

// Tensors of one element to two million, with ADAM.
inline PsFixture::Options Cluster(uint32_t ps, uint32_t workers) {
  PsFixture::Options options;
  options.ps_count = ps;
  options.workers = workers;
  options.tensor_sizes = {300'000, 7, 1, 2'000'000, 4096, 33};
  options.spec = [](JobSpec* spec) {
    spec->mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
    spec->mutable_learning_rate()->set_base(0.01);
  };
  return options;
}

}  // namespace syncline

#endif  // SYNCLINE_TESTS_COMPONENT_SHARED_MEMORY_FIXTURE_H_

// Goal: a rank whose GPU makes the updates, by ALL_REDUCE or SHARDED, computes
// each step with the bits of one whose processors do, whatever the optimizer,
// norms, policies and values that are not finite, and has the same state where
// a checkpoint is written and where a strategy changes. Method: random jobs;
// ranks as threads over InProcessPeers, once without devices, then some of them
// with emulated ones.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/aligned_buffer.h"
#include "common/base/random.h"
#include "gtest/gtest.h"
#include "tests/testing/borrowed_peer.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/in_process_peers.h"
#include "tests/testing/seed_count.h"
#include "worker/peers/peer_exchange.h"

namespace syncline::worker {
namespace {

using Arrays = std::vector<std::vector<float>>;

struct DeviceJob {
  uint64_t seed = 0;
  bool replicates = true;
  uint32_t ranks = 2;
  std::vector<int64_t> sizes;
  std::optional<size_t> mean;  // a tensor that is a running mean
  DenseUpdater::Options update;
  BucketSizes buckets;
  int64_t clocks = 4;
  bool has_bad = false;
};

DeviceJob RandomDeviceJob(uint64_t seed) {
  Random random(seed + 1);
  DeviceJob job;
  job.seed = seed;
  job.replicates = random.Below(3) != 0;
  job.ranks = 1 + static_cast<uint32_t>(random.Below(3));
  for (uint64_t t = 0, count = 1 + random.Below(4); t < count; ++t) {
    job.sizes.push_back(
        static_cast<int64_t>(1 + random.Below(t == 0 ? 3000 : 200)));
  }
  if (job.sizes.size() > 1 && random.Below(2) == 0) {
    job.mean = job.sizes.size() - 1;
  }
  constexpr OptimizerKind kKinds[] = {
      OptimizerKind::kSgd, OptimizerKind::kMomentum, OptimizerKind::kAdam,
      OptimizerKind::kAdamW};
  job.update.optimizer.kind = kKinds[random.Below(4)];
  job.update.optimizer.weight_decay = random.Below(2) == 0 ? 0.01f : 0;
  job.update.rule.learning_rate.base = 0.01f;
  if (random.Below(2) == 0) job.update.rule.clip_norm = 1;
  constexpr OnNonFinite kPolicies[] = {
      OnNonFinite::kFailJob, OnNonFinite::kSkipStep, OnNonFinite::kDropBlock};
  job.update.on_non_finite = kPolicies[random.Below(3)];
  job.has_bad = job.update.on_non_finite != OnNonFinite::kFailJob;
  job.buckets = {.worth = 1 + random.Below(1500),
                 .most = 1500 + random.Below(1500)};
  return job;
}

Arrays RandomArrays(const DeviceJob& job, uint64_t seed) {
  Random random(seed);
  Arrays arrays;
  for (const int64_t size : job.sizes) {
    for (float& v : arrays.emplace_back(size)) {
      v = static_cast<float>(random.Normal());
    }
  }
  return arrays;
}

// One rank. What steps compute with is in `seen`, by clock.
class DeviceRank {
 public:
  DeviceRank(const DeviceJob& job, InProcessPeers* peers, uint32_t rank,
             bool on_device)
      : job_(job), rank_(rank) {
    values_ = RandomArrays(job, rank == 0 ? job.seed : job.seed + 900 + rank);
    gradients_ = values_;
    DenseTensors tensors;
    PeerExchange::Options options;
    for (size_t t = 0; t < values_.size(); ++t) {
      tensors.values.push_back(absl::MakeSpan(values_[t]));
      tensors.gradients.push_back(absl::MakeConstSpan(gradients_[t]));
      tensors.names.push_back(absl::StrCat("t", t));
      tensors.running_means.push_back(job.mean == t);
      options.momenta.push_back(job.mean == t ? std::optional<float>(0.75f)
                                              : std::nullopt);
    }
    options.replicates = job.replicates;
    options.update = job.update;
    options.buckets = job.buckets;
    if (on_device) {
      device_ = std::make_unique<testing::EmulatedDevice>(job.seed + rank);
      if (job.replicates) {
        options.on_device = MakeTensors();
      } else {
        options.owner_device = device_.get();
      }
    }
    auto link = std::make_shared<PeerLink>(
        PeerLink::Options{.label = "job j-test"},
        std::make_unique<BorrowedPeer>(peers->at(rank)));
    std::vector<TensorSize> sizes;
    for (const int64_t size : job.sizes) sizes.push_back({"", size});
    auto exchange =
        PeerExchange::Create(std::move(options), *OwnedBlocks(sizes, job.ranks),
                             std::move(tensors), std::move(link));
    EXPECT_TRUE(exchange.ok()) << exchange.status();
    exchange_ = *std::move(exchange);
  }

  absl::Status Run() {
    if (rank_ == 0) {
      if (absl::Status init = exchange_->Init(job_.clocks); !init.ok()) {
        return init;
      }
    }
    absl::Status status = exchange_->Pull(0);
    for (int64_t clock = 0; status.ok() && clock < job_.clocks; ++clock) {
      status = Step(clock);
    }
    return status;
  }
  const std::vector<Arrays>& seen() const { return seen_; }
  // Values, each slot and the number of updates of each block.
  const Arrays& state() const { return state_; }
  const Arrays& values() const { return values_; }

 private:
  DeviceTensors MakeTensors() {
    stream_ = *device_->MakeStream();
    constexpr size_t kLine = kCacheLineBytes / sizeof(float);
    for (const int64_t size : job_.sizes) {
      offsets_.push_back(floats_);
      floats_ += (static_cast<size_t>(size) + kLine - 1) / kLine * kLine;
    }
    memory_ = *device_->Allocate(2 * floats_ * sizeof(float));
    stream_->Clear(memory_.data(), memory_.bytes());
    DeviceTensors tensors = {
        .stream = stream_.get(),
        .values = memory_.as<float>(),
        .gradients = memory_.as<float>() + floats_,
        .sums = {},
        .take_values = [this](bool takes) { takes_values_ = takes; }};
    for (std::vector<float>& of : gradients_) {
      tensors.sums.push_back(absl::MakeSpan(of));
    }
    return tensors;
  }

  // As TrainStep does: what the device has, or the host.
  absl::Status See() {
    Arrays& seen = seen_.emplace_back(values_);
    if (stream_ == nullptr) return absl::OkStatus();
    EXPECT_TRUE(takes_values_);
    for (size_t t = 0; t < seen.size(); ++t) {
      stream_->CopyToHost(seen[t].data(), memory_.as<float>() + offsets_[t],
                          seen[t].size() * sizeof(float));
    }
    return stream_->Synchronize();
  }

  absl::Status Step(int64_t clock) {
    Random random(job_.seed * 31 + clock * 7 + rank_);
    const uint64_t samples =
        job_.ranks > 1 && random.Below(5) == 0 ? 0 : 1 + random.Below(9);
    const bool abandons = job_.has_bad && random.Below(8) == 0;
    const bool is_bad = job_.has_bad && random.Below(6) == 0;
    exchange_->BeginStep({.clock = clock,
                          .sample_count = samples,
                          .finished = clock + 1 == job_.clocks,
                          .pull = true});
    if (absl::Status saw = See(); !saw.ok()) return saw;
    if (abandons) {
      exchange_->AbandonStep(/*own_values=*/true);
    } else if (samples > 0) {
      Arrays gradient = RandomArrays(job_, random.Next());
      if (is_bad) {
        gradient[0][random.Below(gradient[0].size())] =
            std::numeric_limits<float>::infinity();
      }
      for (size_t t = gradient.size(); t-- > 0;) {
        std::copy(gradient[t].begin(), gradient[t].end(),
                  gradients_[t].begin());
        exchange_->OnGradientReady(static_cast<uint32_t>(t));
      }
    }
    exchange_->EndBackward({});
    absl::Status done = exchange_->Wait();
    EXPECT_FALSE(takes_values_);
    // As an evaluation does with the values of a cut.
    if (done.ok() && stream_ != nullptr) {
      stream_->Clear(memory_.data(), memory_.bytes());
    }
    if (done.ok() && clock + 1 == job_.clocks) done = KeepState();
    return done;
  }

  absl::Status KeepState() {
    // As a change of the strategy does.
    auto& reduction = const_cast<StepReduction&>(exchange_->reduction());
    const absl::Status fetched = reduction.FetchState(/*own_alone=*/false);
    const DenseUpdater& updater = reduction.updater();
    for (uint32_t b = 0; b < updater.block_count(); ++b) {
      for (int array = 0; array < updater.arrays(); ++array) {
        const auto floats = updater.array(b, array);
        state_.emplace_back(floats.begin(), floats.end());
      }
      state_.push_back({static_cast<float>(updater.updates(b))});
    }
    return fetched;
  }

  const DeviceJob& job_;
  const uint32_t rank_;
  std::unique_ptr<testing::EmulatedDevice> device_;
  std::unique_ptr<Stream> stream_;
  DeviceMemory memory_;
  std::vector<size_t> offsets_;
  size_t floats_ = 0;
  bool takes_values_ = false;
  Arrays values_;
  Arrays gradients_;
  std::vector<Arrays> seen_;
  Arrays state_;
  std::unique_ptr<PeerExchange> exchange_;
};

bool HaveSameBits(const Arrays& a, const Arrays& b) {
  if (a.size() != b.size()) return false;
  for (size_t t = 0; t < a.size(); ++t) {
    if (a[t].size() != b[t].size() ||
        std::memcmp(a[t].data(), b[t].data(), a[t].size() * sizeof(float)) !=
            0) {
      return false;
    }
  }
  return true;
}

// `is_on_device` by rank.
std::vector<std::unique_ptr<DeviceRank>> TrainRanks(
    const DeviceJob& job, InProcessPeers* peers,
    const std::function<bool(uint32_t rank)>& is_on_device) {
  std::vector<std::unique_ptr<DeviceRank>> ranks;
  for (uint32_t rank = 0; rank < job.ranks; ++rank) {
    ranks.push_back(
        std::make_unique<DeviceRank>(job, peers, rank, is_on_device(rank)));
  }
  std::vector<absl::Status> ended(job.ranks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < job.ranks; ++rank) {
    threads.emplace_back([&, rank] { ended[rank] = ranks[rank]->Run(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : ended) {
    EXPECT_EQ(status, absl::OkStatus());
  }
  return ranks;
}

TEST(PeerExchangeCudaTest, StepsHaveTheBitsOfProcessors) {
  for (int seed = 0; seed < SeedCount(150); ++seed) {
    const DeviceJob job = RandomDeviceJob(seed);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", job.ranks,
                              job.replicates ? " ranks, ALL_REDUCE, optimizer "
                                             : " ranks, SHARDED, optimizer ",
                              static_cast<int>(job.update.optimizer.kind),
                              ", clip ", job.update.rule.clip_norm, ", policy ",
                              static_cast<int>(job.update.on_non_finite)));
    InProcessPeers here_peers({.ranks = job.ranks, .seed = job.seed + 5});
    const auto here =
        TrainRanks(job, &here_peers, [](uint32_t) { return false; });
    InProcessPeers there_peers({.ranks = job.ranks, .seed = job.seed + 6});
    // Ranks need not be alike.
    const auto there = TrainRanks(job, &there_peers, [&](uint32_t rank) {
      return seed % 4 != 0 || rank == 0;
    });
    for (uint32_t rank = 0; rank < job.ranks; ++rank) {
      ASSERT_EQ(there[rank]->seen().size(), static_cast<size_t>(job.clocks));
      for (int64_t clock = 0; clock < job.clocks; ++clock) {
        ASSERT_TRUE(
            HaveSameBits(there[rank]->seen()[clock], here[rank]->seen()[clock]))
            << "rank " << rank << ", clock " << clock;
      }
      EXPECT_TRUE(HaveSameBits(there[rank]->values(), here[rank]->values()));
      EXPECT_TRUE(HaveSameBits(there[rank]->state(), here[rank]->state()));
    }
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace syncline::worker

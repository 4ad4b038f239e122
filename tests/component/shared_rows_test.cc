// Goal: rows of embedding tables that go through shared memory are what they
// are over the network, bit for bit, in every mode and whatever room there is;
// what cannot go that way goes over the network.
// Method: real ps and real clients in this process; each run is made twice,
// with and without shared memory. Gradients depend on the values, so that an
// error does not go away.

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fakes/test_metrics.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"
#include "worker/client/ps_client.h"

namespace syncline {
namespace {

using testing::TestCounter;
using testing::TestGauge;

constexpr absl::Duration kTimeout = absl::Seconds(20);
constexpr uint32_t kDims[] = {16, 5};
constexpr int64_t kIds = 3000;  // of a batch
constexpr int64_t kClocks = 4;

PsFixture::Options Cluster(ConsistencySpec::Mode mode, uint32_t ps,
                           uint32_t workers) {
  PsFixture::Options options;
  options.ps_count = ps;
  options.workers = workers;
  options.tensor_sizes = {40};
  options.table_dims = {kDims[0], kDims[1]};
  options.spec = [mode](JobSpec* spec) {
    spec->mutable_consistency()->set_mode(mode);
    for (const char* name : {"a", "b"}) {
      TableSpec* table = spec->add_tables();
      table->set_name(name);
      table->mutable_optimizer()->set_kind(OptimizerSpec::ROW_WISE_ADAGRAD);
    }
  };
  return options;
}

// Row values by table, in the order of the last batch's keys.
using Values = std::vector<std::vector<float>>;

// A worker's client with two tables, and batches of random ids.
class Worker {
 public:
  Worker(PsFixture* fixture, uint32_t rank, worker::PsClient::Options options)
      : memory_(std::make_shared<Memory>()), random_(rank + 1) {
    const TableMap map = *TableMap::Create(
        TableMap::DefaultSlots(fixture->ps_count()), fixture->ps_count());
    for (std::vector<worker::RowBatch*>* rows : {&current_, &next_}) {
      for (const uint32_t dim : kDims) {
        worker::RowBatch::Options batch;
        batch.name = "t";
        batch.dim = dim;
        batch.samples_max = 1;
        batch.lookups = {{.feed = 0, .ids_per_sample = kIds}};
        batch.with_gradients = true;
        memory_->batches.push_back(
            std::make_unique<worker::RowBatch>(batch, map));
        rows->push_back(memory_->batches.back().get());
      }
    }
    options.job_id = "j-0001";
    options.rank = rank;
    options.incarnation = 100 + rank;
    options.pass = kTestPass;
    for (uint32_t ps = 0; ps < fixture->ps_count(); ++ps) {
      options.ps.push_back({absl::StrCat("ps:", ps), fixture->address(ps)});
    }
    options.step_timeout = kTimeout;
    options.has_tables = true;
    options.telemetry.shared_links = &links_;
    options.telemetry.shared_pushed_bytes = &pushed_;
    options.telemetry.shared_pulled_bytes = &pulled_;
    options.telemetry.on_shared_fallback = [this](worker::SharedFallback) {
      ++fallbacks_;
    };
    worker::DenseTensors tensors;
    tensors.values = {absl::MakeSpan(memory_->value)};
    tensors.gradients = {memory_->gradient};
    tensors.owner = memory_;
    client_ = std::make_unique<worker::PsClient>(options, fixture->map(),
                                                 std::move(tensors));
  }

  bool AwaitLinks(int64_t count) {
    return Eventually(kTimeout, [&] { return links_.value() == count; });
  }
  absl::Status Train() {
    Collect(current_);
    absl::Status status = client_->PullRows(0, 0, current_);
    for (int64_t clock = 0; status.ok() && clock < kClocks; ++clock) {
      for (worker::RowBatch* rows : current_) SetGradients(rows);
      Collect(next_);
      client_->BeginStep({.clock = clock, .sample_count = 1, .rows = current_});
      client_->OnGradientReady(0);
      client_->EndBackward(next_);
      status = client_->Wait();
      std::swap(current_, next_);
    }
    return status;
  }
  Values values() const {
    Values values;
    for (worker::RowBatch* rows : current_) {
      values.emplace_back(rows->value(0), rows->value(rows->keys().size()));
    }
    return values;
  }
  worker::PsClient& client() { return *client_; }
  int64_t pushed() const { return pushed_.value(); }
  int64_t pulled() const { return pulled_.value(); }
  int fallbacks() const { return fallbacks_; }

 private:
  struct Memory {
    std::vector<float> value = std::vector<float>(40, 1.0f);
    std::vector<float> gradient = std::vector<float>(40, 0.5f);
    std::vector<std::unique_ptr<worker::RowBatch>> batches;
  };

  void Collect(const std::vector<worker::RowBatch*>& tables) {
    worker::Batch batch;
    batch.size = 1;
    std::vector<int64_t> ids(kIds);
    for (int64_t& id : ids) id = static_cast<int64_t>(random_.Below(4 * kIds));
    batch.int_feeds = {ids};
    for (worker::RowBatch* rows : tables) rows->Collect(batch);
  }
  static void SetGradients(worker::RowBatch* rows) {
    const auto dim = static_cast<size_t>(rows->dim());
    for (size_t i = 0; i < rows->keys().size(); ++i) {
      for (size_t d = 0; d < dim; ++d) {
        rows->row_gradients()[(1 + i) * dim + d] =
            0.5f * rows->value(i)[d] + static_cast<float>(i % 7) - 3;
      }
    }
  }

  const std::shared_ptr<Memory> memory_;
  Random random_;
  std::vector<worker::RowBatch*> current_;
  std::vector<worker::RowBatch*> next_;
  TestGauge links_;
  TestCounter pushed_;
  TestCounter pulled_;
  std::atomic<int> fallbacks_{0};
  std::unique_ptr<worker::PsClient> client_;
};

struct Result {
  std::vector<Values> values;  // by worker
  int64_t pushed = 0;          // bytes through shared memory, of all
  int64_t pulled = 0;
  int fallbacks = 0;
};

Result Train(const PsFixture::Options& cluster,
             const worker::PsClient::Options& options) {
  PsFixture fixture(cluster);
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint32_t rank = 0; rank < cluster.workers; ++rank) {
    workers.push_back(std::make_unique<Worker>(&fixture, rank, options));
    if (options.shared_memory && options.boot_id.empty()) {
      EXPECT_TRUE(workers.back()->AwaitLinks(cluster.ps_count));
    }
  }
  EXPECT_OK(workers[0]->client().Init(100));
  std::vector<std::thread> threads;
  for (const auto& worker : workers) {
    threads.emplace_back([&] { EXPECT_OK(worker->Train()); });
  }
  for (std::thread& thread : threads) thread.join();
  Result result;
  for (const auto& worker : workers) {
    result.values.push_back(worker->values());
    result.pushed += worker->pushed();
    result.pulled += worker->pulled();
    result.fallbacks += worker->fallbacks();
  }
  return result;
}

worker::PsClient::Options Sharing(bool shared,
                                  ElementType type = ElementType::kFloat32) {
  worker::PsClient::Options options;
  options.shared_memory = shared;
  options.regimes = RegimeSchedule(TrainingRegime{.wire_type = type});
  return options;
}

// Keys and gradients, or values, of at least half of the ids of all steps.
int64_t RowBytes(uint32_t workers, int64_t key_bytes) {
  return workers * kClocks * kIds / 2 *
         (2 * key_bytes + (kDims[0] + kDims[1]) * 4);
}

TEST(SharedRowsTest, ValuesAreTheNetworksBitForBit) {
  for (const auto& [mode, ps, workers] :
       {std::tuple{ConsistencySpec::ASYNC, 1u, 1u},
        {ConsistencySpec::BOUNDED_STALENESS, 2u, 1u},
        {ConsistencySpec::SYNC, 1u, 1u},
        {ConsistencySpec::SYNC, 2u, 2u}}) {
    SCOPED_TRACE(absl::StrCat(ConsistencySpec::Mode_Name(mode), ", ", ps,
                              " ps, ", workers, " workers"));
    const PsFixture::Options cluster = Cluster(mode, ps, workers);
    const Result network = Train(cluster, Sharing(false));
    const Result shared = Train(cluster, Sharing(true));
    EXPECT_EQ(shared.values, network.values);
    EXPECT_GE(shared.pushed, RowBytes(workers, sizeof(int64_t)));
    EXPECT_GE(shared.pulled, RowBytes(workers, 0));
    EXPECT_EQ(shared.fallbacks, 0);
    EXPECT_EQ(network.pushed + network.pulled, 0);
  }
}

TEST(SharedRowsTest, SoAreValuesOf16Bits) {
  for (const auto mode : {ConsistencySpec::ASYNC, ConsistencySpec::SYNC}) {
    const uint32_t workers = mode == ConsistencySpec::SYNC ? 2 : 1;
    PsFixture::Options cluster = Cluster(mode, 2, workers);
    const auto whole = Train(cluster, Sharing(true));
    cluster.spec = [base = cluster.spec](JobSpec* spec) {
      base(spec);
      spec->set_wire_type(WIRE_BFLOAT16);
    };
    const Result network =
        Train(cluster, Sharing(false, ElementType::kBfloat16));
    const Result shared = Train(cluster, Sharing(true, ElementType::kBfloat16));
    EXPECT_EQ(shared.values, network.values);
    EXPECT_NE(shared.values, whole.values) << "they must be rounded";
    EXPECT_LT(shared.pulled, 0.6 * whole.pulled);
    EXPECT_LT(shared.pushed, 0.8 * whole.pushed) << "half are keys, whole";
    EXPECT_EQ(shared.fallbacks, 0);
  }
}

TEST(SharedRowsTest, AWindowThatCannotMoveOnDoesNotBlock) {
  // The answer to a worker's first message needs its last one, and the other
  // worker's; of each only two fit into the window.
  const PsFixture::Options cluster = Cluster(ConsistencySpec::SYNC, 1, 2);
  worker::PsClient::Options options = Sharing(true);
  options.chunk_bytes = 16 << 10;
  options.shared_window_bytes = 32 << 10;
  const Result shared = Train(cluster, options);
  EXPECT_EQ(shared.values, Train(cluster, Sharing(false)).values);
  EXPECT_GT(shared.pushed, 0);
  EXPECT_GT(shared.pulled, 0);
}

TEST(SharedRowsTest, OnAnotherHostRowsGoOverTheNetwork) {
  const PsFixture::Options cluster = Cluster(ConsistencySpec::ASYNC, 2, 1);
  worker::PsClient::Options options = Sharing(true);
  options.boot_id = "another";
  const Result result = Train(cluster, options);
  EXPECT_EQ(result.values, Train(cluster, Sharing(false)).values);
  EXPECT_EQ(result.pushed + result.pulled, 0);
  EXPECT_EQ(result.fallbacks, 2);  // once for each ps
}

}  // namespace
}  // namespace syncline

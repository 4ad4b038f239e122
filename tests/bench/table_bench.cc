// The rows of embedding tables alone, without any RPC: push and pull of batches
// in message order against std::unordered_map with the same arithmetic, bytes a
// row takes, and a table eight times its memory. Rates compare within one run
// only; counters: rows/s, bytes.
//
//   table_bench [--benchmark_filter=...] [--benchmark_repetitions=9]
//               [--benchmark_enable_random_interleaving=true]

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "benchmark/benchmark.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "kernels/optimizer/row_optimizer.h"
#include "server/spill/row_spill.h"
#include "server/tables/table_shard.h"

namespace syncline {
namespace {

constexpr int64_t kResidentRows = 1 << 20;
constexpr size_t kBatchRows = 8192;
constexpr int kBatches = 64;

TableMap Map() { return *TableMap::Create(256, 1); }

ps::TableOptions Options(uint32_t dim, uint64_t memory_bytes) {
  ps::TableOptions options;
  options.name = "bench";
  options.dim = dim;
  options.initializer = {RowInitializer::Scheme::kUniform, 0.05f, 1, "bench"};
  options.optimizer = {.kind = OptimizerKind::kRowWiseAdagrad,
                       .epsilon = 1e-10f};
  options.memory_bytes = memory_bytes;
  return options;
}

class Floats : public FloatSource {
 public:
  explicit Floats(size_t count) : values_(count) {
    Random random(3);
    for (float& v : values_) v = static_cast<float>(random.Uniform() - 0.5);
  }
  void CopyTo(size_t first, size_t count, float* out) const override {
    std::memcpy(out, values_.data() + first, count * sizeof(float));
  }
  const float* data() const { return values_.data(); }

 private:
  std::vector<float> values_;
};

std::vector<int64_t> Unique(const TableMap& map, std::vector<int64_t> keys) {
  std::sort(keys.begin(), keys.end(),
            [&](int64_t a, int64_t b) { return map.Before(a, b); });
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

// Batches of keys in message order, and gradients for them that do not all fit
// the cache.
struct Traffic {
  Traffic(const TableMap& map, uint32_t dim, size_t rows) {
    Random random(1);
    for (int b = 0; b < kBatches; ++b) {
      std::vector<int64_t> keys(rows);
      for (int64_t& key : keys) {
        key = static_cast<int64_t>(random.Below(kResidentRows));
      }
      batches.push_back(Unique(map, std::move(keys)));
    }
    for (int i = 0; i < 8; ++i) {
      gradients.push_back(std::make_unique<Floats>(rows * dim));
    }
  }
  std::vector<std::vector<int64_t>> batches;
  std::vector<std::unique_ptr<Floats>> gradients;
};

constexpr ps::RowStep kStep = {
    .clock = 1, .learning_rate = 0.01f, .gradient_scale = 1.0f / 1024};

// The shard with all of kResidentRows, and where a lane's part of each batch
// is.
struct Resident {
  Resident(uint32_t dim, int lanes, size_t batch_rows)
      : map(Map()),
        shard(Options(dim, 2ull << 30), map, 0, lanes, nullptr),
        traffic(map, dim, batch_rows) {
    std::vector<int64_t> keys(kResidentRows);
    for (int64_t i = 0; i < kResidentRows; ++i) keys[i] = i;
    keys = Unique(map, std::move(keys));
    // In an order that a job might see them in.
    Random random(9);
    const Floats gradient(dim * size_t{1024});
    for (int64_t& key : keys) std::swap(key, keys[random.Below(keys.size())]);
    for (size_t i = 0; i < keys.size(); i += 1024) {
      const std::vector<int64_t> part = Unique(
          map,
          {keys.begin() + i, keys.begin() + std::min(i + 1024, keys.size())});
      for (int lane = 0; lane < lanes; ++lane) {
        const absl::Span<const int64_t> mine = Part(part, lane);
        const ps::GradientRows rows = {.keys = mine, .values = &gradient};
        SYNCLINE_CHECK(shard.Push(lane, {rows}, kStep).ok());
      }
    }
    SYNCLINE_CHECK(Rows() == kResidentRows);
  }

  absl::Span<const int64_t> Part(const std::vector<int64_t>& keys,
                                 int lane) const {
    const auto of = [&](int64_t key) { return shard.LaneOf(map.SlotOf(key)); };
    const auto begin = std::partition_point(
        keys.begin(), keys.end(), [&](int64_t key) { return of(key) < lane; });
    const auto end = std::partition_point(
        begin, keys.end(), [&](int64_t key) { return of(key) == lane; });
    return absl::MakeSpan(keys).subspan(begin - keys.begin(), end - begin);
  }

  int64_t Rows() const {
    ps::TableStats stats = shard.Stats(0);
    for (int lane = 1; lane < shard.lanes(); ++lane) {
      stats.Add(shard.Stats(lane));
    }
    return static_cast<int64_t>(stats.rows_in_memory);
  }

  const TableMap map;
  ps::TableShard shard;
  Traffic traffic;
};

// The simplest table that one would write first: the baseline.
class MapTable {
 public:
  MapTable(uint32_t dim, size_t batch_rows)
      : dim_(dim),
        optimizer_(Options(dim, 0).optimizer, dim),
        traffic(Map(), dim, batch_rows) {
    const Floats gradient(dim);
    for (int64_t key = 0; key < kResidentRows; ++key) {
      Push({&key, 1}, gradient.data());
    }
  }
  void Push(absl::Span<const int64_t> keys, const float* gradients) {
    for (size_t i = 0; i < keys.size(); ++i) {
      std::vector<float>& row = rows_[keys[i]];
      if (row.empty()) {
        row.resize(dim_ + optimizer_.state_floats());
        options_.initializer.Fill(keys[i], row.data(), dim_);
        optimizer_.InitState(row.data() + dim_);
      }
      const float* const gradient[] = {gradients + i * dim_};
      float* const rows[] = {row.data()};
      optimizer_.Apply({.learning_rate = kStep.learning_rate,
                        .gradient_scale = kStep.gradient_scale},
                       1, gradient, rows);
    }
  }
  void Read(absl::Span<const int64_t> keys, float* out) const {
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto row = rows_.find(keys[i]);
      if (row == rows_.end()) {
        options_.initializer.Fill(keys[i], out + i * dim_, dim_);
      } else {
        std::copy_n(row->second.begin(), dim_, out + i * dim_);
      }
    }
  }

 private:
  const uint32_t dim_;
  const ps::TableOptions options_ = Options(dim_, 0);
  const RowOptimizer optimizer_;
  std::unordered_map<int64_t, std::vector<float>> rows_;

 public:
  const Traffic traffic;
};

// Made once per shape: filling takes longer than measuring.
template <typename T, typename... Args>
T& Shared(uint32_t dim, int lanes, size_t batch_rows, Args... args) {
  static std::unordered_map<uint64_t, std::unique_ptr<T>> all;
  std::unique_ptr<T>& one = all[uint64_t{dim} << 40 | batch_rows << 8 | lanes];
  if (one == nullptr) one = std::make_unique<T>(dim, args..., batch_rows);
  return *one;
}

// Both give the same rows, to the bit, before anything is measured.
void Verify(uint32_t dim) {
  const TableMap map = Map();
  Resident resident(dim, 2, kBatchRows);
  MapTable baseline(dim, kBatchRows);
  std::vector<int64_t> keys = resident.traffic.batches[0];
  const Floats gradient(keys.size() * dim);
  std::vector<float> ours(keys.size() * dim), theirs(keys.size() * dim);
  for (int i = 0; i < 2; ++i) {
    // Fresh keys, beyond those that were filled with other gradients.
    if (i == 0) {
      for (int64_t& key : keys) key += kResidentRows;
      keys = Unique(map, std::move(keys));
    }
    baseline.Push(keys, gradient.data());
    for (int lane = 0; lane < 2; ++lane) {
      const absl::Span<const int64_t> part = resident.Part(keys, lane);
      const size_t first = part.data() - keys.data();
      SYNCLINE_CHECK(
          resident.shard
              .Push(lane,
                    {{.keys = part, .values = &gradient, .first = first * dim}},
                    kStep)
              .ok());
      SYNCLINE_CHECK(
          resident.shard.Read(lane, part, 1, ours.data() + first * dim).ok());
    }
    baseline.Read(keys, theirs.data());
    SYNCLINE_CHECK(ours == theirs);
  }
}

void SetRows(benchmark::State& state, int64_t rows) {
  state.counters["rows/s"] = benchmark::Counter(static_cast<double>(rows),
                                                benchmark::Counter::kIsRate);
}

// The time that `run` takes for the shard's rows, by lane.
template <typename Run>
void RunOnGradients(benchmark::State& state, Run run) {
  const uint32_t dim = static_cast<uint32_t>(state.range(0));
  static Resident* resident;
  if (state.thread_index() == 0) {
    resident = &Shared<Resident>(dim, state.threads(), state.range(1),
                                 state.threads());
  }
  int64_t rows = 0;
  size_t next = 0;
  for (auto _ : state) {
    const std::vector<int64_t>& keys =
        resident->traffic.batches[next % kBatches];
    const absl::Span<const int64_t> part =
        resident->Part(keys, state.thread_index());
    const ps::GradientRows gradient = {
        .keys = part,
        .values = resident->traffic.gradients[next % 8].get(),
        .first = (part.data() - keys.data()) * size_t{dim}};
    run(&resident->shard, state.thread_index(), gradient);
    rows += static_cast<int64_t>(part.size());
    ++next;
  }
  SetRows(state, rows);
}

void BM_TablePush(benchmark::State& state) {
  RunOnGradients(state, [](ps::TableShard* shard, int lane,
                           const ps::GradientRows& gradient) {
    SYNCLINE_CHECK(shard->Push(lane, {gradient}, kStep).ok());
  });
}

// The additional time of clip_norm.
void BM_TableNorms(benchmark::State& state) {
  std::vector<double> norms(Map().slots());
  RunOnGradients(state, [&](ps::TableShard* shard, int lane,
                            const ps::GradientRows& gradient) {
    shard->SquaredNorms(lane, {gradient}, kStep, absl::MakeSpan(norms));
    benchmark::DoNotOptimize(norms.data());
  });
}

void BM_TablePull(benchmark::State& state) {
  const uint32_t dim = static_cast<uint32_t>(state.range(0));
  static Resident* resident;
  if (state.thread_index() == 0) {
    resident = &Shared<Resident>(dim, state.threads(), state.range(1),
                                 state.threads());
  }
  int64_t rows = 0;
  size_t next = 0;
  std::vector<std::vector<float>> outs(
      8, std::vector<float>(state.range(1) * dim));
  for (auto _ : state) {
    const absl::Span<const int64_t> part = resident->Part(
        resident->traffic.batches[next % kBatches], state.thread_index());
    SYNCLINE_CHECK(
        resident->shard
            .Read(state.thread_index(), part, 1, outs[next % 8].data())
            .ok());
    rows += static_cast<int64_t>(part.size());
    ++next;
  }
  SetRows(state, rows);
}

void BM_UnorderedMapPush(benchmark::State& state) {
  const uint32_t dim = static_cast<uint32_t>(state.range(0));
  MapTable& table = Shared<MapTable>(dim, 1, state.range(1));
  int64_t rows = 0;
  size_t next = 0;
  for (auto _ : state) {
    const std::vector<int64_t>& keys = table.traffic.batches[next % kBatches];
    table.Push(keys, table.traffic.gradients[next % 8]->data());
    rows += static_cast<int64_t>(keys.size());
    ++next;
  }
  SetRows(state, rows);
}

void BM_UnorderedMapPull(benchmark::State& state) {
  const uint32_t dim = static_cast<uint32_t>(state.range(0));
  MapTable& table = Shared<MapTable>(dim, 1, state.range(1));
  int64_t rows = 0;
  size_t next = 0;
  std::vector<std::vector<float>> outs(
      8, std::vector<float>(state.range(1) * dim));
  for (auto _ : state) {
    const std::vector<int64_t>& keys = table.traffic.batches[next % kBatches];
    table.Read(keys, outs[next % 8].data());
    rows += static_cast<int64_t>(keys.size());
    ++next;
  }
  SetRows(state, rows);
}

#define SYNCLINE_TABLE_SHAPES  \
  ArgNames({"dim", "batch"})   \
      ->Args({16, kBatchRows}) \
      ->Args({16, 65536})      \
      ->Args({64, kBatchRows}) \
      ->UseRealTime()

BENCHMARK(BM_TablePush)->SYNCLINE_TABLE_SHAPES->Threads(1)->Threads(2);
BENCHMARK(BM_TableNorms)->SYNCLINE_TABLE_SHAPES->Threads(1);
BENCHMARK(BM_TablePull)->SYNCLINE_TABLE_SHAPES->Threads(1)->Threads(2);
BENCHMARK(BM_UnorderedMapPush)->SYNCLINE_TABLE_SHAPES;
BENCHMARK(BM_UnorderedMapPull)->SYNCLINE_TABLE_SHAPES;

// --- Bytes ---

uint64_t ResidentBytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != "VmRSS:") continue;
    uint64_t kib = 0;
    status >> kib;
    return kib << 10;
  }
  return 0;
}

// payload: key, values, optimizer's state. The goal is a ratio of 1.25 at most.
void BM_TableBytes(benchmark::State& state) {
  const int64_t rows = state.range(0);
  constexpr uint32_t kDim = 16;
  for (auto _ : state) {
    malloc_trim(0);
    const uint64_t before = ResidentBytes();
    const TableMap map = Map();
    ps::TableShard shard(Options(kDim, 16ull << 30), map, 0, 1, nullptr);
    const Floats gradient(size_t{kDim} * 4096);
    for (int64_t first = 0; first < rows; first += 4096) {
      std::vector<int64_t> keys(4096);
      for (int64_t i = 0; i < 4096; ++i) keys[i] = first + i;
      keys = Unique(map, std::move(keys));
      const ps::GradientRows push = {.keys = keys, .values = &gradient};
      SYNCLINE_CHECK(shard.Push(0, {push}, kStep).ok());
    }
    const ps::TableStats stats = shard.Stats(0);
    const double count = static_cast<double>(stats.rows_in_memory);
    const double payload = 8 + 4 * (kDim + 1);
    const double resident = static_cast<double>(ResidentBytes() - before);
    state.counters["bytes/row"] = resident / count;
    state.counters["counted/row"] =
        static_cast<double>(stats.memory_bytes) / count;
    state.counters["ratio"] = resident / count / payload;
  }
}
BENCHMARK(BM_TableBytes)
    ->ArgName("rows")
    ->Arg(1 << 20)
    ->Arg(7000000)
    ->Arg(10000000)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

// --- More rows than memory ---

// Keys by rank with probability proportional to rank^-s (Zipf), scattered over
// all int64.
class ZipfKeys {
 public:
  ZipfKeys(uint64_t ranks, double s) : sums_(ranks) {
    double sum = 0;
    for (uint64_t i = 0; i < ranks; ++i) {
      sum += std::pow(static_cast<double>(i + 1), -s);
      sums_[i] = sum;
    }
  }
  static int64_t KeyOf(uint64_t rank) {
    return static_cast<int64_t>(Mix64(rank * 3 + 1));
  }
  int64_t Draw(Random* random) const {
    const double at = random->Uniform() * sums_.back();
    return KeyOf(std::lower_bound(sums_.begin(), sums_.end(), at) -
                 sums_.begin());
  }

 private:
  std::vector<double> sums_;
};

// Pull, then push, batches of 8,192 draws, duplicates combined, of a table of
// eight times the rows that its memory holds; all of them have been pushed
// before. In memory: the same traffic with memory for everything.
void BM_TableZipf(benchmark::State& state) {
  constexpr uint32_t kDim = 16;
  constexpr uint64_t kBudget = 16 << 20;
  constexpr uint64_t kRows = 8 * kBudget / 92;
  constexpr uint64_t kDisk = 4ull << 30;
  const uint64_t kStore = ps::RowSpill::MemoryFor(kBudget, kDisk);
  const bool spills = state.range(0) != 0;
  const std::string folder =
      "/tmp/syncline-table-bench-" + std::to_string(getpid());
  ps::TableOptions options =
      Options(kDim, spills ? kBudget - kStore : 1ull << 30);
  std::unique_ptr<ps::ColdStore> cold;
  if (spills) {
    auto opened = ps::RowSpill::Open(
        {.folder = folder,
         .row_bytes = ps::TableShard::SpilledRowBytes(options),
         .partitions = Map().slots(),
         .memory_bytes = kStore,
         .disk_bytes = kDisk});
    SYNCLINE_CHECK(opened.ok());
    cold = *std::move(opened);
  }
  const uint64_t before = ResidentBytes();
  const TableMap map = Map();
  ps::TableShard shard(options, map, 0, 1, std::move(cold));
  const Floats gradient(size_t{kDim} * kBatchRows);
  std::vector<float> out(size_t{kDim} * kBatchRows);
  const auto push = [&](const std::vector<int64_t>& keys) {
    const ps::GradientRows rows = {.keys = keys, .values = &gradient};
    SYNCLINE_CHECK(shard.Push(0, {rows}, kStep).ok());
  };
  for (uint64_t first = 0; first < kRows; first += kBatchRows) {
    std::vector<int64_t> keys;
    for (uint64_t i = first; i < std::min(kRows, first + kBatchRows); ++i) {
      keys.push_back(ZipfKeys::KeyOf(i));
    }
    push(Unique(map, std::move(keys)));
  }
  const ZipfKeys zipf(kRows, 1.05);
  Random random(7);
  std::vector<std::vector<int64_t>> batches(512);
  for (std::vector<int64_t>& keys : batches) {
    for (size_t i = 0; i < kBatchRows; ++i) keys.push_back(zipf.Draw(&random));
    keys = Unique(map, std::move(keys));
  }
  size_t next = 0;
  const auto step = [&] {
    const std::vector<int64_t>& keys = batches[next++ % batches.size()];
    SYNCLINE_CHECK(shard.Read(0, keys, 1, out.data()).ok());
    push(keys);
    return 2 * static_cast<int64_t>(keys.size());
  };
  // Until the rows in memory are those that belong there.
  while (next < batches.size()) step();
  const ps::TableStats filled = shard.Stats(0);
  int64_t rows = 0;
  for (auto _ : state) rows += step();
  SetRows(state, rows);
  const ps::TableStats stats = shard.Stats(0);
  SYNCLINE_CHECK(stats.rows_in_memory + stats.rows_on_disk == kRows);
  state.counters["from_disk"] =
      static_cast<double>(stats.read_from_disk - filled.read_from_disk) /
      static_cast<double>(rows / 2);
  state.counters["disk_MB"] = static_cast<double>(stats.disk_bytes) * 1e-6;
  state.counters["written_share"] =
      static_cast<double>(stats.spilled_rows - filled.spilled_rows) /
      static_cast<double>(rows / 2);
  state.counters["resident/budget"] =
      static_cast<double>(ResidentBytes() - before) / kBudget;
}
BENCHMARK(BM_TableZipf)->ArgName("spills")->Arg(0)->Arg(1)->UseRealTime();

}  // namespace
}  // namespace syncline

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  syncline::Verify(16);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

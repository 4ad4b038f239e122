// Rows of an embedding table, pushed to and pulled from the real syncline-ps by
// a client that does nothing else; against a std::unordered_map behind the same
// calls, in a process of its own. Over TCP, and with payloads in shared memory.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "kernels/optimizer/row_initializer.h"
#include "kernels/optimizer/row_optimizer.h"
#include "tests/bench/benchmarks.h"
#include "tests/bench/serve.h"
#include "tests/testing/eventually.h"
#include "tests/testing/ps_processes.h"
#include "tests/testing/row_client.h"

namespace syncline {
namespace {

constexpr char kTable[] = "emb";
constexpr uint64_t kSeed = 1;
constexpr float kLearningRate = 0.01f;
constexpr int kInFlight = 6;
// Of each client: payloads and answers of all that is in flight.
constexpr size_t kSharedBytes = 64 << 20;

JobSpec Spec(uint64_t memory_bytes) {
  JobSpec spec;
  spec.mutable_optimizer()->set_kind(OptimizerSpec::SGD);
  spec.mutable_learning_rate()->set_base(kLearningRate);
  spec.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  spec.mutable_training()->set_seed(kSeed);
  TableSpec* table = spec.add_tables();
  table->set_name(kTable);
  table->mutable_optimizer()->set_kind(OptimizerSpec::ROW_WISE_ADAGRAD);
  table->set_memory_bytes(memory_bytes);
  return spec;
}

// One table and who talks to it: workers x shards clients, each in a thread of
// its own.
struct Load {
  std::string name;
  uint32_t dim = 16;
  size_t rows = 0;   // resident
  size_t batch = 0;  // rows per worker and clock, all shards together
  uint32_t workers = 1;
  uint32_t ps = 1;
};

// Distinct keys, spread over all 64 bits as hashed ids are.
int64_t KeyOf(uint64_t index) { return static_cast<int64_t>(Mix64(index)); }

std::vector<int64_t> DistinctKeys(size_t rows, size_t count, Random* random) {
  std::unordered_set<uint64_t> seen;
  std::vector<int64_t> keys;
  while (keys.size() < count) {
    const uint64_t index = random->Below(rows);
    if (seen.insert(index).second) keys.push_back(KeyOf(index));
  }
  return keys;
}

// The clients of one side, the ps or the map, with their batches.
class Side {
 public:
  Side(const Load& load, const std::vector<std::string>& addresses)
      : load_(load),
        map_(*TableMap::Create(TableMap::DefaultSlots(load.ps), load.ps)) {
    for (uint32_t worker = 0; worker < load.workers; ++worker) {
      for (uint32_t shard = 0; shard < load.ps; ++shard) {
        clients_.push_back(std::make_unique<RowClient>(addresses[shard], worker,
                                                       map_, shard, load.dim));
      }
    }
    gradients_.resize(std::max(load.batch, kLoadBatch) * load.dim);
    Random random(3);
    for (float& g : gradients_) g = static_cast<float>(random.Uniform() - 0.5);
    MakeBatches();
  }

  // Initial values, and every row once.
  absl::Status Fill() {
    for (uint32_t shard = 0; shard < load_.ps; ++shard) {
      SYNCLINE_RETURN_IF_ERROR(clients_[shard]->Init());
    }
    return ForEachClient([&](size_t c) -> absl::Status {
      if (c >= load_.ps) return absl::OkStatus();  // worker 0 does it
      for (size_t first = 0; first < load_.rows; first += kLoadBatch) {
        std::vector<int64_t> keys;
        const size_t end = std::min(load_.rows, first + kLoadBatch);
        for (size_t i = first; i < end; ++i) keys.push_back(KeyOf(i));
        const RowBatch batch = clients_[c]->MakeBatch(keys);
        const RowBatch* const one = &batch;
        SYNCLINE_RETURN_IF_ERROR(
            clients_[c]->Push({&one, 1}, gradients_, kInFlight));
      }
      return absl::OkStatus();
    });
  }

  absl::Status ShareMemory() {
    for (const auto& client : clients_) {
      SYNCLINE_RETURN_IF_ERROR(client->ShareMemory(kSharedBytes));
    }
    return absl::OkStatus();
  }
  void SetPath(RowClient::Path path) {
    for (const auto& client : clients_) client->SetPath(path);
  }

  // Rows per second of `clocks` clocks of all workers.
  absl::StatusOr<double> Time(bool push, size_t clocks) {
    const absl::Time begin = absl::Now();
    SYNCLINE_RETURN_IF_ERROR(ForEachClient([&](size_t c) {
      std::vector<const RowBatch*> batches;
      for (size_t i = 0; i < clocks; ++i) {
        batches.push_back(&batches_[c][i % batches_[c].size()]);
      }
      return push ? clients_[c]->Push(batches, gradients_, kInFlight)
                  : clients_[c]->Pull(batches, kInFlight, nullptr);
    }));
    const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    return static_cast<double>(clocks * load_.batch * load_.workers) / seconds;
  }

  // Pushes a few keys that no other client has, with indices from `first` on,
  // pulls them, and compares with the same arithmetic done here. Returns a
  // checksum of the pulled values.
  absl::StatusOr<uint32_t> Verify(uint64_t first) {
    std::vector<int64_t> keys;
    for (uint64_t i = 0; i < 4096; ++i) keys.push_back(KeyOf(first + i));
    uint32_t crc = 0;
    for (uint32_t shard = 0; shard < load_.ps; ++shard) {
      RowClient& client = *clients_[shard];
      const RowBatch batch = client.MakeBatch(keys);
      const std::vector<const RowBatch*> twice = {&batch, &batch};
      SYNCLINE_RETURN_IF_ERROR(client.Push(twice, gradients_, kInFlight));
      absl::Status compared;
      size_t row = 0;
      SYNCLINE_RETURN_IF_ERROR(client.Pull(
          {twice.data(), 1}, 1,
          [&](absl::Span<const int64_t> pulled, const PayloadView& values) {
            std::vector<float> got(pulled.size() * load_.dim);
            values.CopyTo(0, got.size() * sizeof(float), got.data());
            crc = ExtendCrc32c(crc, {reinterpret_cast<const char*>(got.data()),
                                     got.size() * sizeof(float)});
            for (size_t i = 0; i < pulled.size() && compared.ok(); ++i) {
              compared = Compare(pulled[i], row++, got.data() + i * load_.dim);
            }
          }));
      SYNCLINE_RETURN_IF_ERROR(compared);
    }
    return crc;
  }

  RowClient& client(size_t i) { return *clients_[i]; }
  const std::vector<float>& gradients() const { return gradients_; }

 private:
  static constexpr size_t kLoadBatch = 32768;
  static constexpr size_t kBatches = 16;

  void MakeBatches() {
    Random random(2);
    batches_.resize(clients_.size());
    for (uint32_t worker = 0; worker < load_.workers; ++worker) {
      for (size_t b = 0; b < kBatches; ++b) {
        const auto keys = DistinctKeys(load_.rows, load_.batch, &random);
        for (uint32_t shard = 0; shard < load_.ps; ++shard) {
          const size_t c = worker * load_.ps + shard;
          batches_[c].push_back(clients_[c]->MakeBatch(keys));
        }
      }
    }
  }

  absl::Status ForEachClient(const std::function<absl::Status(size_t)>& run) {
    std::vector<absl::Status> statuses(clients_.size());
    std::vector<std::thread> threads;
    for (size_t c = 1; c < clients_.size(); ++c) {
      threads.emplace_back([&, c] { statuses[c] = run(c); });
    }
    statuses[0] = run(0);
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : statuses) {
      SYNCLINE_RETURN_IF_ERROR(status);
    }
    return absl::OkStatus();
  }

  // Row `index` of a batch that was pushed twice.
  absl::Status Compare(int64_t key, size_t index, const float* got) const {
    const RowOptimizer optimizer(
        {.kind = OptimizerKind::kRowWiseAdagrad, .epsilon = 1e-10f}, load_.dim);
    std::vector<float> row(load_.dim + optimizer.state_floats());
    RowInitializer(RowInitializer::Scheme::kUniform, 0.05f, kSeed, kTable)
        .Fill(key, row.data(), load_.dim);
    optimizer.InitState(row.data() + load_.dim);
    for (int step = 0; step < 2; ++step) {
      const float* const gradient = gradients_.data() + index * load_.dim;
      float* const values = row.data();
      optimizer.Apply({.learning_rate = kLearningRate}, 1, &gradient, &values);
    }
    if (std::memcmp(row.data(), got, load_.dim * 4) == 0) {
      return absl::OkStatus();
    }
    return absl::InternalError(absl::StrCat("key ", key, " is ", got[0],
                                            "..., expected ", row[0], "..."));
  }

  const Load load_;
  const TableMap map_;
  std::vector<std::unique_ptr<RowClient>> clients_;  // by worker, shard
  std::vector<std::vector<RowBatch>> batches_;       // by client
  std::vector<float> gradients_;
};

absl::StatusOr<std::unique_ptr<PsProcesses>> StartPs(
    const Load& load, std::vector<std::string> flags) {
  PsProcesses::Options options;
  options.ps = load.ps;
  options.flags = std::move(flags);
  options.assignment = TableJob(Spec(0), {load.dim}, load.workers, load.ps);
  return PsProcesses::Start(options);
}

std::vector<std::string> Addresses(const PsProcesses& ps) {
  std::vector<std::string> addresses;
  for (int rank = 0; rank < ps.assignment().ps_size(); ++rank) {
    addresses.push_back(ps.address(static_cast<uint32_t>(rank)));
  }
  return addresses;
}

// The goals for a load: rows a second against the map's, and, in millions, over
// TCP and through shared memory.
struct LoadGoals {
  std::optional<Goal> against_map;
  std::optional<Goal> network;
  std::optional<Goal> shared;
};

absl::Status TimeLoad(const std::string& what, bool push, size_t clocks,
                      int repetitions, Side* map, Side* table, Report* report) {
  for (int i = -1; i < repetitions; ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(const double map_rate, map->Time(push, clocks));
    table->SetPath(RowClient::Path::kNetwork);
    SYNCLINE_ASSIGN_OR_RETURN(const double rate, table->Time(push, clocks));
    table->SetPath(RowClient::Path::kSharedMemory);
    SYNCLINE_ASSIGN_OR_RETURN(const double shared, table->Time(push, clocks));
    if (i < 0) continue;  // warm
    report->Add(what, "M rows/s", rate / 1e6);
    report->Add(what + " (shared memory)", "M rows/s", shared / 1e6);
    report->Add(what + " (map)", "M rows/s", map_rate / 1e6);
  }
  return absl::OkStatus();
}

absl::Status RunLoad(const Load& load, const BenchOptions& options,
                     const LoadGoals& goals, Report* report) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto ps,
                            StartPs(load, {"--table-memory=4GiB"}));
  std::vector<std::unique_ptr<ServedPeer>> maps;
  std::vector<std::string> map_addresses;
  for (uint32_t i = 0; i < load.ps; ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(auto map, ServedPeer::Map(load.dim));
    map_addresses.push_back(map->address());
    maps.push_back(std::move(map));
  }
  Side table(load, Addresses(*ps));
  Side map(load, map_addresses);
  SYNCLINE_RETURN_IF_ERROR(table.Fill());
  SYNCLINE_RETURN_IF_ERROR(map.Fill());
  SYNCLINE_ASSIGN_OR_RETURN(const uint32_t crc, table.Verify(1ull << 40));
  SYNCLINE_RETURN_IF_ERROR(table.ShareMemory());
  table.SetPath(RowClient::Path::kSharedMemory);
  SYNCLINE_RETURN_IF_ERROR(table.Verify(1ull << 41).status());
  report->Set(absl::StrCat(load.name, ", result crc32c"), absl::Hex(crc));

  const size_t rows = options.smoke ? load.batch * 4 : 2'000'000;
  const size_t clocks = std::max<size_t>(4, rows / load.batch / load.workers);
  for (const bool push : {true, false}) {
    const std::string what =
        absl::StrCat(load.name, push ? ", push" : ", pull");
    SYNCLINE_RETURN_IF_ERROR(TimeLoad(what, push, clocks, options.repetitions,
                                      &map, &table, report));
    report->AddRatio(what + " / map", what, what + " (map)", goals.against_map);
    if (goals.network.has_value()) report->SetGoal(what, *goals.network);
    if (goals.shared.has_value()) {
      report->SetGoal(what + " (shared memory)", *goals.shared);
    }
  }
  return absl::OkStatus();
}

absl::Status RunBytesPerRow(const BenchOptions& options, Report* report) {
  Load load{.name = "resident",
            .rows = options.smoke ? 100'000u : 10'000'000u,
            .batch = 1024};
  SYNCLINE_ASSIGN_OR_RETURN(const auto ps,
                            StartPs(load, {"--table-memory=4GiB"}));
  const double before = static_cast<double>(ps->MemoryBytes(0, "VmRSS"));
  Side side(load, Addresses(*ps));
  SYNCLINE_RETURN_IF_ERROR(side.Fill());
  // Statistics are as of the last second.
  ShardStatus::Table table;
  absl::Status asked;
  const bool counted = Eventually(absl::Seconds(10), [&] {
    const absl::StatusOr<ShardStatus> status = side.client(0).Status();
    asked = status.status();
    if (asked.ok()) table = status->jobs(0).tables(0);
    return !asked.ok() || table.rows_in_memory() == load.rows;
  });
  SYNCLINE_RETURN_IF_ERROR(asked);
  if (!counted) {
    return absl::InternalError(absl::StrCat("of ", load.rows, " rows the ps ",
                                            "has ", table.rows_in_memory()));
  }
  const double rows = static_cast<double>(load.rows);
  const double payload = 8 + 4.0 * load.dim + 4;  // key, values, Adagrad's sum
  report->Set("resident rows", load.rows);
  report->Add("payload of a row", "bytes", payload);
  report->Add("table memory of a row", "bytes",
              static_cast<double>(table.memory_bytes()) / rows);
  report->Add(
      "process memory (VmRSS) of a row", "bytes",
      (static_cast<double>(ps->MemoryBytes(0, "VmRSS")) - before) / rows);
  report->AddRatio("payload / table memory", "payload of a row",
                   "table memory of a row", 0.8);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunSparseBench(const BenchOptions& options, Report* report) {
  const size_t rows = options.smoke ? 20'000 : 1'000'000;
  const auto batch = [&](size_t full) { return options.smoke ? 1024 : full; };
  const Load loads[] = {
      {"batch 8192", 16, rows, batch(8192), 1, 1},
      {"batch 65536", 16, rows, batch(65536), 1, 1},
      {"dim 64", 64, rows, batch(8192), 1, 1},
      {"2 workers, 2 ps", 16, rows, batch(8192), 2, 2},
  };
  report->Set("batches in flight", kInFlight);
  report->Set("resident rows", rows);
  const LoadGoals small = {std::nullopt, 10, 15};
  const LoadGoals others = {2, std::nullopt, std::nullopt};
  const auto chosen = [&](absl::string_view name) {
    return absl::StrContains(name, options.only);
  };
  for (const Load& load : loads) {
    if (!chosen(load.name)) continue;
    SYNCLINE_RETURN_IF_ERROR(
        RunLoad(load, options, &load == &loads[0] ? small : others, report));
  }
  return chosen("memory of a row") ? RunBytesPerRow(options, report)
                                   : absl::OkStatus();
}

}  // namespace syncline

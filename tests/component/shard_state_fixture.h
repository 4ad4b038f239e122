#ifndef SYNCLINE_TESTS_COMPONENT_SHARD_STATE_FIXTURE_H_
#define SYNCLINE_TESTS_COMPONENT_SHARD_STATE_FIXTURE_H_

// Jobs whose shards are exported, written and restored: what their states say,
// and workers whose pushes are a function of clock and rank.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/state/row_layout.h"
#include "gtest/gtest.h"
#include "proto/shard_state.pb.h"
#include "server/shard/shard_exporter.h"
#include "tests/component/ps_tables_fixture.h"
#include "tests/testing/fakes/shard_states.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"

namespace syncline {

inline constexpr int64_t kTotalClocks = 40;

// The contents of states, wherever lanes, partitions and pieces were cut.
struct Contents {
  std::map<std::pair<uint32_t, uint32_t>, std::string> arrays;  // block, array
  std::map<uint32_t, int64_t> updates;                          // by block
  std::map<std::pair<uint32_t, int64_t>, std::string> rows;     // table, key
  std::vector<std::pair<int64_t, bool>> workers;  // closed, finished
  int64_t total_clocks = 0;
  uint64_t skipped_clocks = 0;
  uint64_t pushed_rows = 0;
  uint64_t refused_rows = 0;

  bool operator==(const Contents&) const = default;
};

inline Contents ContentsOf(const std::vector<std::string>& states) {
  Contents all;
  for (const std::string& state : states) {
    ShardStateHeader header;
    uint32_t table = 0;
    for (const StateRecord& record : RecordsOf(state)) {
      if (record.kind == ShardStateKind::kHeader) {
        EXPECT_TRUE(header.ParseFromString(record.meta));
        all.workers.clear();
        for (const auto& worker : header.workers()) {
          all.workers.push_back({worker.closed(), worker.finished()});
        }
        all.total_clocks = header.total_clocks();
        all.skipped_clocks =
            std::max(all.skipped_clocks, header.skipped_clocks());
      } else if (record.kind == ShardStateKind::kDense) {
        DensePiece piece;
        EXPECT_TRUE(piece.ParseFromString(record.meta));
        all.arrays[{piece.block(), piece.array()}] += record.bulk;
        all.updates[piece.block()] = piece.updates();
      } else if (record.kind == ShardStateKind::kPart) {
        TablePart part;
        EXPECT_TRUE(part.ParseFromString(record.meta));
        table = part.table();
      } else if (record.kind == ShardStateKind::kRows) {
        RowsPiece piece;
        EXPECT_TRUE(piece.ParseFromString(record.meta));
        const size_t bytes = record.bulk.size() / piece.rows() - 1;
        for (size_t i = 0; i < piece.rows(); ++i) {
          const std::string row = record.bulk.substr(i * bytes, bytes);
          const int64_t key = RowLayout::Key(row.data());
          EXPECT_TRUE(all.rows.emplace(std::pair(table, key), row).second);
        }
      } else if (record.kind == ShardStateKind::kCounts) {
        TableCounts counts;
        EXPECT_TRUE(counts.ParseFromString(record.meta));
        all.pushed_rows += counts.pushed_rows();
        all.refused_rows += counts.refused_by_sightings() +
                            counts.refused_by_probability() +
                            counts.refused_by_budget();
      }
    }
  }
  return all;
}

// Rows that were on disk.
inline size_t RowsOnDisk(const std::vector<std::string>& states) {
  size_t rows = 0;
  for (const std::string& state : states) {
    for (const StateRecord& record : RecordsOf(state)) {
      if (record.kind != ShardStateKind::kRows) continue;
      RowsPiece piece;
      EXPECT_TRUE(piece.ParseFromString(record.meta));
      rows +=
          std::count(record.bulk.end() - piece.rows(), record.bulk.end(), '\0');
    }
  }
  return rows;
}

struct Case {
  std::string name;
  PsFixture::Options options;
  int64_t keys = 500;        // that are drawn from
  size_t rows_a_push = 200;  // 0: no table
  uint32_t restored_ps = 0;  // 0: as many
  int restored_lanes = 3;
};

inline void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

// The workers of a case, one after the other, so that ASYNC has one order.
class Workers {
 public:
  Workers(const Case& one, PsFixture* fixture) : case_(one), fixture_(fixture) {
    for (uint32_t rank = 0; rank < one.options.workers; ++rank) {
      workers_.push_back(std::make_unique<RowWorker>(fixture, rank));
    }
  }

  void Init() {
    Random random(3);
    Flat values(fixture_->map().element_count());
    for (float& value : values) value = static_cast<float>(random.Normal());
    ASSERT_OK(workers_[0]->plain().Init(values, kTotalClocks));
  }

  // The clocks [begin, end); each worker's gradients are a function of clock
  // and rank.
  void Run(int64_t begin, int64_t end) {
    for (int64_t clock = begin; clock < end; ++clock) {
      for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
        ASSERT_NO_FATAL_FAILURE(Push(rank, clock));
      }
    }
  }

  void Push(uint32_t rank, int64_t clock) {
    Random random(clock * 100 + rank + 1);
    Flat gradient(fixture_->map().element_count());
    for (float& value : gradient) value = static_cast<float>(random.Normal());
    const Rows rows = case_.rows_a_push > 0 ? Draw(&random) : Rows();
    const uint64_t samples = 8 + rank;
    for (uint32_t ps = 0; ps < fixture_->ps_count(); ++ps) {
      PushRequest dense =
          workers_[rank]->plain().MakePush(ps, clock, gradient, samples);
      PushRequest sparse = workers_[rank]->MakePush(ps, clock, rows, samples);
      const uint32_t blocks =
          dense.header().blocks_in_clock() + sparse.header().blocks_in_clock();
      for (PushRequest* const push : {&dense, &sparse}) {
        push->mutable_header()->set_blocks_in_clock(blocks);
        push->mutable_header()->set_sample_count(samples);
      }
      if (dense.header().blocks_size() > 0) {
        ASSERT_OK(workers_[rank]->plain().Send(ps, dense));
      }
      if (sparse.header().tables_size() > 0) {
        ASSERT_OK(workers_[rank]->plain().Send(ps, sparse));
      }
    }
  }

  // The states of all ps at a cut, behind these clocks of each worker.
  std::vector<std::string> Export(uint64_t cut_id, int64_t clock) {
    EXPECT_OK(workers_[0]->plain().BeginCut(
        cut_id, std::vector<int64_t>(workers_.size(), clock)));
    // The shards have passed the cut when they answer.
    EXPECT_OK(workers_[0]->plain().PullCut(cut_id).status());
    std::vector<std::string> states;
    for (uint32_t ps = 0; ps < fixture_->ps_count(); ++ps) {
      MemoryStateSink sink;
      EXPECT_OK(
          fixture_->server(ps).ExportState("j-0001", ps, cut_id, {}, &sink));
      states.push_back(std::move(sink.bytes));
    }
    EXPECT_OK(workers_[0]->plain().EndCut(cut_id));
    return states;
  }

  RowWorker& worker(uint32_t rank) { return *workers_[rank]; }

 private:
  Rows Draw(Random* random) const {
    Rows rows;
    while (rows.size() < case_.rows_a_push) {
      Row row(kDim);
      for (float& value : row) value = static_cast<float>(random->Normal());
      rows[static_cast<int64_t>(random->Below(case_.keys)) - case_.keys / 2] =
          row;
    }
    return rows;
  }

  const Case& case_;
  PsFixture* const fixture_;
  std::vector<std::unique_ptr<RowWorker>> workers_;
};

inline PsFixture::Options Base(ConsistencySpec::Mode mode,
                               OptimizerSpec::Kind dense,
                               uint32_t workers = 2) {
  PsFixture::Options options;
  options.workers = workers;
  options.tensor_sizes = {1000, 7, 3000, 64};
  options.momenta = {std::nullopt, std::nullopt, std::nullopt, 0.9f};
  options.spec = [mode, dense](JobSpec* spec) {
    spec->mutable_consistency()->set_mode(mode);
    if (mode == ConsistencySpec::BOUNDED_STALENESS) {
      spec->mutable_consistency()->set_staleness_bound(2);
    }
    spec->mutable_optimizer()->set_kind(dense);
    spec->mutable_learning_rate()->set_base(0.05);
    spec->mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
    spec->mutable_training()->set_seed(kSeed);
  };
  return options;
}

// `change`: of the job's only table.
inline PsFixture::Options WithRows(
    PsFixture::Options options, OptimizerSpec::Kind kind,
    std::function<void(TableSpec*)> change = nullptr) {
  options.table_dims = {kDim};
  options.spec = [base = options.spec, kind, change](JobSpec* spec) {
    base(spec);
    TableSpec* const table = spec->add_tables();
    table->set_name("emb");
    table->mutable_optimizer()->set_kind(kind);
    if (change) change(table);
  };
  return options;
}

}  // namespace syncline

#endif  // SYNCLINE_TESTS_COMPONENT_SHARD_STATE_FIXTURE_H_

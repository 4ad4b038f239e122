// Goal: a state that is not whole, not this shard's, or not possible is refused
// by name; the shard that has read a part of it answers nobody. Parts of a
// shard can leave it alone, and parts of several make a new one.
// Method: a real state whose records are changed one by one and written again,
// so that every checksum is right.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shard_state.pb.h"
#include "server/shard/job_shard.h"
#include "server/shard/shard_exporter.h"
#include "server/shard/shard_importer.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/fakes/memory_cold_store.h"
#include "tests/testing/fakes/payloads.h"
#include "tests/testing/fakes/shard_states.h"
#include "tests/testing/status_matchers.h"

namespace syncline::ps {
namespace {

using ::testing::HasSubstr;
using RecordKind = ShardStateKind;

constexpr uint32_t kDim = 2;
// Of a shard that has begun with a state, one more.
constexpr uint64_t kCut = 5;

JobSpec Spec() {
  JobSpec spec = PlainSgdJob();
  spec.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  spec.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  TableSpec* const table = spec.add_tables();
  table->set_name("emb");
  table->set_memory_bytes(4 << 20);
  table->mutable_optimizer()->set_kind(OptimizerSpec::ADAGRAD);
  table->mutable_admission()->set_min_sightings(2);
  table->mutable_admission()->set_filter_bytes(16 << 10);
  return spec;
}

JobAssignment Job(uint32_t ps = 1, const JobSpec& spec = Spec(),
                  uint32_t workers = 2) {
  return AssignmentBuilder(spec, "j")
      .Parameter("w", {4})
      .Parameter("v", {3})
      .Table("emb", kDim, ps)
      .Workers(workers)
      .Ps(ps)
      .Build();
}

// A shard of a job, with its lanes.
class Shard {
 public:
  // With `table_bytes` its table has no more memory than that, and a disk, and
  // admits all rows.
  explicit Shard(const JobAssignment& job, uint32_t rank = 0, int lanes = 2,
                 uint64_t table_bytes = 0)
      : lanes_(lanes) {
    auto config = ReadJobConfig(job, rank);
    EXPECT_OK(config.status());
    EmbeddingTables::ColdStores cold(1);
    if (table_bytes > 0) {
      TableOptions& options = config->tables[0].options;
      options.memory_bytes = table_bytes;
      options.admission = {};
      cold[0] = std::make_unique<MemoryColdStore>(
          TableShard::SpilledRowBytes(options));
      disk_ = static_cast<MemoryColdStore*>(cold[0].get());
    }
    auto tables = EmbeddingTables::Create(*config, lanes, std::move(cold), {});
    EXPECT_OK(tables.status());
    shard_ = std::make_shared<JobShard>(
        *config, JobShard::Resources{&lanes_, budget_.get(), buffers_.get()},
        nullptr, *std::move(tables));
  }
  ~Shard() {
    shard_->Close(absl::CancelledError("over"));
    lanes_.Drain();
  }

  JobShard* operator->() { return shard_.get(); }
  MemoryColdStore& disk() { return *disk_; }

  absl::Status Import(const std::vector<std::string>& states,
                      const ShardImportOptions& options = {}) {
    ShardStart start{.states = {}, .options = options};
    for (const std::string& state : states) {
      start.states.push_back(std::make_unique<MemoryStateSource>(state));
    }
    ++cut_;
    return shard_->Import(start);
  }
  absl::StatusOr<std::string> Export(const ShardSelection& selection = {}) {
    MemoryStateSink sink;
    const absl::Status status = shard_->Export(cut_, selection, &sink);
    if (!status.ok()) return status;
    return sink.bytes;
  }

  static Caller caller(uint32_t rank) {
    Caller caller;
    caller.set_rank(rank);
    caller.set_incarnation(100 + rank);
    return caller;
  }
  void Init() {
    InitHeader header;
    size_t floats = 0;
    for (size_t i = 0; i < shard_->layout().ids().size(); ++i) {
      header.add_blocks(shard_->layout().ids()[i]);
      floats += shard_->layout().counts()[i];
    }
    auto values = std::make_shared<PayloadBytes>();
    values->Append(std::vector<float>(floats, 1));
    const auto blocks = shard_->layout().CheckInit(header, values->size());
    ASSERT_OK(blocks.status());
    JobShard::Payload payload;
    payload.values = std::move(values);
    shard_->Init(caller(0), *blocks, 0, std::move(payload),
                 [](absl::Status status, PullValues) { EXPECT_OK(status); });
    lanes_.Drain();
  }
  // The status that the push of all blocks, and of keys 1 to `last`, gets.
  absl::Status Push(uint32_t rank, int64_t clock, int64_t last = 100) {
    const TableMap& map = shard_->layout().tables()[0].map;
    std::vector<int64_t> keys;
    for (int64_t key = 1; key <= last; ++key) {
      if (map.ShardOf(key) == shard_->layout().shard()) keys.push_back(key);
    }
    std::sort(keys.begin(), keys.end(),
              [&](int64_t a, int64_t b) { return map.Before(a, b); });
    std::vector<SlotRun> runs;
    EXPECT_OK(map.CutBySlot(keys, shard_->layout().shard(), &runs));
    PushHeader header;
    header.set_clock(clock);
    header.set_sample_count(1);
    size_t floats = 0;
    for (size_t i = 0; i < shard_->layout().ids().size(); ++i) {
      header.add_blocks(shard_->layout().ids()[i]);
      floats += shard_->layout().counts()[i];
    }
    header.set_blocks_in_clock(
        static_cast<uint32_t>(header.blocks_size() + runs.size()));
    header.add_tables()->set_rows(static_cast<uint32_t>(keys.size()));
    auto values = std::make_shared<PayloadBytes>();
    values->Append(std::vector<float>(floats, 0.5f + clock + rank));
    values->Append(keys);
    values->Append(std::vector<float>(keys.size() * kDim, 1.0f + clock));
    auto push =
        shard_->layout().CheckPush(header, {values.get(), values->size()});
    EXPECT_OK(push.status());
    JobShard::Payload payload;
    payload.values = values;
    payload.pushed = std::make_shared<CallRows>();
    payload.pushed->lists = std::move(push->rows);
    payload.pushed->values = std::move(values);
    ShardCall call = {.rank = rank,
                      .incarnation = 100 + rank,
                      .deadline = absl::InfiniteFuture()};
    call.push = std::move(push->facts);
    absl::Status answer = absl::UnknownError("none came");
    shard_->Call(std::move(call), std::move(payload), nullptr,
                 [&](absl::Status status, PullValues) { answer = status; });
    lanes_.Drain();
    return answer;
  }
  void HoldCut(std::vector<int64_t> clocks) {
    ASSERT_OK(shard_->BeginCut(caller(0), cut_, std::move(clocks),
                               absl::Minutes(10), CutUse::kEvaluation));
  }
  // Initial values, three clocks of each worker, and a cut that is held.
  void RunToCut() {
    Init();
    for (int64_t clock = 0; clock < 3; ++clock) {
      EXPECT_OK(Push(0, clock));
      EXPECT_OK(Push(1, clock));
    }
    HoldCut({3, 3});
  }

 private:
  const std::shared_ptr<InFlightBudget> budget_ =
      std::make_shared<InFlightBudget>(1 << 20);
  const std::shared_ptr<BufferPool> buffers_ =
      std::make_shared<BufferPool>(1 << 20);
  Lanes lanes_;
  std::shared_ptr<JobShard> shard_;
  uint64_t cut_ = kCut;
  MemoryColdStore* disk_ = nullptr;  // the table's, if it has one
};

const std::string& GoodState() {
  static const std::string* const state = [] {
    Shard shard(Job());
    shard.RunToCut();
    return new std::string(*shard.Export());
  }();
  return *state;
}

// Changes the first record of a kind that `change` returns true for.
template <typename Meta>
std::string Changed(RecordKind kind,
                    std::function<bool(Meta*, std::string*)> change) {
  std::vector<StateRecord> records = RecordsOf(GoodState());
  for (StateRecord& record : records) {
    if (record.kind != kind) continue;
    Meta meta;
    EXPECT_TRUE(meta.ParseFromString(record.meta));
    if (!change(&meta, &record.bulk)) continue;
    record.meta = meta.SerializeAsString();
    return StateOf(records);
  }
  ADD_FAILURE() << "nothing was changed";
  return "";
}

// The message that refuses a state. The shard answers nobody afterwards.
std::string Refusal(const std::vector<std::string>& states,
                    const JobAssignment& job = Job(),
                    const ShardImportOptions& options = {}) {
  Shard shard(job);
  const absl::Status status = shard.Import(states, options);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(shard.Push(0, 3), status) << "a part of the state is used";
  EXPECT_EQ(shard.Import({GoodState()}), status) << "it is filled twice";
  return std::string(status.message());
}

TEST(JobShardStateTest, IsClosedAtACutOnlyWhileThatIsHeld) {
  const absl::Status elsewhere = absl::AbortedError("elsewhere");
  Shard shard(Job());
  shard.RunToCut();
  EXPECT_OK(shard->CheckHeldCut(kCut));
  ASSERT_OK(shard->EndCut(Shard::caller(0), kCut));
  EXPECT_EQ(shard->CheckHeldCut(kCut).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(shard->CloseAtCut(kCut, elsewhere).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_OK(shard.Push(0, 3));  // nothing has changed

  Shard held(Job());
  held.RunToCut();
  ASSERT_OK(held->CloseAtCut(kCut, elsewhere));
  EXPECT_EQ(held.Push(0, 3), elsewhere);
  EXPECT_EQ(held->CheckHeldCut(kCut), elsewhere);
}

TEST(JobShardStateTest, AStateIsTheSameBehindAnotherShard) {
  Shard shard(Job(), 0, /*lanes=*/3);
  ASSERT_OK(shard.Import({GoodState()}));
  shard.HoldCut({3, 3});
  const std::vector<StateRecord> expected = RecordsOf(GoodState());
  const std::vector<StateRecord> records = RecordsOf(*shard.Export());
  // One record more: a lane more has counts.
  ASSERT_EQ(records.size(), expected.size() + 1);
  // It is at another cut, and knows the former one.
  ShardStateHeader header;
  ASSERT_TRUE(header.ParseFromString(records[0].meta));
  EXPECT_EQ(header.past_cuts(0).id(), kCut);
  EXPECT_EQ(header.past_cuts(1).id(), header.cut_id());
  header.set_cut_id(kCut);
  header.mutable_past_cuts()->RemoveLast();
  EXPECT_EQ(header.SerializeAsString(), expected[0].meta);
  for (size_t i = 1; i < expected.size(); ++i) {
    if (expected[i].kind == RecordKind::kCounts) break;
    EXPECT_EQ(records[i].meta, expected[i].meta) << i;
    EXPECT_EQ(records[i].bulk, expected[i].bulk) << i;
  }
}

TEST(JobShardStateTest, PartsOfAShardMakeOneAgain) {
  Shard shard(Job());
  shard.RunToCut();
  std::vector<uint32_t> even;
  std::vector<uint32_t> odd;
  for (uint32_t slot = 0; slot < 256; ++slot) {
    (slot % 2 == 0 ? even : odd).push_back(slot);
  }
  const std::string first = *shard.Export({.blocks = {{1}}, .slots = {{even}}});
  const std::string second =
      *shard.Export({.blocks = {{0}}, .slots = {{odd}}, .with_counts = false});
  EXPECT_THAT(Refusal({first}), HasSubstr("its state has no block 0"));
  EXPECT_THAT(Refusal({first, first}), HasSubstr("block 1 comes twice"));
  EXPECT_THAT(Refusal({*shard.Export({.slots = {{even}}})}),
              HasSubstr("its state has no slot 1, 3, 5, 7, 9, 11, 13, 15 and "
                        "120 more of table 'emb'"));
  Shard other(Job());
  ASSERT_OK(other.Import({first, second}));
  other.HoldCut({3, 3});
  const auto rows_of = [](const std::string& state) {
    uint64_t rows = 0;
    for (const StateRecord& record : RecordsOf(state)) {
      if (record.kind != RecordKind::kTrailer) continue;
      ShardStateTrailer trailer;
      EXPECT_TRUE(trailer.ParseFromString(record.meta));
      rows = trailer.rows();
    }
    return rows;
  };
  EXPECT_EQ(rows_of(*other.Export()), rows_of(GoodState()));
  EXPECT_EQ(rows_of(GoodState()), 100u);
  EXPECT_THAT(std::string(shard.Export({.blocks = {{9}}}).status().message()),
              HasSubstr("block 9 is to be exported, and is of another shard"));
  EXPECT_THAT(
      std::string(shard.Export({.slots = {{{300}}}}).status().message()),
      HasSubstr("slot 300 of table 'emb' is to be exported"));
}

TEST(JobShardStateTest, WhatIsAnothersIsRefusedOrPassedOver) {
  EXPECT_THAT(Refusal({GoodState()}, Job(/*ps=*/2)),
              HasSubstr("is another shard's"));
  Shard shard(Job(/*ps=*/2), 1);
  ASSERT_OK(shard.Import({GoodState()}, {.passes_over_others = true}));
  EXPECT_OK(shard.Push(0, 3));
}

// A reader of the counts must not see them grow from nothing.
TEST(JobShardStateTest, CountsOfTablesAreThereWithTheState) {
  Shard shard(Job());
  ASSERT_OK(shard.Import({GoodState()}));
  ASSERT_EQ(shard->Status().tables_size(), 1);
  const auto table = shard->Status().tables(0);
  EXPECT_EQ(table.rows_in_memory(), 100u);
  EXPECT_GT(table.pushed_rows(), 100u);
}

// An update that was accepted is missing, so the state is not that of the cut.
TEST(JobShardStateTest, AStateWithoutAnAcceptedUpdateIsNotExported) {
  constexpr int64_t kMany = 5000;
  Shard shard(Job(), 0, 1, /*table_bytes=*/60 << 10);
  shard.Init();
  EXPECT_OK(shard.Push(0, 0, kMany));
  EXPECT_OK(shard.Push(1, 0, kMany));
  EXPECT_OK(shard.Push(0, 1, kMany));
  shard.disk().get_error = absl::UnavailableError("the disk is away");
  EXPECT_OK(shard.Push(1, 1, kMany));
  shard.disk().get_error = absl::OkStatus();
  shard.HoldCut({2, 2});
  const absl::Status status = shard.Export().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("table 'emb': the disk is away"));
}

TEST(JobShardStateTest, AStateComesBeforeTheFirstCall) {
  Shard shard(Job());
  shard.Init();
  EXPECT_THAT(std::string(shard.Import({GoodState()}).message()),
              HasSubstr("a state must come before the first call"));
  EXPECT_OK(shard.Push(0, 0));  // the shard goes on
  EXPECT_THAT(Refusal({}), HasSubstr("its state has no source"));
}

TEST(JobShardStateTest, AStateOfAnotherJobIsRefusedByName) {
  JobSpec spec = Spec();
  spec.mutable_optimizer()->set_kind(OptimizerSpec::MOMENTUM);
  EXPECT_THAT(Refusal({GoodState()}, Job(1, spec)),
              HasSubstr("its optimizer is 'adam' with 2 slots, the job's is "
                        "'momentum' with 1"));
  spec = Spec();
  spec.mutable_tables(0)->mutable_optimizer()->set_kind(OptimizerSpec::SGD);
  EXPECT_THAT(Refusal({GoodState()}, Job(1, spec)),
              HasSubstr("table 'emb' has rows of 2 values and 2 of 'adagrad'"));
  spec = Spec();
  spec.mutable_tables(0)->set_name("other");
  JobAssignment renamed = Job(1, spec);
  renamed.mutable_tables(0)->set_name("other");
  EXPECT_THAT(Refusal({GoodState()}, renamed),
              HasSubstr("the job has no table 'emb'"));
  EXPECT_THAT(Refusal({GoodState()}, Job(1, Spec(), /*workers=*/3)),
              HasSubstr("it is of 2 workers, the job has 3"));
  EXPECT_THAT(Refusal({Changed<ShardStateHeader>(
                  RecordKind::kHeader,
                  [](ShardStateHeader* header, std::string*) {
                    header->set_format(4);
                    return true;
                  })}),
              HasSubstr("its format is 4, this version reads 2 and 3"));
  EXPECT_THAT(Refusal({Changed<ShardStateHeader>(
                  RecordKind::kHeader,
                  [](ShardStateHeader* header, std::string*) {
                    header->set_format(3);
                    return true;
                  })}),
              HasSubstr("it needs 0 older states, and is of format 3"));
  EXPECT_THAT(Refusal({Changed<TablePart>(RecordKind::kPart,
                                          [](TablePart* part, std::string*) {
                                            part->set_changes_only(true);
                                            return true;
                                          })}),
              HasSubstr("neither the state nor an older one has all rows of "
                        "slot"));
  EXPECT_THAT(Refusal({Changed<DensePiece>(RecordKind::kDense,
                                           [](DensePiece* piece, std::string*) {
                                             piece->set_elements(5);
                                             return true;
                                           })}),
              HasSubstr("has 5 elements, expected"));
}

TEST(JobShardStateTest, StatesOfTwoCutsMakeNoShard) {
  const std::string later = Changed<ShardStateHeader>(
      RecordKind::kHeader, [](ShardStateHeader* header, std::string*) {
        header->mutable_workers(1)->set_closed(4);
        return true;
      });
  EXPECT_THAT(Refusal({GoodState(), later}), HasSubstr("it is of another cut"));
  Shard shard(Job());
  shard.RunToCut();
  const std::string part = *shard.Export({.blocks = {{0}}});
  EXPECT_THAT(Refusal({part, later}), HasSubstr("it is of another cut"));
}

TEST(JobShardStateTest, ChangedBlocksAreRefused) {
  const auto refusal = [](std::function<bool(DensePiece*, std::string*)> f) {
    return Refusal({Changed<DensePiece>(RecordKind::kDense, std::move(f))});
  };
  EXPECT_THAT(refusal([](DensePiece* piece, std::string*) {
                piece->set_block(7);
                return true;
              }),
              HasSubstr("block 7 is another shard's"));
  EXPECT_THAT(refusal([](DensePiece* piece, std::string*) {
                piece->set_updates(-1);
                return true;
              }),
              HasSubstr("has -1 updates"));
  EXPECT_THAT(refusal([](DensePiece* piece, std::string*) {
                piece->set_array(1u << 31);
                return true;
              }),
              HasSubstr("expected block 0 from element 0 of array 0"));
  EXPECT_THAT(refusal([](DensePiece* piece, std::string*) {
                piece->set_first(~uint64_t{0});
                return piece->array() == 1;
              }),
              HasSubstr("of array 1, it has block 0 from element"));
  EXPECT_THAT(refusal([](DensePiece*, std::string* bulk) {
                bulk->resize(bulk->size() + 4);
                return true;
              }),
              HasSubstr("elements left of block 0"));
  EXPECT_THAT(refusal([](DensePiece*, std::string* bulk) {
                bulk->resize(bulk->size() - 1);
                return true;
              }),
              HasSubstr("elements left of block 0"));
  EXPECT_THAT(refusal([](DensePiece*, std::string* bulk) {
                bulk->clear();
                return true;
              }),
              HasSubstr("0 bytes for"));
  // Pieces that are not there, or not all of a block's.
  for (size_t missing = 1; missing < 4; ++missing) {
    std::vector<StateRecord> records = RecordsOf(GoodState());
    records.erase(records.begin() + missing);
    EXPECT_NE(Refusal({StateOf(records)}), "");
  }
}

TEST(JobShardStateTest, ChangedTablesAreRefused) {
  const auto part = [](std::function<bool(TablePart*, std::string*)> f) {
    return Refusal({Changed<TablePart>(RecordKind::kPart, std::move(f))});
  };
  const auto with_run = [&](uint32_t first, uint32_t count) {
    return part([=](TablePart* changed, std::string*) {
      TablePart::Run* const run = changed->add_slots();
      run->set_first(first);
      run->set_count(count);
      return true;
    });
  };
  EXPECT_THAT(part([](TablePart* changed, std::string*) {
                changed->set_table(1);
                return true;
              }),
              HasSubstr("table 1 of 1"));
  EXPECT_THAT(with_run(0, 1), HasSubstr("slots 0 and 1 in all"));
  EXPECT_THAT(with_run(255, 2), HasSubstr("slots 255 and 2 in all"));
  EXPECT_THAT(with_run(256, 1), HasSubstr("slots 256 and 1 in all"));
  EXPECT_THAT(with_run(200, ~0u), HasSubstr("slots 200 and"));
  EXPECT_THAT(with_run(255, 0), HasSubstr("slots 255 and 0"));
  EXPECT_THAT(with_run(255, 1), HasSubstr("slot 255 of table 'emb' comes"));
  EXPECT_THAT(part([](TablePart* changed, std::string*) {
                changed->set_filter_counters(1);
                return true;
              }),
              HasSubstr("counters from 0 on, expected 1 from 0"));
  EXPECT_THAT(part([](TablePart* changed, std::string*) {
                changed->set_filter_counters(~uint64_t{0});
                return true;
              }),
              HasSubstr("filter"));
  EXPECT_THAT(
      Refusal({Changed<FilterPiece>(RecordKind::kFilter,
                                    [](FilterPiece* piece, std::string*) {
                                      piece->set_first(64);
                                      return true;
                                    })}),
      HasSubstr("counters from 64 on"));
}

TEST(JobShardStateTest, ChangedRowsAreRefused) {
  const auto rows = [](std::function<bool(RowsPiece*, std::string*)> f) {
    return Refusal({Changed<RowsPiece>(RecordKind::kRows, std::move(f))});
  };
  constexpr size_t kRowBytes = 8 + 4 + 4 + 2 * 4 + 2 * 4;
  const auto with = [&](size_t at, auto value) {
    return rows([=](RowsPiece*, std::string* bulk) {
      std::memcpy(bulk->data() + at, &value, sizeof(value));
      return true;
    });
  };
  EXPECT_THAT(rows([](RowsPiece* piece, std::string*) {
                piece->set_rows(piece->rows() + 1);
                return true;
              }),
              HasSubstr("rows of 32 + 1"));
  EXPECT_THAT(rows([](RowsPiece* piece, std::string*) {
                piece->set_rows(~0u);
                return true;
              }),
              HasSubstr("rows of 32 + 1"));
  EXPECT_THAT(rows([](RowsPiece* piece, std::string* bulk) {
                piece->set_rows(0);
                bulk->clear();
                return true;
              }),
              HasSubstr("0 bytes for 0 rows"));
  EXPECT_THAT(with(0, int64_t{-12345}), HasSubstr("the row of key -12345"));
  EXPECT_THAT(with(8, std::numeric_limits<float>::quiet_NaN()),
              HasSubstr("has the score nan"));
  EXPECT_THAT(with(8, -1.0f), HasSubstr("has the score -1"));
  EXPECT_THAT(with(12, uint32_t{4}), HasSubstr("was pushed at clock 4"));
  EXPECT_THAT(rows([](RowsPiece*, std::string* bulk) {
                bulk->back() = 4;
                return true;
              }),
              HasSubstr("was at place 4"));
  EXPECT_THAT(rows([](RowsPiece* piece, std::string* bulk) {
                if (piece->rows() < 2) return false;
                const std::string first = bulk->substr(0, kRowBytes);
                bulk->replace(kRowBytes, kRowBytes, first);
                return true;
              }),
              HasSubstr("comes twice, or out of order"));
  // Rows in front of their part, and a block that comes again behind a table.
  std::vector<StateRecord> records = RecordsOf(GoodState());
  for (size_t i = 1; i < records.size(); ++i) {
    if (records[i].kind != RecordKind::kPart) continue;
    std::vector<StateRecord> without = records;
    without.erase(without.begin() + i);
    EXPECT_THAT(Refusal({StateOf(without)}),
                HasSubstr("outside of a part of a table"));
    std::vector<StateRecord> behind = records;
    behind.insert(behind.end() - 1, records[1]);
    EXPECT_THAT(Refusal({StateOf(behind)}), HasSubstr("comes twice"));
    break;
  }
}

TEST(JobShardStateTest, ChangedCountsAreRefused) {
  const auto counts = [](std::function<void(TableCounts*, std::string*)> f) {
    return Refusal({Changed<TableCounts>(
        RecordKind::kCounts, [&](TableCounts* changed, std::string* bulk) {
          f(changed, bulk);
          return true;
        })});
  };
  EXPECT_THAT(
      counts([](TableCounts* changed, std::string*) { changed->set_table(9); }),
      HasSubstr("table 9 of 1"));
  EXPECT_THAT(counts([](TableCounts* changed, std::string*) {
                for (int i = 0; i < 1000; ++i) changed->add_hot_keys();
              }),
              HasSubstr("more counts than a table has"));
  EXPECT_THAT(
      counts([](TableCounts*, std::string* bulk) { bulk->append("x"); }),
      HasSubstr("more counts than a table has"));
  EXPECT_THAT(counts([](TableCounts* changed, std::string*) {
                changed->add_hot_keys()->set_pushes(
                    std::numeric_limits<float>::infinity());
              }),
              HasSubstr("was pushed inf times"));
  EXPECT_THAT(counts([](TableCounts* changed, std::string*) {
                changed->add_clock_ages()->set_age_nanoseconds(-1);
              }),
              HasSubstr("began at another time"));
  EXPECT_THAT(counts([](TableCounts* changed, std::string*) {
                changed->add_clock_ages()->set_clock(1);
                changed->add_clock_ages()->set_clock(1);
              }),
              HasSubstr("began at another time"));
  EXPECT_THAT(counts([](TableCounts* changed, std::string*) {
                changed->set_too_old_clock(1000);
              }),
              HasSubstr("rows of clock 1000 are too old"));
}

TEST(JobShardStateTest, ChangedHeadersAndTrailersAreRefused) {
  const auto header = [](std::function<void(ShardStateHeader*)> f) {
    return Refusal({Changed<ShardStateHeader>(
        RecordKind::kHeader, [&](ShardStateHeader* changed, std::string*) {
          f(changed);
          return true;
        })});
  };
  EXPECT_THAT(header([](ShardStateHeader* changed) {
                changed->mutable_workers(1)->set_closed(-5);
              }),
              HasSubstr("has closed -5 clocks"));
  EXPECT_THAT(
      header([](ShardStateHeader* changed) { changed->set_total_clocks(-5); }),
      HasSubstr("total_clocks is -5"));
  EXPECT_THAT(header([](ShardStateHeader* changed) { changed->set_blocks(9); }),
              HasSubstr("blocks and 100 rows"));
  EXPECT_THAT(header([](ShardStateHeader* changed) {
                changed->add_cuts()->set_purpose(static_cast<CutPurpose>(77));
              }),
              HasSubstr("of the unknown purpose 77"));
  EXPECT_THAT(header([](ShardStateHeader* changed) {
                ShardStateHeader::Cut* const cut = changed->add_cuts();
                cut->set_id(9);
                cut->add_clocks(4);
              }),
              HasSubstr("cut 9 at clocks 4 of 2 workers, held for 0: nobody "
                        "can have announced it"));
  EXPECT_THAT(Refusal({Changed<ShardStateTrailer>(
                  RecordKind::kTrailer,
                  [](ShardStateTrailer* trailer, std::string*) {
                    trailer->set_rows(99);
                    return true;
                  })}),
              HasSubstr("it was written behind 2 blocks and 99 rows, 2 and 100 "
                        "were read"));
  // Each record is needed, but for those that only count.
  const std::vector<StateRecord> records = RecordsOf(GoodState());
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].kind == RecordKind::kCounts) continue;
    std::vector<StateRecord> without = records;
    without.erase(without.begin() + i);
    EXPECT_NE(Refusal({StateOf(without)}), "") << i;
  }
  EXPECT_THAT(Refusal({GoodState().substr(0, GoodState().size() / 2)}),
              HasSubstr("it was cut off"));
}

}  // namespace
}  // namespace syncline::ps

// Goal: rows of embedding tables on parameter servers, over real gRPC: initial
// values, each mode's arithmetic, exactly-once, cuts and scans, refusals that
// say why, one result for any number of ps.
// Method: servers in this process and a client made of generated code and
// TableMap; expected values from the same kernels, row by row.

#include <sys/mount.h>

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/element_type.h"
#include "common/rpc/grpc_status.h"
#include "common/wire/frame.h"
#include "common/wire/table_map.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/component/ps_tables_fixture.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fakes/relay.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(PsTablesTest, AbsentRowsHaveInitialValuesAndStayAbsent) {
  PsFixture fixture(WithTable(ConsistencySpec::ASYNC, 2));
  RowWorker worker(&fixture, 0);
  ASSERT_OK(worker.Init());
  const Rows wanted = RandomRows(1, 40);
  ASSERT_OK_AND_ASSIGN(const Rows pulled, worker.Pull(0, wanted));
  for (const auto& [key, row] : pulled) EXPECT_EQ(row, InitialRow(key));
  EXPECT_TRUE(Eventually(kPsTimeout, [&] {
    return StatusOf(&fixture, 0).pulled_absent() +
               StatusOf(&fixture, 1).pulled_absent() ==
           40;
  }));
  EXPECT_EQ(StatusOf(&fixture, 0).rows_in_memory(), 0u);
}

TEST(PsTablesTest, AsyncAppliesAtOnceAndARetryOnce) {
  PsFixture fixture(WithTable(ConsistencySpec::ASYNC, 2));
  RowWorker worker(&fixture, 0);
  ASSERT_OK(worker.Init());
  const Rows gradients = RandomRows(1, 60);
  for (int repeat = 0; repeat < 3; ++repeat) {
    ASSERT_OK(worker.Push(0, gradients, 4));
  }
  const Rows second = RandomRows(2, 60);
  ASSERT_OK(worker.Push(1, second, 2));
  ASSERT_OK_AND_ASSIGN(const Rows pulled, worker.Pull(2, gradients));
  for (const auto& [key, row] : pulled) {
    std::vector<std::pair<Row, float>> sums = {{gradients.at(key), 0.25f}};
    if (second.count(key) > 0) sums.push_back({second.at(key), 0.5f});
    EXPECT_EQ(row, Updated(key, sums)) << key;
  }
}

// Three workers, eight clocks; what all rows have become.
Rows TrainSync(uint32_t ps_count, float clip_norm = 0) {
  PsFixture::Options options = WithTable(ConsistencySpec::SYNC, ps_count, 3);
  options.spec = [clip_norm, base = options.spec](JobSpec* spec) {
    base(spec);
    spec->mutable_optimizer()->set_clip_norm(clip_norm);
  };
  PsFixture fixture(options);
  std::vector<RowWorker> workers;
  for (uint32_t rank = 0; rank < 3; ++rank)
    workers.emplace_back(&fixture, rank);
  EXPECT_OK(workers[0].Init());
  for (int64_t clock = 0; clock < 8; ++clock) {
    // Rank order is not the order of arrival.
    for (const uint32_t rank : {2u, 0u, 1u}) {
      EXPECT_OK(workers[rank].Push(clock, RandomRows(100 * rank + clock, 50),
                                   10 + rank));
    }
  }
  Rows all;
  for (int64_t key = -250; key < 250; ++key) all[key] = {};
  const auto pulled = workers[0].Pull(8, all);
  EXPECT_OK(pulled);
  return pulled.ok() ? *pulled : Rows();
}

// The gradients that the three workers of TrainSync push at a clock, summed in
// rank order.
Rows SyncSums(int64_t clock) {
  Rows sums;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    for (const auto& [key, gradient] : RandomRows(100 * rank + clock, 50)) {
      const auto [sum, first] = sums.emplace(key, gradient);
      if (first) continue;
      for (uint32_t j = 0; j < kDim; ++j) sum->second[j] += gradient[j];
    }
  }
  return sums;
}

// 1 / samples, or what the clipped norm makes of it: fp64 partials by slot.
float SyncScale(const Rows& sums, double clip_norm) {
  const double mean = 1.0 / 33;
  const TableMap map = *TableMap::Create(TableMap::DefaultSlots(1), 1);
  std::map<uint32_t, double> by_slot;
  for (const auto& [key, sum] : sums) {
    double& squares = by_slot[map.SlotOf(key)];
    for (const float value : sum) {
      const double element = value * static_cast<float>(mean);
      squares += element * element;
    }
  }
  double squared_norm = 0;
  for (const auto& [slot, squares] : by_slot) squared_norm += squares;
  if (clip_norm == 0 || squared_norm <= clip_norm * clip_norm) {
    return static_cast<float>(mean);
  }
  return static_cast<float>(mean * (clip_norm / std::sqrt(squared_norm)));
}

void ExpectOneUpdateAClock(const Rows& trained, double clip_norm) {
  std::map<int64_t, std::vector<std::pair<Row, float>>> updates;
  for (int64_t clock = 0; clock < 8; ++clock) {
    const Rows sums = SyncSums(clock);
    const float scale = SyncScale(sums, clip_norm);
    EXPECT_EQ(scale<static_cast<float>(1.0 / 33), clip_norm> 0);
    for (const auto& [key, sum] : sums) updates[key].push_back({sum, scale});
  }
  for (int64_t key = -250; key < 250; ++key) {
    EXPECT_EQ(trained.at(key), Updated(key, updates[key])) << key;
  }
}

TEST(PsTablesTest, SyncIsOneUpdateOfTheSumInRankOrder) {
  ExpectOneUpdateAClock(TrainSync(1), 0);
}

TEST(PsTablesTest, AClippedNormIsOfTheRowsOfAllRanks) {
  ExpectOneUpdateAClock(TrainSync(1, 0.25f), 0.25);
}

TEST(PsTablesTest, TheNumberOfPsDoesNotChangeABit) {
  for (const float clip_norm : {0.0f, 0.25f}) {
    const Rows one = TrainSync(1, clip_norm);
    EXPECT_EQ(TrainSync(2, clip_norm), one);
    EXPECT_EQ(TrainSync(3, clip_norm), one);
  }
}

TEST(PsTablesTest, AScanAtACutHasEveryRowOnce) {
  PsFixture fixture(WithTable(ConsistencySpec::ASYNC, 2));
  RowWorker worker(&fixture, 0);
  ASSERT_OK(worker.Init());
  const Rows gradients = RandomRows(1, 200);
  ASSERT_OK(worker.Push(0, gradients, 1));
  EXPECT_EQ(worker.Scan(0, 9, "").status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_OK(worker.plain().BeginCut(9, {1}));
  ASSERT_OK_AND_ASSIGN(const Rows scanned, worker.ScanAll(9));
  ASSERT_EQ(scanned.size(), gradients.size());
  for (const auto& [key, row] : scanned) {
    EXPECT_EQ(row, Updated(key, {{gradients.at(key), 1.0f}})) << key;
  }
  EXPECT_EQ(worker.Scan(0, 9, "x").status().code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_OK(worker.plain().EndCut(9));
  EXPECT_EQ(worker.Scan(0, 9, "").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(PsTablesTest, AScansAnswerCountsUntilItIsSent) {
  MetricsRegistry metrics;
  PsFixture::Options options = WithTable(ConsistencySpec::ASYNC);
  options.metrics = &metrics;
  options.table_memory_bytes = 1 << 30;
  PsFixture fixture(options);
  RowWorker worker(&fixture, 0);
  ASSERT_OK(worker.Init());
  // All in the partition that comes first, and so in one answer.
  const TableMap map = *TableMap::Create(TableMap::DefaultSlots(1), 1);
  Rows gradients;
  for (int64_t key = 0; gradients.size() < 10000; ++key) {
    if (map.SlotOf(key) == 0) gradients[key] = Row(kDim, 1);
  }
  ASSERT_OK(worker.Push(0, gradients, 1));
  ASSERT_OK(worker.plain().BeginCut(9, {1}));
  grpc::ChannelArguments narrow;
  narrow.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  narrow.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 65535);
  narrow.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  Relay relay(fixture.address(0));
  const auto channel = grpc::CreateCustomChannel(
      relay.address(), grpc::InsecureChannelCredentials(), narrow);
  ASSERT_TRUE(
      channel->WaitForConnected(absl::ToChronoTime(absl::Now() + kPsTimeout)));
  ScanTableRequest request;
  *request.mutable_header()->mutable_caller() = worker.caller(0);
  request.mutable_header()->set_cut_id(9);
  relay.Stall(true);
  grpc::CompletionQueue unread;
  const auto context = MakeContext(absl::Now() + kPsTimeout);
  const auto call = ParameterServer::NewStub(channel)->AsyncScanTable(
      context.get(), request, &unread);
  ScanTableResponse response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  const auto shows = [&](const std::string& line) {
    return Eventually(kPsTimeout, [&] {
      return metrics.Render().find(line) != std::string::npos;
    });
  };
  EXPECT_TRUE(
      shows("syncline_ps_requests_total{code=\"OK\",rpc=\"ScanTable\"} 1"));
  EXPECT_TRUE(
      shows(absl::StrCat("syncline_ps_in_flight_bytes ", kChunkBytesMax)));
  relay.Stall(false);
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(unread.Next(&tag, &ok));
  EXPECT_OK(FromGrpcStatus(status));
  EXPECT_EQ(response.header().rows(), 10000u);
  EXPECT_TRUE(shows("syncline_ps_in_flight_bytes 0"));
}

TEST(PsTablesTest, AStaleRoutingVersionIsAborted) {
  PsFixture fixture(WithTable(ConsistencySpec::ASYNC));
  RowWorker worker(&fixture, 0);
  ASSERT_OK(worker.Init());
  PushRequest push = worker.MakePush(0, 0, RandomRows(1, 5), 1);
  push.mutable_header()->mutable_caller()->set_routing_version(0);
  const absl::Status stale = worker.plain().Send(0, push);
  EXPECT_EQ(stale.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(stale.message()),
              HasSubstr("routing version 0, this ps is at 1"));
}

TEST(PsTablesTest, WrongRowsAreRefused) {
  PsFixture fixture(WithTable(ConsistencySpec::ASYNC, 2));
  RowWorker worker(&fixture, 0);
  ASSERT_OK(worker.Init());
  const Rows gradients = RandomRows(1, 30);
  PushRequest other = worker.MakePush(1, 0, gradients, 1);
  other.mutable_header()->mutable_caller()->set_shard(0);
  absl::Status refused = worker.plain().Send(0, other);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("table 'emb'"), HasSubstr("shard 1")));
  PushRequest shorter = worker.MakePush(0, 0, gradients, 1);
  shorter.mutable_payload()->pop_back();
  refused = worker.plain().Send(0, shorter);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  // Nothing of it counts.
  ASSERT_OK(worker.Push(0, gradients, 1));
}

TEST(PsTablesTest, StatusTellsWhatIsWhere) {
  PsFixture fixture(WithTable(ConsistencySpec::ASYNC));
  RowWorker worker(&fixture, 0);
  ASSERT_OK(worker.Init());
  const Rows gradients = RandomRows(1, 100);
  ASSERT_OK(worker.Push(0, gradients, 1));
  ASSERT_OK(worker.Pull(1, gradients));
  EXPECT_TRUE(Eventually(kPsTimeout, [&] {
    const ShardStatus::Table table = StatusOf(&fixture, 0);
    return table.rows_in_memory() == 100 && table.pulled_from_memory() == 100;
  }));
  const ShardStatus::Table table = StatusOf(&fixture, 0);
  EXPECT_EQ(table.name(), "emb");
  EXPECT_EQ(table.pushed_rows(), 100u);
  EXPECT_GT(table.memory_bytes(), 100u * kDim * 8);
  EXPECT_EQ(table.memory_limit_bytes(), 64u << 20);
  EXPECT_TRUE(table.hot_keys().empty())
      << "any member may ask, and keys are of the job's data";
  const std::vector<PsReport> reports = fixture.server(0).Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_FALSE(reports[0].tables(0).hot_keys().empty());
}

TEST(PsTablesTest, PushesAreHeldBackWhenThereIsNoRoom) {
  PsFixture::Options options = WithTable(ConsistencySpec::ASYNC);
  options.table_memory_bytes = 1 << 20;
  PsFixture fixture(options);
  RowWorker worker(&fixture, 0);
  ASSERT_OK(worker.Init());
  absl::Status pushed;
  int64_t next_key = 0;
  for (int64_t clock = 0; clock < 100 && pushed.ok(); ++clock) {
    Rows gradients;
    for (int i = 0; i < 2000; ++i) gradients[next_key++] = Row(kDim, 1);
    pushed = worker.Push(clock, gradients, 1);
  }
  EXPECT_EQ(pushed.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(pushed.message()), HasSubstr("table 'emb'"));
  // A repeat of an accepted push is confirmed, and a caller that may not push
  // is not told to wait.
  const auto repeat = [&](int64_t clock) {
    Rows gradients;
    for (int64_t key = 2000 * clock; key < 2000 * (clock + 1); ++key) {
      gradients[key] = Row(kDim, 1);
    }
    return worker.MakePush(0, clock, gradients, 1);
  };
  const int64_t refused_clock = next_key / 2000 - 1;
  EXPECT_OK(worker.plain().Send(0, repeat(refused_clock - 1)));
  EXPECT_OK(worker.plain().Send(0, repeat(0)));
  PushRequest zombies = repeat(refused_clock);
  zombies.mutable_header()->mutable_caller()->set_incarnation(1);
  EXPECT_EQ(worker.plain().Send(0, zombies).code(),
            absl::StatusCode::kFailedPrecondition);
  // Existing rows can be read.
  ASSERT_OK_AND_ASSIGN(const Rows first, worker.Pull(0, {{0, {}}}));
  EXPECT_EQ(first.at(0), Updated(0, {{Row(kDim, 1), 1.0f}}));
}

TEST(PsTablesTest, SixteenBitsRoundWhatTravelsAndNothingElse) {
  constexpr ElementType kType = ElementType::kBfloat16;
  PsFixture::Options options = WithTable(ConsistencySpec::ASYNC, 2);
  options.spec = [base = options.spec](JobSpec* spec) {
    base(spec);
    spec->set_wire_type(WIRE_BFLOAT16);
  };
  PsFixture fixture(options);
  RowWorker worker(&fixture, 0);
  ASSERT_OK(worker.Init());
  const Rows gradients = RandomRows(1, 200);
  ASSERT_OK(worker.Push(0, gradients, 4));
  // Some that were pushed, some that never were.
  Rows wanted = RandomRows(2, 200);
  wanted.insert(gradients.begin(), gradients.end());
  const auto expected = [&](int64_t key) {
    const auto pushed = gradients.find(key);
    return pushed == gradients.end()
               ? InitialRow(key)
               : Updated(key, {{Rounded(pushed->second, kType), 0.25f}});
  };
  ASSERT_OK_AND_ASSIGN(const Rows pulled, worker.Pull(1, wanted));
  for (const auto& [key, row] : pulled) {
    EXPECT_EQ(row, Rounded(expected(key), kType)) << key;
    EXPECT_NE(row, expected(key)) << key;
  }
  ASSERT_OK(worker.plain().BeginCut(9, {1}));
  ASSERT_OK_AND_ASSIGN(const Rows at_cut, worker.Pull(1, wanted, 9));
  for (const auto& [key, row] : at_cut) EXPECT_EQ(row, expected(key)) << key;
  ASSERT_OK_AND_ASSIGN(const Rows scanned, worker.ScanAll(9));
  EXPECT_EQ(scanned.size(), gradients.size());
  for (const auto& [key, row] : scanned) EXPECT_EQ(row, expected(key)) << key;
}

// Everything that was acknowledged is there, through a full disk and after it.
TEST(PsTablesTest, ADiskThatIsFreedLetsTrainingGoOn) {
  const TempDir temp;
  const std::string disk = temp.File("disk");
  std::filesystem::create_directories(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=8m") != 0) {
    GTEST_SKIP() << "may not mount a small disk: " << std::strerror(errno);
  }
  const absl::Cleanup unmount = [&] { umount2(disk.c_str(), MNT_DETACH); };
  PsFixture::Options options = WithTable(ConsistencySpec::ASYNC);
  options.table_memory_bytes = 1 << 20;
  options.table_disk_bytes = 64 << 20;
  options.spill_dir = disk;
  PsFixture fixture(options);
  RowWorker worker(&fixture, 0);
  ASSERT_OK(worker.Init());
  int64_t clock = 0;
  const auto batch = [](int64_t index) {
    Rows gradients;
    for (int64_t i = 0; i < 1000; ++i) {
      gradients[index * 1000 + i] = Row(kDim, 1);
    }
    return gradients;
  };
  const auto expect_all = [&] {
    for (int64_t index = 0; index < clock; ++index) {
      ASSERT_OK_AND_ASSIGN(const Rows rows, worker.Pull(clock, batch(index)));
      for (const auto& [key, row] : rows) {
        ASSERT_EQ(row, Updated(key, {{Row(kDim, 1), 1.0f}})) << "key " << key;
      }
    }
  };
  absl::Status pushed;
  while (pushed.ok() && clock < 1000) {
    pushed = worker.Push(clock, batch(clock), 1);
    if (pushed.ok()) ++clock;
  }
  EXPECT_EQ(pushed.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(pushed.message()),
              AllOf(HasSubstr("table 'emb'"), HasSubstr(disk)));
  EXPECT_GT(clock, 24);  // more than fit into memory
  expect_all();

  ASSERT_EQ(mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT, "size=64m"), 0);
  EXPECT_TRUE(Eventually(
      kPsTimeout, [&] { return worker.Push(clock, batch(clock), 1).ok(); }));
  ++clock;
  for (int i = 0; i < 50; ++i, ++clock) {
    ASSERT_OK(worker.Push(clock, batch(clock), 1));
  }
  expect_all();
  EXPECT_TRUE(Eventually(kPsTimeout, [&] {
    const ShardStatus::Table table = StatusOf(&fixture, 0);
    return table.rows_in_memory() + table.rows_on_disk() ==
               static_cast<uint64_t>(clock) * 1000 &&
           table.refused_by_budget() == 0;
  }));
}

}  // namespace
}  // namespace syncline

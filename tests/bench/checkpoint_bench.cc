// A checkpoint of one shard against the same bytes written and synced by a
// plain loop, a restore into two ps against reading the bytes, and a checkpoint
// of a table after 1 % of its rows changed against one of all rows: all of it
// in this process, on the disk of the temporary folder, caches dropped before
// reads.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/manifest.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/system/file.h"
#include "common/system/file_descriptor.h"
#include "common/wire/table_map.h"
#include "server/checkpoint/restore.h"
#include "tests/bench/benchmarks.h"
#include "tests/bench/cold_read.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

constexpr double kMiB = 1 << 20;
constexpr size_t kPieceBytes = 4 << 20;
constexpr absl::Duration kWaitMax = absl::Minutes(5);

PsFixture::Options AdamJob(int64_t state_bytes, uint32_t ps_count,
                           const std::string& folder) {
  PsFixture::Options options;
  options.ps_count = ps_count;
  // Values and two slots.
  options.tensor_sizes = {state_bytes / 3 / int64_t{sizeof(float)}};
  options.spec = [folder](JobSpec* spec) {
    spec->mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
    spec->mutable_checkpoint()->set_every_clocks(1);
    spec->mutable_checkpoint()->set_directory(folder);
  };
  return options;
}

absl::Status InitBlocks(PsFixture* fixture, const PlainWorker& chief) {
  for (uint32_t id = 0; id < fixture->map().blocks().size(); ++id) {
    InitRequest request;
    *request.mutable_header()->mutable_caller() = chief.caller();
    request.mutable_header()->add_blocks(id);
    std::string values(fixture->map().blocks()[id].count * sizeof(float), '\0');
    for (size_t i = 0; i < values.size(); i += 4) {
      values[i] = static_cast<char>(i * 31 + id);
    }
    request.set_payload(std::move(values));
    InitResponse response;
    SYNCLINE_RETURN_IF_ERROR(FromGrpcStatus(fixture->stub(0).Init(
        MakeContext(absl::Now() + kWaitMax).get(), request, &response)));
  }
  return absl::OkStatus();
}

// From the announcement of the cut until the part is synced.
absl::StatusOr<CheckpointManifest> Checkpoint(PsFixture* fixture,
                                              const PlainWorker& chief,
                                              uint64_t cut_id,
                                              int64_t clock = 0) {
  BeginCutRequest begin;
  *begin.mutable_caller() = chief.caller();
  begin.set_cut_id(cut_id);
  begin.add_clocks(clock);
  begin.set_hold_seconds(60);
  begin.set_purpose(CHECKPOINT_STATE);
  BeginCutResponse begun;
  SYNCLINE_RETURN_IF_ERROR(FromGrpcStatus(fixture->stub(0).BeginCut(
      MakeContext(absl::Now() + kWaitMax).get(), begin, &begun)));
  AwaitCheckpointRequest await;
  *await.mutable_caller() = chief.caller();
  await.set_cut_id(cut_id);
  await.set_wait_seconds(absl::ToDoubleSeconds(kWaitMax));
  CheckpointParts parts{.cut_id = cut_id, .clocks = {clock}};
  SYNCLINE_RETURN_IF_ERROR(FromGrpcStatus(fixture->stub(0).AwaitCheckpoint(
      MakeContext(absl::Now() + kWaitMax).get(), await,
      &parts.shards.emplace_back())));
  return MakeManifest(fixture->assignment(), parts);
}

absl::Status End(PsFixture* fixture, const PlainWorker& chief,
                 uint64_t cut_id) {
  EndCutRequest end;
  *end.mutable_caller() = chief.caller();
  end.set_cut_id(cut_id);
  EndCutResponse ended;
  return FromGrpcStatus(fixture->stub(0).EndCut(
      MakeContext(absl::Now() + kWaitMax).get(), end, &ended));
}

// Seconds in which the file system writes the same number of bytes from memory.
absl::StatusOr<double> WriteAndSync(const std::string& path, uint64_t bytes,
                                    const std::string& piece) {
  const absl::Time begin = absl::Now();
  const FileDescriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.valid()) return FileError(errno, "create", path);
  while (bytes > 0) {
    const size_t some = std::min<uint64_t>(bytes, piece.size());
    const ssize_t written = write(file.get(), piece.data(), some);
    if (written <= 0) return FileError(errno, "write", path);
    bytes -= static_cast<uint64_t>(written);
  }
  if (fsync(file.get()) != 0) return FileError(errno, "sync", path);
  return absl::ToDoubleSeconds(absl::Now() - begin);
}

// Opens a job on two ps that each read the file; with the memory taken.
absl::StatusOr<double> Restore(PsFixture* two, JobAssignment assignment,
                               const CheckpointInfo& info) {
  *assignment.mutable_start_from() = info;
  assignment.set_start_clock(info.clock());
  absl::Status opened[2];
  const absl::Time begin = absl::Now();
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto starts = ps::StartsFromCheckpoint(assignment, rank);
      opened[rank] = starts.ok() ? two->server(rank).RestoreJob(
                                       assignment, rank, *starts, nullptr)
                                 : starts.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  for (const absl::Status& one : opened) SYNCLINE_RETURN_IF_ERROR(one);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    two->server(rank).CloseJob(assignment.job_id(), "measured");
  }
  return seconds;
}

// --- Rows --------------------------------------------------------------------

constexpr uint32_t kRowDim = 16;
constexpr int64_t kRowsAPush = 20'000;

PsFixture::Options RowsJob(const std::string& folder) {
  PsFixture::Options options;
  options.tensor_sizes = {1};
  options.table_dims = {kRowDim};
  options.table_memory_bytes = uint64_t{4} << 30;
  options.spec = [folder](JobSpec* spec) {
    spec->mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
    TableSpec* const table = spec->add_tables();
    table->set_name("emb");
    table->mutable_optimizer()->set_kind(OptimizerSpec::ADAGRAD);
    spec->mutable_checkpoint()->set_every_clocks(1);
    spec->mutable_checkpoint()->set_full_tables_every(1000);
    spec->mutable_checkpoint()->set_directory(folder);
  };
  return options;
}

// One clock: a gradient for each of the keys [begin, end).
absl::Status PushRows(PsFixture* fixture, const PlainWorker& chief,
                      const TableMap& map, int64_t clock, int64_t begin,
                      int64_t end) {
  std::vector<int64_t> keys;
  for (int64_t key = begin; key < end; ++key) keys.push_back(key);
  std::sort(keys.begin(), keys.end(),
            [&](int64_t a, int64_t b) { return map.Before(a, b); });
  std::vector<SlotRun> runs;
  SYNCLINE_RETURN_IF_ERROR(map.CutBySlot(keys, 0, &runs));
  PushRequest request;
  PushHeader* const header = request.mutable_header();
  *header->mutable_caller() = chief.caller();
  header->set_clock(clock);
  header->set_sample_count(1);
  header->set_blocks_in_clock(static_cast<uint32_t>(runs.size()));
  header->add_tables()->set_rows(static_cast<uint32_t>(keys.size()));
  const std::vector<float> values(keys.size() * kRowDim, 0.5f);
  request.mutable_payload()->append(reinterpret_cast<const char*>(keys.data()),
                                    keys.size() * sizeof(int64_t));
  request.mutable_payload()->append(
      reinterpret_cast<const char*>(values.data()),
      values.size() * sizeof(float));
  PushResponse response;
  return FromGrpcStatus(fixture->stub(0).Push(
      MakeContext(absl::Now() + kWaitMax).get(), request, &response));
}

// A checkpoint after each 1 % of the rows against the first, of all of them.
absl::Status RunRowsBench(const BenchOptions& options, Report* report) {
  const int64_t rows = options.smoke ? 20'000 : 1'000'000;
  const TempDir dir;
  PsFixture fixture(RowsJob(dir.path()));
  const PlainWorker chief(&fixture, 0);
  SYNCLINE_RETURN_IF_ERROR(InitBlocks(&fixture, chief));
  SYNCLINE_ASSIGN_OR_RETURN(const TableMap map,
                            TableMap::Create(TableMap::DefaultSlots(1), 1));
  int64_t clock = 0;
  const auto push = [&](int64_t begin, int64_t end) -> absl::Status {
    for (; begin < end; begin += kRowsAPush) {
      SYNCLINE_RETURN_IF_ERROR(PushRows(&fixture, chief, map, clock++, begin,
                                        std::min(begin + kRowsAPush, end)));
    }
    return absl::OkStatus();
  };
  uint64_t cut_id = 0;
  const auto checkpoint = [&](uint64_t* bytes,
                              double* seconds) -> absl::Status {
    const absl::Time begin = absl::Now();
    SYNCLINE_ASSIGN_OR_RETURN(const CheckpointManifest manifest,
                              Checkpoint(&fixture, chief, ++cut_id, clock));
    *seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    *bytes = manifest.shards(0).bytes();
    SYNCLINE_RETURN_IF_ERROR(End(&fixture, chief, cut_id));
    SYNCLINE_ASSIGN_OR_RETURN(const std::string encoded,
                              EncodeManifest(manifest));
    return WriteManifest(
        dir.File(absl::StrCat(manifest.job_id(), "/",
                              CheckpointName{clock, cut_id}.ToString())),
        encoded);
  };
  SYNCLINE_RETURN_IF_ERROR(push(0, rows));
  uint64_t all_bytes = 0;
  double all_seconds = 0;
  SYNCLINE_RETURN_IF_ERROR(checkpoint(&all_bytes, &all_seconds));
  for (int i = 0; i < options.repetitions; ++i) {
    SYNCLINE_RETURN_IF_ERROR(push(i * rows / 100, (i + 1) * rows / 100));
    uint64_t bytes = 0;
    double seconds = 0;
    SYNCLINE_RETURN_IF_ERROR(checkpoint(&bytes, &seconds));
    report->Add("checkpoint of all rows", "MiB",
                static_cast<double>(all_bytes) / kMiB);
    report->Add("checkpoint of 1 % of them", "MiB",
                static_cast<double>(bytes) / kMiB);
    report->Add("all rows written", "s", all_seconds);
    report->Add("1 % written", "s", seconds);
  }
  report->Set("rows", rows);
  report->AddRatio("1 % of the rows / all rows", "checkpoint of 1 % of them",
                   "checkpoint of all rows", AtMost(0.05));
  return absl::OkStatus();
}

}  // namespace

absl::Status RunCheckpointBench(const BenchOptions& options, Report* report) {
  const int64_t state_bytes = options.smoke ? 12 << 20 : 384 << 20;
  const TempDir dir;
  PsFixture fixture(AdamJob(state_bytes, 1, dir.path()));
  const PlainWorker chief(&fixture, 0);
  SYNCLINE_RETURN_IF_ERROR(InitBlocks(&fixture, chief));
  PsFixture two(AdamJob(state_bytes, 2, dir.path()));
  for (uint32_t rank = 0; rank < 2; ++rank) {
    two.server(rank).CloseJob(two.assignment().job_id(), "measured later");
  }
  const std::string plain = dir.File("plain");
  const std::string piece(kPieceBytes, 'x');
  for (int i = -1; i < options.repetitions; ++i) {
    const uint64_t cut_id = static_cast<uint64_t>(i) + 2;
    const absl::Time begin = absl::Now();
    SYNCLINE_ASSIGN_OR_RETURN(const CheckpointManifest manifest,
                              Checkpoint(&fixture, chief, cut_id));
    const double checkpoint = absl::ToDoubleSeconds(absl::Now() - begin);
    SYNCLINE_RETURN_IF_ERROR(End(&fixture, chief, cut_id));
    const uint64_t bytes = manifest.shards(0).bytes();
    SYNCLINE_ASSIGN_OR_RETURN(const double written,
                              WriteAndSync(plain, bytes, piece));
    const std::string folder = dir.File(absl::StrCat(
        manifest.job_id(), "/", CheckpointName{0, cut_id}.ToString()));
    SYNCLINE_ASSIGN_OR_RETURN(const std::string encoded,
                              EncodeManifest(manifest));
    SYNCLINE_RETURN_IF_ERROR(WriteManifest(folder, encoded));
    const std::string file =
        absl::StrCat(folder, "/", manifest.shards(0).file());
    SYNCLINE_ASSIGN_OR_RETURN(const double cold, ReadCold(file));
    SYNCLINE_RETURN_IF_ERROR(DropCache(file));
    SYNCLINE_ASSIGN_OR_RETURN(
        const double restored,
        Restore(&two, two.assignment(),
                CheckpointInfoOf(manifest, folder, encoded)));
    SYNCLINE_RETURN_IF_ERROR(DeleteCheckpoint(folder));
    if (i < 0) continue;
    const double mib = static_cast<double>(bytes) / kMiB;
    report->Set("MiB of state", mib);
    report->Add("checkpoint", "MiB/s", mib / checkpoint);
    report->Add("written and synced", "MiB/s", mib / written);
    report->Add("restore into 2 ps", "s", restored);
    report->Add("read cold", "s", cold);
  }
  report->AddRatio("checkpoint / written and synced", "checkpoint",
                   "written and synced", 0.7);
  report->AddRatio("restore / read cold", "restore into 2 ps", "read cold",
                   AtMost(2));
  return RunRowsBench(options, report);
}

}  // namespace syncline

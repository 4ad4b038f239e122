// A checkpoint of one shard against the same bytes written and synced by a
// plain loop, and a restore into two ps against reading the bytes: all of it in
// this process, on the disk of the temporary folder, caches dropped before
// reads.

#include <fcntl.h>
#include <unistd.h>

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
#include "server/checkpoint/restore.h"
#include "tests/bench/benchmarks.h"
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
                                              uint64_t cut_id) {
  BeginCutRequest begin;
  *begin.mutable_caller() = chief.caller();
  begin.set_cut_id(cut_id);
  begin.add_clocks(0);
  begin.set_hold_seconds(60);
  begin.set_purpose(CHECKPOINT_STATE);
  BeginCutResponse begun;
  SYNCLINE_RETURN_IF_ERROR(FromGrpcStatus(fixture->stub(0).BeginCut(
      MakeContext(absl::Now() + kWaitMax).get(), begin, &begun)));
  AwaitCheckpointRequest await;
  *await.mutable_caller() = chief.caller();
  await.set_cut_id(cut_id);
  await.set_wait_seconds(absl::ToDoubleSeconds(kWaitMax));
  CheckpointParts parts{.cut_id = cut_id, .clocks = {0}};
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

absl::Status DropCache(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return FileError(errno, "open", path);
  if (posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED) == 0) {
    return absl::OkStatus();
  }
  return FileError(errno, "drop the cache of", path);
}

absl::StatusOr<double> ReadCold(const std::string& path, std::string* piece) {
  SYNCLINE_RETURN_IF_ERROR(DropCache(path));
  const absl::Time begin = absl::Now();
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return FileError(errno, "open", path);
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  while (true) {
    const ssize_t got = read(file.get(), piece->data(), piece->size());
    if (got < 0) return FileError(errno, "read", path);
    if (got == 0) break;
  }
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
  std::string piece(kPieceBytes, 'x');
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
    SYNCLINE_ASSIGN_OR_RETURN(const double cold, ReadCold(file, &piece));
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
  return absl::OkStatus();
}

}  // namespace syncline

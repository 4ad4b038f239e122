#include "worker/job/job_residuals.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_start.h"
#include "common/checkpoint/state_file.h"
#include "common/job/compression_rules.h"
#include "common/system/disk_thread.h"
#include "common/system/log.h"
#include "worker/job/compression_options.h"

namespace syncline::worker {
namespace {

// ReadManifest, with the disk watched.
absl::StatusOr<CheckpointManifest> ReadManifestWatched(const std::string& path,
                                                       const GoOnCheck& go_on,
                                                       absl::Duration wait_max,
                                                       uint32_t* crc32c) {
  // The call may be left behind.
  struct Manifest {
    absl::StatusOr<CheckpointManifest> read = absl::UnknownError("");
    uint32_t crc32c = 0;
  };
  const auto manifest = std::make_shared<Manifest>();
  DiskThread disk("residual-disk");
  disk.Begin([manifest, path] {
    manifest->read = ReadManifest(path, &manifest->crc32c);
    return absl::OkStatus();
  });
  SYNCLINE_RETURN_IF_ERROR(AwaitDisk(&disk, go_on, wait_max, [&] {
    return absl::StrCat(path,
                        ": the disk hangs: it has not shown the manifest in ",
                        absl::FormatDuration(wait_max));
  }));
  *crc32c = manifest->crc32c;
  return std::move(manifest->read);
}

absl::StatusOr<std::shared_ptr<KeptGradients>> Read(
    const PreparedJob& job, const GradientCompressor::Options& options,
    const GoOnCheck& go_on) {
  if (!job.regimes.At(job.assignment.start_clock()).in_step()) {
    return absl::FailedPreconditionError(
        "checkpoints have those of jobs in SYNC alone");
  }
  const std::string& path = job.assignment.start_from().path();
  const absl::Duration wait_max = StartDiskWaitMax(job.spec());
  uint32_t crc32c = 0;
  SYNCLINE_ASSIGN_OR_RETURN(
      const CheckpointManifest manifest,
      ReadManifestWatched(path, go_on, wait_max, &crc32c));
  SYNCLINE_RETURN_IF_ERROR(CheckStart(manifest, crc32c, job.assignment));
  std::vector<uint64_t> elements;
  for (const TrainingGraph::Parameter& parameter : job.training.parameters) {
    elements.push_back(
        parameter.momentum.has_value()
            ? 0
            : static_cast<uint64_t>(ElementCount(parameter.dims)));
  }
  return ReadResiduals(path, manifest, job.rank,
                       static_cast<uint32_t>(job.assignment.workers_size()),
                       options.compression.kind,
                       GradientCompressor::KeepsMomentum(options), elements,
                       go_on, wait_max);
}

}  // namespace

std::shared_ptr<ResidualWriter> MakeResidualWriter(const PreparedJob& job) {
  if (!SavesResiduals(job.spec()) || !job.trains() ||
      CompressionBytes(job.spec(), job.regimes, job.training) == 0) {
    return nullptr;
  }
  const std::string& id = job.assignment.job_id();
  return std::make_shared<ResidualWriter>(ResidualWriter::Options{
      .job_id = id,
      .folder = absl::StrCat(job.spec().checkpoint().directory(), "/", id),
      .rank = job.rank,
      .ranks = static_cast<uint32_t>(job.assignment.workers_size())});
}

std::shared_ptr<KeptGradients> KeptAtStart(const PreparedJob& job,
                                           const GoOnCheck& go_on) {
  const int64_t start = job.assignment.start_clock();
  GradientCompressor::Options options =
      CompressorOptionsOf(job.spec(), job.regimes, job.training, job.rank);
  options.compression = job.regimes.At(start).compression;
  if (start == 0 || !options.compression.has_residuals()) return nullptr;
  auto kept = Read(job, options, go_on);
  if (kept.ok()) {
    LogInfo("residuals of compression go on from the checkpoint")
        .Job(job.assignment.job_id())
        .Field("rank", job.rank)
        .Field("clock", start);
    return *std::move(kept);
  }
  LogWarning(
      "residuals of compression begin anew: the bits from here on are not "
      "those of a job that was not interrupted")
      .Job(job.assignment.job_id())
      .Field("rank", job.rank)
      .Field("clock", start)
      .Status(kept.status());
  return nullptr;
}

}  // namespace syncline::worker

#include "worker/job/residual_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/state_file.h"
#include "common/regime/compression_message.h"
#include "common/state/block_state.h"
#include "common/state/shard_state_reader.h"
#include "common/state/shard_state_writer.h"
#include "common/system/file.h"
#include "common/system/log.h"
#include "proto/shard_state.pb.h"

namespace syncline::worker {
namespace {

std::string KindName(GradientCompression::Kind kind) {
  return CompressionSpec::Kind_Name(KindOf({.kind = kind}));
}

// A disk that takes a piece for longer hangs.
constexpr absl::Duration kPieceWaitMax = absl::Minutes(1);

bool HasMomentum(const KeptGradients& kept) {
  return std::any_of(kept.tensors.begin(), kept.tensors.end(),
                     [](const auto& of) { return of.momentum.size() > 0; });
}

// Reads a rank's file into *kept, which has its sizes.
class FileReader {
 public:
  FileReader(const CheckpointManifest& manifest, GradientCompression::Kind kind,
             KeptGradients* kept)
      : manifest_(manifest),
        kind_(kind),
        slots_(HasMomentum(*kept) ? 1 : 0),
        kept_(*kept) {}

  absl::Status Read(const std::string& path, uint32_t rank,
                    const GoOnCheck& go_on,
                    std::optional<absl::Duration> wait_max) {
    SYNCLINE_ASSIGN_OR_RETURN(const auto source, StateFileSource::OpenUnlisted(
                                                     path, go_on, wait_max));
    ShardStateReader reader(source.get());
    BlockStateReader blocks;
    seen_.assign(kept_.tensors.size(), false);
    uint64_t expected = 0;
    while (true) {
      SYNCLINE_ASSIGN_OR_RETURN(const ShardStateReader::Record record,
                                reader.Next());
      if (record.kind == ShardStateKind::kTrailer) break;
      if (record.kind == ShardStateKind::kHeader) {
        ShardStateHeader header;
        SYNCLINE_RETURN_IF_ERROR(reader.Parse(record, &header));
        SYNCLINE_RETURN_IF_ERROR(Check(path, rank, header));
        blocks.Begin(1 + header.slots());
        expected = header.blocks();
      } else if (record.kind == ShardStateKind::kDense) {
        SYNCLINE_ASSIGN_OR_RETURN(const BlockStateReader::Piece piece,
                                  blocks.Take(reader, record));
        SYNCLINE_RETURN_IF_ERROR(Take(path, piece));
      } else {
        return reader.Damage("residuals have no such record");
      }
    }
    SYNCLINE_RETURN_IF_ERROR(blocks.CheckClosed(reader));
    if (blocks.blocks() != expected) {
      return reader.Damage(absl::StrCat("the file has ", blocks.blocks(),
                                        " tensors, ", expected,
                                        " were written"));
    }
    for (size_t i = 0; i < seen_.size(); ++i) {
      if (!seen_[i] && kept_.tensors[i].residual.size() > 0) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": tensor ", i, " is not there"));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Check(const std::string& path, uint32_t rank,
                     const ShardStateHeader& header) const {
    if (header.format() != kShardStateFormat ||
        header.job_id() != manifest_.job_id() ||
        header.cut_id() != manifest_.cut_id() || header.ps_rank() != rank) {
      return absl::DataLossError(
          absl::StrCat(path, ": of another checkpoint: job ", header.job_id(),
                       ", rank ", header.ps_rank(), ", cut ", header.cut_id()));
    }
    if (header.optimizer() == KindName(kind_) && header.slots() == slots_) {
      return absl::OkStatus();
    }
    const auto text = [](absl::string_view kind, uint32_t slots) {
      return absl::StrCat(kind, slots > 0 ? " with momentum" : "");
    };
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": of compression ", text(header.optimizer(), header.slots()),
        ", not ", text(KindName(kind_), slots_)));
  }

  absl::Status Take(const std::string& path,
                    const BlockStateReader::Piece& piece) {
    const auto wrong = [&] {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": tensor ", piece.block, " with ", piece.elements,
          " elements, array ", piece.array, ", is not what this job keeps"));
    };
    if (piece.block >= kept_.tensors.size()) return wrong();
    KeptGradients::Tensor& tensor = kept_.tensors[piece.block];
    AlignedFloats& to = piece.array == 0 ? tensor.residual : tensor.momentum;
    if (to.size() != piece.elements || to.size() == 0) return wrong();
    if (piece.begins) {
      if (seen_[piece.block]) return wrong();
      seen_[piece.block] = true;
      tensor.samples = static_cast<uint64_t>(piece.updates);
    }
    std::memcpy(to.data() + piece.first, piece.bytes.data(),
                piece.bytes.size());
    return absl::OkStatus();
  }

  const CheckpointManifest& manifest_;
  const GradientCompression::Kind kind_;
  const uint32_t slots_;
  KeptGradients& kept_;
  std::vector<bool> seen_;  // of the file, by tensor
};

}  // namespace

// --- Writing -----------------------------------------------------------------

ResidualWriter::ResidualWriter(Options options)
    : options_(std::move(options)),
      file_(ResidualFileName(options_.rank, options_.ranks)),
      task_(std::make_shared<Task>()),
      disk_("residuals-disk"),
      writer_("residuals", 1) {}

ResidualWriter::~ResidualWriter() {
  {
    MutexLock lock(&mu_);
    is_closing_ = true;
    closing_.SignalAll();
  }
  disk_.LeaveAt(MonotonicNow() + kCheckpointDiskWaitMax,
                absl::CancelledError("the rank's part of the job is over"));
  writer_.Stop();
}

void ResidualWriter::Save(uint64_t cut_id, int64_t clock,
                          const GradientCompressor& compressor) {
  {
    MutexLock lock(&mu_);
    if (is_busy_) {
      LogWarning(
          "residuals not written: the file before is still being written")
          .Job(options_.job_id)
          .Field("rank", options_.rank)
          .Field("cut", cut_id);
      return;
    }
    is_busy_ = true;
  }
  task_->cut_id = cut_id;
  task_->path =
      absl::StrCat(options_.folder, "/",
                   CheckpointName{.clock = clock, .cut_id = cut_id}.ToString());
  task_->kind = compressor.kind();
  compressor.CopyKept(&task_->kept);
  if (!writer_.TrySubmit([this, task = task_] { Write(*task); })) {
    MutexLock lock(&mu_);
    is_busy_ = false;
  }
}

void ResidualWriter::Write(const Task& task) {
  RemoveUncommitted();
  const absl::Status written = WriteFile(task);
  last_path_ = task.path;
  if (!written.ok()) {
    LogWarning("residuals not written")
        .Job(options_.job_id)
        .Field("rank", options_.rank)
        .Field("cut", task.cut_id)
        .Status(written);
  }
  MutexLock lock(&mu_);
  is_busy_ = false;
}

absl::Status ResidualWriter::WriteFile(const Task& task) {
  SYNCLINE_RETURN_IF_ERROR(AwaitFolder(task.path));
  SYNCLINE_ASSIGN_OR_RETURN(
      const std::unique_ptr<StateFileSink> file,
      StateFileSink::Create(absl::StrCat(task.path, "/", file_),
                            /*go_on=*/nullptr, &disk_));
  file->SetPieceWaitMax(kPieceWaitMax);
  const bool has_momentum = HasMomentum(task.kept);
  ShardStateHeader header;
  header.set_format(kShardStateFormat);
  header.set_job_id(options_.job_id);
  header.set_ps_rank(options_.rank);
  header.set_cut_id(task.cut_id);
  header.set_optimizer(KindName(task.kind));
  header.set_slots(has_momentum ? 1 : 0);
  uint32_t tensors = 0;
  for (const KeptGradients::Tensor& tensor : task.kept.tensors) {
    tensors += tensor.residual.size() > 0 ? 1 : 0;
  }
  header.set_blocks(tensors);
  ShardStateWriter writer(file.get());
  SYNCLINE_RETURN_IF_ERROR(writer.Write(ShardStateKind::kHeader, header, {}));
  for (uint32_t i = 0; i < task.kept.tensors.size(); ++i) {
    const KeptGradients::Tensor& tensor = task.kept.tensors[i];
    if (tensor.residual.size() == 0) continue;
    SYNCLINE_RETURN_IF_ERROR(WriteBlock(
        i, tensor.residual.size(), static_cast<int64_t>(tensor.samples),
        has_momentum ? 2 : 1,
        [&](int array) {
          return array == 0 ? tensor.residual.span() : tensor.momentum.span();
        },
        &writer));
  }
  ShardStateTrailer trailer;
  trailer.set_blocks(tensors);
  SYNCLINE_RETURN_IF_ERROR(writer.Write(ShardStateKind::kTrailer, trailer, {}));
  return file->Finish();
}

absl::Status ResidualWriter::AwaitFolder(const std::string& path) {
  absl::Duration look_again = absl::Milliseconds(1);
  const absl::Time deadline = MonotonicNow() + options_.folder_wait_max;
  while (true) {
    const absl::Status seen = disk_.Run([path] {
      struct stat info;
      return stat(path.c_str(), &info) == 0 ? absl::OkStatus()
                                            : FileError(errno, "see", path);
    });
    if (!absl::IsNotFound(seen) || MonotonicNow() >= deadline) return seen;
    MutexLock lock(&mu_);
    if (is_closing_) return seen;
    closing_.WaitUntil(&mu_, MonotonicNow() + look_again);
    look_again = std::min(2 * look_again, absl::Milliseconds(100));
  }
}

void ResidualWriter::RemoveUncommitted() {
  if (last_path_.empty()) return;
  (void)disk_.Run([path = std::exchange(last_path_, ""), file = file_] {
    std::error_code ignored;
    if (std::filesystem::exists(absl::StrCat(path, "/", kManifestFile),
                                ignored)) {
      return absl::OkStatus();
    }
    std::filesystem::remove(absl::StrCat(path, "/", file), ignored);
    std::filesystem::remove(path, ignored);  // if nothing is left in it
    return absl::OkStatus();
  });
}

// --- Reading -----------------------------------------------------------------

absl::StatusOr<std::shared_ptr<KeptGradients>> ReadResiduals(
    const std::string& path, const CheckpointManifest& manifest, uint32_t rank,
    uint32_t ranks, GradientCompression::Kind kind, bool has_momentum,
    absl::Span<const uint64_t> elements, const GoOnCheck& go_on,
    std::optional<absl::Duration> wait_max) {
  auto kept = std::make_shared<KeptGradients>();
  for (const uint64_t count : elements) {
    KeptGradients::Tensor& tensor = kept->tensors.emplace_back();
    tensor.residual = AlignedFloats(count);
    if (has_momentum) tensor.momentum = AlignedFloats(count);
  }
  if (static_cast<uint32_t>(manifest.workers_size()) != ranks) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": residuals of ", manifest.workers_size(),
                     " workers, not of ", ranks));
  }
  SYNCLINE_RETURN_IF_ERROR(
      FileReader(manifest, kind, kept.get())
          .Read(absl::StrCat(path, "/", ResidualFileName(rank, ranks)), rank,
                go_on, wait_max));
  return kept;
}

}  // namespace syncline::worker

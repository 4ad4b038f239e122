#include "common/checkpoint/residual_check.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/state_file.h"
#include "common/state/block_state.h"
#include "common/state/shard_state_reader.h"
#include "proto/shard_state.pb.h"

namespace syncline {
namespace {

namespace fs = std::filesystem;

// False: the name is not one of ResidualFileName.
bool ParseName(const std::string& name, ResidualFile* file) {
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, "residuals-") ||
      !absl::ConsumeSuffix(&rest, ".state")) {
    return false;
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, "-of-");
  return parts.size() == 2 && absl::SimpleAtoi(parts[0], &file->rank) &&
         absl::SimpleAtoi(parts[1], &file->ranks) &&
         name == ResidualFileName(file->rank, file->ranks);
}

absl::Status CheckHeader(const std::string& path, uint32_t rank,
                         const CheckpointManifest& manifest,
                         const ShardStateHeader& header) {
  if (header.format() == kShardStateFormat &&
      header.job_id() == manifest.job_id() &&
      header.cut_id() == manifest.cut_id() && header.ps_rank() == rank) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat(path, ": of another checkpoint: job ", header.job_id(),
                   ", rank ", header.ps_rank(), ", cut ", header.cut_id()));
}

}  // namespace

std::string ResidualFileName(uint32_t rank, uint32_t ranks) {
  return absl::StrFormat("residuals-%05d-of-%05d.state", rank, ranks);
}

std::vector<ResidualFile> ListResiduals(const std::string& path) {
  std::vector<ResidualFile> files;
  std::error_code error;
  for (fs::directory_iterator entry(path, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    ResidualFile file;
    if (!ParseName(entry->path().filename().string(), &file)) continue;
    std::error_code unread;
    const uintmax_t bytes = entry->file_size(unread);
    file.bytes = unread ? 0 : bytes;
    files.push_back(file);
  }
  std::sort(files.begin(), files.end(),
            [](const ResidualFile& a, const ResidualFile& b) {
              return a.rank < b.rank || (a.rank == b.rank && a.ranks < b.ranks);
            });
  return files;
}

uint64_t ResidualBytes(const std::vector<ResidualFile>& files) {
  uint64_t bytes = 0;
  for (const ResidualFile& file : files) bytes += file.bytes;
  return bytes;
}

absl::Status CheckResiduals(const std::string& path,
                            const CheckpointManifest& manifest,
                            const ResidualFile& file) {
  const std::string name =
      absl::StrCat(path, "/", ResidualFileName(file.rank, file.ranks));
  if (static_cast<uint32_t>(manifest.workers_size()) != file.ranks) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, ": the checkpoint is of ", manifest.workers_size(), " workers"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const auto source, StateFileSource::OpenUnlisted(
                                                   name, /*go_on=*/nullptr));
  ShardStateReader reader(source.get());
  BlockStateReader blocks;
  uint64_t expected = 0;
  while (true) {
    SYNCLINE_ASSIGN_OR_RETURN(const ShardStateReader::Record record,
                              reader.Next());
    if (record.kind == ShardStateKind::kTrailer) break;
    if (record.kind == ShardStateKind::kHeader) {
      ShardStateHeader header;
      SYNCLINE_RETURN_IF_ERROR(reader.Parse(record, &header));
      SYNCLINE_RETURN_IF_ERROR(CheckHeader(name, file.rank, manifest, header));
      blocks.Begin(1 + header.slots());
      expected = header.blocks();
    } else if (record.kind == ShardStateKind::kDense) {
      SYNCLINE_RETURN_IF_ERROR(blocks.Take(reader, record).status());
    } else {
      return reader.Damage("residuals have no such record");
    }
  }
  SYNCLINE_RETURN_IF_ERROR(blocks.CheckClosed(reader));
  if (blocks.blocks() == expected) return absl::OkStatus();
  return reader.Damage(absl::StrCat("the file has ", blocks.blocks(),
                                    " tensors, ", expected, " were written"));
}

}  // namespace syncline

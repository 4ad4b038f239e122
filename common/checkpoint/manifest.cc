#include "common/checkpoint/manifest.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/crc32c.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/cuts/cut_id.h"

namespace syncline {
namespace {

constexpr int kClockDigits = 12;
constexpr int kCutDigits = 16;
constexpr int kShardsMax = 65536;

// Words of the frame, by their place.
enum Word { kMagicWord, kFormatWord, kBytesWord, kChecksumWord };
constexpr size_t kChecksumAt = kChecksumWord * sizeof(uint32_t);

void Append32(uint32_t value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

uint32_t Load32(absl::string_view bytes, Word word) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + word * sizeof(value), sizeof(value));
  return value;
}

// The checksum is of everything but itself.
uint32_t ChecksumOf(absl::string_view bytes) {
  return ExtendCrc32c(Crc32c(bytes.substr(0, kChecksumAt)),
                      bytes.substr(kManifestFrameBytes));
}

std::string Shown(absl::string_view text) {
  constexpr size_t kShownMax = 100;
  return absl::StrCat("'", Printable(text.substr(0, kShownMax)), "'");
}

std::string DimsText(const ParameterInfo& info) {
  return absl::StrCat("[", absl::StrJoin(info.dims(), ","), "]");
}

absl::Status CheckShards(const CheckpointManifest& manifest) {
  if (manifest.shards_size() < 1 || manifest.shards_size() > kShardsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("shards: there are ", manifest.shards_size(),
                     ", must be 1 to ", kShardsMax));
  }
  bool any = false;
  for (int shard = 0; shard < manifest.shards_size(); ++shard) {
    const CheckpointManifest::Shard& one = manifest.shards(shard);
    const std::string name =
        ShardFileName(static_cast<uint32_t>(shard),
                      static_cast<uint32_t>(manifest.shards_size()));
    if (one.file().empty()) continue;
    any = true;
    if (one.file() == name && one.bytes() > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("shards[", shard, "]: its file is ", Shown(one.file()),
                     " of ", one.bytes(), " bytes, expected ", name));
  }
  if (any) return absl::OkStatus();
  return absl::InvalidArgumentError("shards: none has a file");
}

absl::Status CheckWorkers(const CheckpointManifest& manifest) {
  if (manifest.workers_size() < 1) {
    return absl::InvalidArgumentError("workers: there is none");
  }
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int rank = 0; rank < manifest.workers_size(); ++rank) {
    const CheckpointManifest::Worker& worker = manifest.workers(rank);
    least = std::min(least, worker.clock());
    if (worker.clock() < 0 || worker.clock() > kCutClockMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("workers[", rank, "].clock: ", worker.clock(),
                       " must be 0 to ", kCutClockMax));
    }
    if (!worker.has_loss_scale()) continue;
    const float scale = worker.loss_scale().scale();
    if (std::isfinite(scale) && scale > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "workers[", rank, "].loss_scale.scale: ", scale, " must be > 0"));
  }
  if (manifest.clock() == least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("clock: ", manifest.clock(),
                   ", and the smallest one of the workers is ", least));
}

}  // namespace

// --- Names -------------------------------------------------------------------

std::string CheckpointName::ToString() const {
  return absl::StrFormat("%012d-%016x", clock, cut_id);
}

std::optional<CheckpointName> CheckpointName::Parse(absl::string_view name) {
  if (name.size() != kClockDigits + 1 + kCutDigits ||
      name[kClockDigits] != '-') {
    return std::nullopt;
  }
  CheckpointName parsed;
  const absl::string_view clock = name.substr(0, kClockDigits);
  const absl::string_view cut = name.substr(kClockDigits + 1);
  if (!std::all_of(clock.begin(), clock.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(clock, &parsed.clock)) {
    return std::nullopt;
  }
  for (const char digit : cut) {
    const bool lower = digit >= 'a' && digit <= 'f';
    if (!absl::ascii_isdigit(digit) && !lower) return std::nullopt;
    parsed.cut_id =
        parsed.cut_id * 16 +
        static_cast<uint64_t>(lower ? digit - 'a' + 10 : digit - '0');
  }
  return parsed;
}

CheckpointName CheckpointName::Of(uint64_t cut_id,
                                  absl::Span<const int64_t> clocks) {
  return {*std::min_element(clocks.begin(), clocks.end()), cut_id};
}

std::string ShardFileName(uint32_t shard, uint32_t shards) {
  return absl::StrFormat("shard-%05d-of-%05d.state", shard, shards);
}

std::string OlderStateFile(absl::string_view path, uint64_t cut_id) {
  return absl::StrFormat("%s.%016x.state", absl::StripSuffix(path, ".state"),
                         cut_id);
}

// --- The manifest ------------------------------------------------------------

CheckpointManifest MakeManifest(const JobAssignment& assignment,
                                const CheckpointParts& parts) {
  CheckpointManifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_job_id(assignment.job_id());
  manifest.set_tenant(assignment.tenant());
  *manifest.mutable_spec() = assignment.spec();
  *manifest.mutable_parameters() = assignment.parameters();
  *manifest.mutable_tables() = assignment.tables();
  if (parts.regimes.empty()) {
    *manifest.mutable_regimes() = assignment.regimes();
  }
  for (const Regime& regime : parts.regimes) *manifest.add_regimes() = regime;
  if (assignment.has_routing()) {
    *manifest.mutable_routing() = assignment.routing();
  }
  if (!parts.block_shards.empty()) {
    manifest.mutable_routing()->set_version(1);
    manifest.mutable_routing()->mutable_block_shards()->Add(
        parts.block_shards.begin(), parts.block_shards.end());
  }
  manifest.set_attempt(assignment.attempt());
  manifest.set_model_crc32c(parts.model_crc32c);
  manifest.set_cut_id(parts.cut_id);
  manifest.set_clock(CheckpointName::Of(parts.cut_id, parts.clocks).clock);
  manifest.set_total_clocks(parts.total_clocks);
  for (size_t rank = 0; rank < parts.clocks.size(); ++rank) {
    CheckpointManifest::Worker* const worker = manifest.add_workers();
    worker->set_clock(parts.clocks[rank]);
    if (rank >= parts.loss_scales.size()) continue;
    *worker->mutable_loss_scale() = parts.loss_scales[rank];
  }
  for (const AwaitCheckpointResponse& written : parts.shards) {
    CheckpointManifest::Shard* const shard = manifest.add_shards();
    shard->set_file(written.file());
    shard->set_bytes(written.bytes());
    shard->set_crc32c(written.crc32c());
  }
  const int64_t nanoseconds = absl::ToUnixNanos(parts.time);
  manifest.mutable_time()->set_seconds(nanoseconds / 1'000'000'000);
  manifest.mutable_time()->set_nanos(
      static_cast<int32_t>(nanoseconds % 1'000'000'000));
  manifest.set_seconds(absl::ToDoubleSeconds(parts.took));
  return manifest;
}

absl::Status CheckManifest(const CheckpointManifest& manifest) {
  if (manifest.format() != kManifestFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat("format: ", manifest.format(), ", this version knows ",
                     kManifestFormat));
  }
  if (manifest.job_id().empty()) {
    return absl::InvalidArgumentError("job_id: is missing");
  }
  if (manifest.cut_id() == 0) {
    return absl::InvalidArgumentError("cut_id: is missing");
  }
  if (manifest.total_clocks() < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "total_clocks: ", manifest.total_clocks(), " must be >= 0"));
  }
  SYNCLINE_RETURN_IF_ERROR(CheckWorkers(manifest));
  return CheckShards(manifest);
}

absl::StatusOr<std::string> EncodeManifest(const CheckpointManifest& manifest) {
  SYNCLINE_RETURN_IF_ERROR(CheckManifest(manifest));
  const size_t bytes = manifest.ByteSizeLong();
  if (bytes > kManifestBytesMax - kManifestFrameBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a manifest of ", bytes, " bytes, at most ",
                     kManifestBytesMax - kManifestFrameBytes));
  }
  std::string encoded;
  Append32(kManifestMagic, &encoded);
  Append32(kManifestFormat, &encoded);
  Append32(static_cast<uint32_t>(bytes), &encoded);
  Append32(0, &encoded);
  manifest.AppendToString(&encoded);
  const uint32_t checksum = ChecksumOf(encoded);
  std::memcpy(encoded.data() + kChecksumAt, &checksum, sizeof(checksum));
  return encoded;
}

absl::StatusOr<CheckpointManifest> DecodeManifest(absl::string_view source,
                                                  absl::string_view bytes) {
  const auto damage = [&](absl::string_view problem) {
    return absl::DataLossError(
        absl::StrCat(source, ": the manifest is damaged: ", problem));
  };
  if (bytes.size() < kManifestFrameBytes) {
    return damage(absl::StrCat("it has ", bytes.size(), " bytes, at least ",
                               kManifestFrameBytes, " are there"));
  }
  if (Load32(bytes, kMagicWord) != kManifestMagic) {
    return damage("it does not begin with SYCM");
  }
  const size_t body = bytes.size() - kManifestFrameBytes;
  if (Load32(bytes, kBytesWord) != body || bytes.size() > kManifestBytesMax) {
    return damage(absl::StrCat("it announces ", Load32(bytes, kBytesWord),
                               " bytes, and ", body, " follow"));
  }
  if (Load32(bytes, kChecksumWord) != ChecksumOf(bytes)) {
    return damage("its checksum is another one");
  }
  if (Load32(bytes, kFormatWord) != kManifestFormat) {
    return absl::InvalidArgumentError(absl::StrCat(
        source, ": the manifest has format ", Load32(bytes, kFormatWord),
        ", this version knows ", kManifestFormat));
  }
  CheckpointManifest manifest;
  if (!manifest.ParseFromArray(bytes.data() + kManifestFrameBytes,
                               static_cast<int>(body))) {
    return damage("it cannot be parsed");
  }
  SYNCLINE_RETURN_IF_ERROR(
      Annotate(CheckManifest(manifest), absl::StrCat(source, ": manifest")));
  return manifest;
}

CheckpointInfo CheckpointInfoOf(const CheckpointManifest& manifest,
                                absl::string_view path,
                                absl::string_view encoded) {
  CheckpointInfo info;
  info.set_path(std::string(path));
  info.set_clock(manifest.clock());
  info.set_shards(static_cast<uint32_t>(manifest.shards_size()));
  uint64_t bytes = 0;
  for (const CheckpointManifest::Shard& shard : manifest.shards()) {
    bytes += shard.bytes();
  }
  info.set_bytes(bytes);
  info.set_manifest_crc32c(Crc32c(encoded));
  *info.mutable_time() = manifest.time();
  info.set_seconds(manifest.seconds());
  info.set_attempt(manifest.attempt());
  return info;
}

JobAssignment AssignmentOf(const CheckpointManifest& manifest) {
  JobAssignment assignment;
  assignment.set_job_id(manifest.job_id());
  *assignment.mutable_spec() = manifest.spec();
  *assignment.mutable_parameters() = manifest.parameters();
  *assignment.mutable_tables() = manifest.tables();
  *assignment.mutable_regimes() = manifest.regimes();
  assignment.set_attempt(manifest.attempt());
  // A ps a shard: which process had it does not matter any more.
  if (manifest.has_routing()) {
    *assignment.mutable_routing() = manifest.routing();
    assignment.mutable_routing()->clear_shard_ps();
  }
  for (int shard = 0; shard < manifest.shards_size(); ++shard) {
    assignment.add_ps()->set_rank(static_cast<uint32_t>(shard));
  }
  // RoutingTable tells by them which shards are the workers' parts.
  for (int rank = 0; rank < manifest.workers_size(); ++rank) {
    assignment.add_workers()->set_rank(static_cast<uint32_t>(rank));
  }
  return assignment;
}

absl::Status CheckSameModel(const CheckpointManifest& manifest,
                            const JobAssignment& assignment) {
  const auto differ = [](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is of another model: ", what...,
                     "; model.freeze and tables must be the same, too. Values "
                     "go over by their names from a file that `synctl "
                     "checkpoints export` writes: --weights FILE.safetensors"));
  };
  for (int i = 0;
       i < std::max(manifest.parameters_size(), assignment.parameters_size());
       ++i) {
    if (i >= manifest.parameters_size()) {
      return differ("it has no tensor ", Shown(assignment.parameters(i).name()),
                    ", which the job has");
    }
    const ParameterInfo& there = manifest.parameters(i);
    if (i >= assignment.parameters_size()) {
      return differ("it has the tensor ", Shown(there.name()),
                    ", which the job has not");
    }
    const ParameterInfo& here = assignment.parameters(i);
    if (there.name() != here.name()) {
      return differ("tensor ", i, " is ", Shown(there.name()),
                    ", the job's is ", Shown(here.name()));
    }
    if (DimsText(there) != DimsText(here)) {
      return differ("the tensor ", Shown(there.name()), " has the shape ",
                    DimsText(there), ", the job's ", DimsText(here));
    }
    if (there.has_momentum() != here.has_momentum()) {
      return differ("the tensor ", Shown(there.name()),
                    " is a running mean in one of them alone");
    }
  }
  if (manifest.tables_size() != assignment.tables_size()) {
    return differ("it has ", manifest.tables_size(), " tables, the job ",
                  assignment.tables_size());
  }
  for (int i = 0; i < manifest.tables_size(); ++i) {
    const TableInfo& there = manifest.tables(i);
    const TableInfo& here = assignment.tables(i);
    if (there.name() == here.name() && there.dim() == here.dim()) continue;
    return differ("table ", i, " is ", Shown(there.name()), " with rows of ",
                  there.dim(), ", the job's is ", Shown(here.name()), " with ",
                  here.dim());
  }
  return absl::OkStatus();
}

}  // namespace syncline

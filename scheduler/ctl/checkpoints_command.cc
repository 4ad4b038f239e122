#include "scheduler/ctl/checkpoints_command.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/residual_check.h"
#include "common/job/compression_rules.h"
#include "common/model/model.h"
#include "common/model/training_graph.h"
#include "common/system/file.h"
#include "common/system/tar.h"
#include "scheduler/ctl/folder_claim.h"
#include "scheduler/ctl/job_file.h"
#include "scheduler/ctl/start_command.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "scheduler/ctl/text/job_text.h"

namespace syncline::ctl {
namespace {

namespace fs = std::filesystem;

constexpr char kTensorsEnding[] = ".safetensors";
constexpr char kModelEnding[] = ".onnx";

uint64_t BytesOf(const CheckpointManifest& manifest) {
  uint64_t bytes = 0;
  for (const CheckpointManifest::Shard& shard : manifest.shards()) {
    bytes += shard.bytes();
  }
  return bytes;
}

std::string TimeText(const CheckpointManifest& manifest) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S",
                          absl::FromUnixSeconds(manifest.time().seconds()),
                          absl::LocalTimeZone());
}

CheckpointInfo InfoOf(const CheckpointFolder& folder) {
  CheckpointInfo info;
  info.set_path(folder.path);
  info.set_clock(folder.name.clock);
  if (!folder.manifest.ok()) return info;
  uint32_t crc32c = 0;
  if (ReadManifest(folder.path, &crc32c).ok()) {
    info.set_manifest_crc32c(crc32c);
  }
  const CheckpointManifest& manifest = *folder.manifest;
  info.set_shards(static_cast<uint32_t>(manifest.shards_size()));
  info.set_bytes(BytesOf(manifest));
  *info.mutable_time() = manifest.time();
  info.set_seconds(manifest.seconds());
  info.set_attempt(manifest.attempt());
  return info;
}

// Those in the folder, or in the folders of jobs below it.
absl::StatusOr<std::vector<CheckpointFolder>> Find(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return absl::NotFoundError(absl::StrCat("no folder \"", folder, "\""));
  }
  SYNCLINE_ASSIGN_OR_RETURN(std::vector<CheckpointFolder> all,
                            ListCheckpoints(folder));
  if (!all.empty()) return all;
  std::vector<std::string> jobs;
  for (fs::directory_iterator entry(folder, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (entry->is_directory(error)) jobs.push_back(entry->path().string());
  }
  if (error) return FileError(error.value(), "list", folder);
  std::sort(jobs.begin(), jobs.end());
  for (const std::string& job : jobs) {
    SYNCLINE_ASSIGN_OR_RETURN(auto some, ListCheckpoints(job));
    for (CheckpointFolder& one : some) all.push_back(std::move(one));
  }
  return all;
}

// " + 3.0 MiB residuals"; empty: there are none.
std::string ResidualsText(const std::string& path) {
  const std::vector<ResidualFile> files = ListResiduals(path);
  return files.empty() ? ""
                       : absl::StrCat(" + ", FormatBytes(ResidualBytes(files)),
                                      " residuals");
}

std::string ListLine(const CheckpointFolder& one) {
  if (!one.manifest.ok()) {
    const bool none =
        one.manifest.status().code() == absl::StatusCode::kNotFound;
    return absl::StrFormat(
        "%-12d %s  %s\n", one.name.clock, one.path,
        none ? "no manifest: being written, or left by a killed process"
             : std::string(one.manifest.status().message()));
  }
  const CheckpointManifest& manifest = *one.manifest;
  return absl::StrFormat("%-12d %s  %s%s  attempt %d  %s  %s\n", one.name.clock,
                         TimeText(manifest), FormatBytes(BytesOf(manifest)),
                         ResidualsText(one.path), manifest.attempt(),
                         manifest.job_id(), one.path);
}

// The older files of a shard whose own file leaves out rows.
std::vector<std::string> OlderFiles(const std::string& path,
                                    const std::string& file) {
  const std::string prefix =
      absl::StrCat(absl::StripSuffix(file, ".state"), ".");
  std::vector<std::string> older;
  std::error_code error;
  for (fs::directory_iterator entry(path, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name != file && absl::StartsWith(name, prefix)) older.push_back(name);
  }
  std::sort(older.begin(), older.end());
  return older;
}

std::string ShowText(const std::string& path,
                     const CheckpointManifest& manifest, uint32_t crc32c) {
  std::string text;
  const auto line = [&text](absl::string_view name, const auto&... value) {
    absl::StrAppend(&text, absl::StrFormat("%-12s ", name), value..., "\n");
  };
  line("path", path);
  line("job", manifest.job_id(), " '", manifest.spec().name(), "', attempt ",
       manifest.attempt());
  line("clock", manifest.clock(), " of ", manifest.total_clocks());
  line("made", TimeText(manifest), ", in ",
       absl::StrFormat("%.1f s", manifest.seconds()));
  line("manifest", absl::StrFormat("CRC-32C %08x", crc32c));
  line("size", FormatBytes(BytesOf(manifest)), " in ",
       FormatAmount(static_cast<uint64_t>(manifest.shards_size()), "shard"));
  for (const CheckpointManifest::Shard& shard : manifest.shards()) {
    if (shard.file().empty()) continue;
    line("", shard.file(), "  ", FormatBytes(shard.bytes()),
         absl::StrFormat("  CRC-32C %08x", shard.crc32c()));
    for (const std::string& older : OlderFiles(path, shard.file())) {
      line("", older, "  an older file that it needs");
    }
  }
  for (const ResidualFile& file : ListResiduals(path)) {
    line("residuals", ResidualFileName(file.rank, file.ranks), "  ",
         FormatBytes(file.bytes));
  }
  line("tensors", manifest.parameters_size());
  for (const TableInfo& table : manifest.tables()) {
    line("table", table.name(), ", rows of ", table.dim());
  }
  for (int rank = 0; rank < manifest.workers_size(); ++rank) {
    const CheckpointManifest::Worker& worker = manifest.workers(rank);
    line("worker", rank, " at clock ", worker.clock(),
         worker.has_loss_scale()
             ? absl::StrCat(", loss scale ", worker.loss_scale().scale())
             : "");
  }
  return text;
}

// Below the folder of `output`. A manifest may be a stranger's.
absl::StatusOr<std::string> RowsPath(const std::string& output,
                                     const std::string& table) {
  if (!IsPathBelow(table)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the manifest's table '",
                     Printable(absl::string_view(table).substr(0, 100)),
                     "' is no name of a file below ", output, "'s folder"));
  }
  return (fs::path(output).parent_path() / "tables" /
          absl::StrCat(table, kTensorsEnding))
      .string();
}

// The rows of an export with another name stay: both files would have these.
absl::Status CheckRowsAreNotAnothers(const CheckpointExport& options,
                                     const CheckpointManifest& manifest) {
  std::error_code error;
  if (fs::exists(options.output, error)) return absl::OkStatus();
  for (const TableInfo& table : manifest.tables()) {
    SYNCLINE_ASSIGN_OR_RETURN(const std::string path,
                              RowsPath(options.output, table.name()));
    if (!fs::exists(path, error)) continue;
    return absl::AlreadyExistsError(absl::StrCat(
        path, " is there already, and ", options.output,
        " is not: the rows of another export would be replaced; write to a "
        "folder of its own, or remove that file"));
  }
  return absl::OkStatus();
}

// Files that are written beside their names, which they get when all of them
// are whole: an export that fails leaves the one before it.
class PartFiles {
 public:
  PartFiles() = default;
  ~PartFiles() {
    std::error_code ignored;
    for (const auto& [part, path] : files_) fs::remove(part, ignored);
  }
  PartFiles(const PartFiles&) = delete;
  PartFiles& operator=(const PartFiles&) = delete;

  // The name to write the file of that path to.
  std::string Add(const std::string& path) {
    return files_.emplace_back(PartName(path), path).first;
  }
  absl::Status Commit() {
    for (const auto& [part, path] : files_) {
      std::error_code error;
      fs::rename(part, path, error);
      if (error) return FileError(error.value(), "write", path);
    }
    files_.clear();
    return absl::OkStatus();
  }

 private:
  std::vector<std::pair<std::string, std::string>> files_;
};

// The values of tensors; rows are written as they come.
absl::StatusOr<std::vector<std::vector<float>>> ReadAndWriteRows(
    const CheckpointExport& options, const CheckpointManifest& manifest,
    const CheckpointTools& tools, PartFiles* parts) {
  std::vector<std::unique_ptr<CheckpointTools::RowsFile>> files;
  for (const TableInfo& table : manifest.tables()) {
    SYNCLINE_ASSIGN_OR_RETURN(const std::string path,
                              RowsPath(options.output, table.name()));
    SYNCLINE_RETURN_IF_ERROR(MakeDirs(fs::path(path).parent_path()));
    SYNCLINE_ASSIGN_OR_RETURN(
        files.emplace_back(),
        tools.write_rows(parts->Add(path), table.name(), int64_t{table.dim()}));
  }
  std::vector<std::vector<float>> values;
  SYNCLINE_RETURN_IF_ERROR(
      tools.read(options.path, manifest, &values,
                 [&](uint32_t table, absl::Span<const int64_t> keys,
                     absl::Span<const float> rows) {
                   return files[table]->Add(keys, rows);
                 }));
  for (const auto& file : files) SYNCLINE_RETURN_IF_ERROR(file->Finish());
  return values;
}

absl::Status Export(const CheckpointExport& options,
                    const CheckpointTools& tools, std::ostream& notes) {
  const bool to_model = absl::EndsWith(options.output, kModelEnding);
  if (!to_model && !absl::EndsWith(options.output, kTensorsEnding)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--to: \"", options.output, "\" ends neither with ",
                     kTensorsEnding, " nor with ", kModelEnding));
  }
  if (to_model == options.model_file.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--model: the file that the job was submitted with is needed for a ",
        kModelEnding, " file, and for no other"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const CheckpointManifest manifest,
                            ReadManifest(options.path));
  SYNCLINE_RETURN_IF_ERROR(CheckRowsAreNotAnothers(options, manifest));
  std::shared_ptr<Model> model;
  if (to_model) {
    SYNCLINE_ASSIGN_OR_RETURN(const std::string bytes,
                              ReadFile(options.model_file, kModelBytesMax));
    SYNCLINE_ASSIGN_OR_RETURN(
        model, ParseJobModel(manifest.spec(), bytes, options.model_file));
    const std::string other = OtherModelNote(
        options.model_file,
        {.id = manifest.job_id(), .model_crc32c = manifest.model_crc32c()});
    if (!other.empty()) notes << other << std::endl;
  } else if (!manifest.spec().model().freeze().empty()) {
    notes << "note: parameters that model.freeze names are in the model's file "
             "alone, and not in "
          << options.output << std::endl;
  }
  PartFiles parts;
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<std::vector<float>> values,
                            ReadAndWriteRows(options, manifest, tools, &parts));
  const std::string part = parts.Add(options.output);
  if (!to_model) {
    SYNCLINE_RETURN_IF_ERROR(tools.write_tensors(part, manifest, values));
    return parts.Commit();
  }
  absl::flat_hash_map<std::string, absl::Span<const float>> weights;
  for (int i = 0; i < manifest.parameters_size(); ++i) {
    weights[manifest.parameters(i).name()] = values[static_cast<size_t>(i)];
  }
  std::vector<std::string> inputs;
  for (const TableInfo& table : manifest.tables()) {
    inputs.push_back(table.name());
  }
  SYNCLINE_RETURN_IF_ERROR(model->WriteWithWeights(part, weights, inputs));
  return parts.Commit();
}

// "written", and where the rows of tables are.
std::string WrittenText(const CheckpointExport& options) {
  const auto manifest = ReadManifest(options.path);
  if (!manifest.ok() || manifest->tables().empty()) return "written";
  return absl::StrCat(
      "written; the rows of ",
      FormatAmount(static_cast<uint64_t>(manifest->tables_size()), "table"),
      " are in ", (fs::path(options.output).parent_path() / "tables").string(),
      absl::EndsWith(options.output, kModelEnding)
          ? ", and the model takes them as an input of the table's name"
          : "");
}

// Prints what was done, or why it was not.
int End(const absl::Status& status, const std::string& done,
        const std::string& path, const Console& console) {
  if (!status.ok()) return console.PrintError(status);
  if (console.json) {
    google::protobuf::Struct object;
    SetField(&object, "path", path);
    SetField(&object, "result", done);
    console.PrintJson(object);
  } else {
    console.out << path << ": " << done << std::endl;
  }
  return kExitOk;
}

absl::Status CheckIsCheckpoint(const std::string& path) {
  const absl::Status manifest = ReadManifest(path).status();
  std::error_code error;
  if (manifest.ok()) return manifest;
  const std::string name = fs::path(path).filename();
  if (fs::is_directory(path, error) &&
      CheckpointName::Parse(name).has_value()) {
    return absl::OkStatus();  // a leftover, or one that is damaged
  }
  return manifest;
}

// Without what would leave its last part empty: "c/x/" is "c/x".
std::string Plain(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Reads the files of what workers keep of compressed gradients, and adds to
// *text what there is. Errors: CheckResiduals', with what they mean: the
// checkpoint is whole without them.
absl::Status VerifyResiduals(const std::string& path,
                             const CheckpointManifest& manifest,
                             std::string* text) {
  const std::vector<ResidualFile> files = ListResiduals(path);
  for (const ResidualFile& file : files) {
    SYNCLINE_RETURN_IF_ERROR(
        Annotate(CheckResiduals(path, manifest, file),
                 "the checkpoint is whole, but a worker that goes on from it "
                 "begins its residuals anew"));
  }
  const auto workers = static_cast<size_t>(manifest.workers_size());
  if (!files.empty()) {
    absl::StrAppend(text, ", and residuals of ", files.size(), " of ",
                    FormatAmount(workers, "worker"), ", ",
                    FormatBytes(ResidualBytes(files)));
  }
  if (files.size() < workers && SavesResiduals(manifest.spec()) &&
      Compresses(manifest.spec())) {
    absl::StrAppend(text, files.empty()
                              ? "; without residuals: workers that go "
                                "on from it begin theirs anew"
                              : "; the other workers begin theirs "
                                "anew");
  }
  return absl::OkStatus();
}

}  // namespace

int RunCheckpointsList(const std::string& folder, const Console& console) {
  const auto all = Find(Plain(folder));
  if (!all.ok()) return console.PrintError(all.status());
  for (const CheckpointFolder& one : *all) {
    if (console.json) {
      console.PrintJson(InfoOf(one));
    } else {
      console.out << ListLine(one);
    }
  }
  if (all->empty() && !console.json) {
    console.err << "no checkpoints in " << folder
                << (ReadManifest(Plain(folder)).ok()
                        ? ", which is one itself: see synctl checkpoints show"
                        : "")
                << "\n";
  }
  console.out.flush();
  return kExitOk;
}

int RunCheckpointsShow(const std::string& path, const Console& console) {
  uint32_t crc32c = 0;
  const auto manifest = ReadManifest(Plain(path), &crc32c);
  if (!manifest.ok()) return console.PrintError(manifest.status());
  if (console.json) {
    console.PrintJson(*manifest);
  } else {
    console.out << ShowText(path, *manifest, crc32c) << std::flush;
  }
  return kExitOk;
}

int RunCheckpointsVerify(const std::string& path, const CheckpointTools& tools,
                         const Console& console) {
  const std::string folder = Plain(path);
  const auto manifest = ReadManifest(folder);
  if (!manifest.ok()) return console.PrintError(manifest.status());
  const absl::Status whole = tools.read(folder, *manifest, nullptr, nullptr);
  if (!whole.ok()) return console.PrintError(whole);
  std::string text =
      absl::StrCat("whole, ", FormatBytes(BytesOf(*manifest)), " of its own");
  const absl::Status residuals = VerifyResiduals(folder, *manifest, &text);
  return End(residuals, text, folder, console);
}

int RunCheckpointsExport(const CheckpointExport& options,
                         const CheckpointTools& tools, const Console& console) {
  CheckpointExport plain = options;
  plain.path = Plain(options.path);
  const absl::Status status = Export(plain, tools, console.err);
  return End(status, status.ok() ? WrittenText(plain) : "", options.output,
             console);
}

int RunCheckpointsDelete(const std::vector<std::string>& paths,
                         const Console& console) {
  // All of them are looked at before the first is gone.
  for (const std::string& path : paths) {
    const absl::Status status = CheckIsCheckpoint(Plain(path));
    if (!status.ok()) return console.PrintError(status);
  }
  for (const std::string& path : paths) {
    const std::string folder = Plain(path);
    const int code = End(DeleteCheckpoint(folder), "deleted", folder, console);
    if (code != kExitOk) return code;
  }
  return kExitOk;
}

}  // namespace syncline::ctl

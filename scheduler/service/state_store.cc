#include "scheduler/service/state_store.h"

#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"
#include "common/system/log.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/options.h"
#include "rocksdb/write_batch.h"

namespace syncline::scheduler {
namespace {

constexpr char kFormatKey[] = "meta/format";
constexpr char kFormat[] = "1";
constexpr char kJobPrefix[] = "job/";
constexpr char kParametersPrefix[] = "parameters/";
constexpr char kClientKeyPrefix[] = "client_key/";
// Opening the database writes files; with less room it is not tried.
constexpr uint64_t kReopenBytesMin = 1 << 20;

absl::Status FromRocksDb(const rocksdb::Status& status,
                         const std::string& directory) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = status.ToString();
  const std::string message =
      absl::StrCat("state directory ", directory, ": ", text);
  if (status.IsCorruption()) return absl::DataLossError(message);
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(message);
  if (absl::StrContains(text, "ermission denied")) {
    return absl::PermissionDeniedError(message);
  }
  if (absl::StrContains(text, "lock ")) {
    return absl::UnavailableError(
        absl::StrCat("state directory ", directory,
                     " is in use by another scheduler (", text, ")"));
  }
  return absl::UnavailableError(message);
}

// RocksDB's warnings, in our log. Its own logger writes a file beside the data,
// and the packaged library ends the process at the first line after one that
// found the disk full.
class OurLog final : public rocksdb::Logger {
 public:
  OurLog() : rocksdb::Logger(rocksdb::WARN_LEVEL) {}
  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    char line[kLineBytesMax];
    std::vsnprintf(line, sizeof(line), format, arguments);
    LogWarning("state database").Field("text", line);
  }

 private:
  static constexpr size_t kLineBytesMax = 512;
};

// A scheduler's state is small: a few kilobytes per job.
rocksdb::Options SmallDatabase() {
  rocksdb::Options options;
  options.info_log = std::make_shared<OurLog>();
  options.create_if_missing = true;
  options.write_buffer_size = 4 << 20;
  options.max_total_wal_size = 16 << 20;
  options.max_open_files = 64;
  options.max_background_jobs = 2;
  // Every acknowledged write counts: a torn tail is all that may be dropped.
  options.wal_recovery_mode =
      rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  return options;
}

class RocksDbStateStore final : public StateStore {
 public:
  explicit RocksDbStateStore(std::string directory)
      : directory_(std::move(directory)) {}

  absl::Status Open() {
    MutexLock lock(&mu_);
    return OpenLocked();
  }

  absl::Status CheckFormat() {
    MutexLock lock(&mu_);
    std::string format;
    const rocksdb::Status status =
        db_->Get(rocksdb::ReadOptions(), kFormatKey, &format);
    if (status.IsNotFound()) {
      rocksdb::WriteBatch batch;
      batch.Put(kFormatKey, kFormat);
      return TryWrite(&batch, /*durable=*/true);
    }
    SYNCLINE_RETURN_IF_ERROR(FromRocksDb(status, directory_));
    if (format == kFormat) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("state directory ", directory_, " has format \"", format,
                     "\"; this scheduler reads format ", kFormat));
  }

  absl::StatusOr<Loaded> Load() const override {
    MutexLock lock(&mu_);
    Loaded loaded;
    if (db_ == nullptr) return NotOpen();
    const std::unique_ptr<rocksdb::Iterator> it(
        db_->NewIterator(rocksdb::ReadOptions()));
    for (it->Seek(kJobPrefix); it->Valid() && it->key().starts_with(kJobPrefix);
         it->Next()) {
      const std::string key = it->key().ToString();
      absl::StatusOr<StoredJob> job = Read(key, it->value());
      if (job.ok()) {
        loaded.jobs.push_back(*std::move(job));
      } else if (absl::IsDataLoss(job.status())) {
        loaded.unreadable.push_back(
            {std::string(absl::StripPrefix(key, kJobPrefix)), job.status()});
      } else {
        return job.status();
      }
    }
    SYNCLINE_RETURN_IF_ERROR(FromRocksDb(it->status(), directory_));
    return loaded;
  }

  absl::Status PutNew(const StoredJob& job) override {
    JobAssignment parameters;
    for (const ParameterInfo& parameter : job.parameters) {
      *parameters.add_parameters() = parameter;
    }
    for (const TableInfo& table : job.tables) *parameters.add_tables() = table;
    const std::string& id = job.status.job_id();
    rocksdb::WriteBatch batch;
    batch.Put(kJobPrefix + id, job.status.SerializeAsString());
    batch.Put(kParametersPrefix + id, parameters.SerializeAsString());
    if (!job.client_key.empty()) {
      batch.Put(kClientKeyPrefix + id, job.client_key);
    }
    return Write(&batch, /*durable=*/true);
  }

  absl::Status Put(const JobStatus& status, bool durable) override {
    rocksdb::WriteBatch batch;
    batch.Put(kJobPrefix + status.job_id(), status.SerializeAsString());
    return Write(&batch, durable);
  }

  absl::Status Delete(const std::string& job_id) override {
    rocksdb::WriteBatch batch;
    batch.Delete(kJobPrefix + job_id);
    batch.Delete(kParametersPrefix + job_id);
    batch.Delete(kClientKeyPrefix + job_id);
    return Write(&batch, /*durable=*/true);
  }

 private:
  absl::Status NotOpen() const {
    return absl::UnavailableError(absl::StrCat("state directory ", directory_,
                                               ": the database is not open"));
  }

  absl::Status OpenLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    rocksdb::DB* db = nullptr;
    SYNCLINE_RETURN_IF_ERROR(FromRocksDb(
        rocksdb::DB::Open(SmallDatabase(), directory_, &db), directory_));
    db_.reset(db);
    return absl::OkStatus();
  }

  absl::Status TryWrite(rocksdb::WriteBatch* batch, bool durable)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (db_ == nullptr) return NotOpen();
    rocksdb::WriteOptions options;
    options.sync = durable;
    return FromRocksDb(db_->Write(options, batch), directory_);
  }

  absl::Status Write(rocksdb::WriteBatch* batch, bool durable)
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    const absl::Status written = TryWrite(batch, durable);
    if (written.ok()) return written;
    const absl::Status reopened = Reopen();
    return reopened.ok() ? TryWrite(batch, durable) : written;
  }

  // RocksDB refuses every write after one to its log has failed, also when the
  // disk has room again. Opened again, it knows what was acknowledged: the torn
  // end of the log is cut off.
  absl::Status Reopen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::error_code error;
    const auto space = std::filesystem::space(directory_, error);
    if (error || space.available < kReopenBytesMin) {
      return absl::ResourceExhaustedError("the disk has no room yet");
    }
    db_.reset();
    const absl::Status opened = OpenLocked();
    LogWarning("state database opened again after a failed write")
        .Field("directory", directory_)
        .Status(opened);
    return opened;
  }

  absl::Status Corrupt(const std::string& key) const {
    return absl::DataLossError(absl::StrCat("state directory ", directory_,
                                            ": record \"", key,
                                            "\" cannot be read"));
  }

  absl::StatusOr<StoredJob> Read(const std::string& key,
                                 const rocksdb::Slice& value) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    StoredJob job;
    absl::string_view id = key;
    if (!job.status.ParseFromArray(value.data(),
                                   static_cast<int>(value.size())) ||
        !absl::ConsumePrefix(&id, kJobPrefix) || job.status.job_id() != id) {
      return Corrupt(key);
    }
    const std::string parameters_key = absl::StrCat(kParametersPrefix, id);
    std::string bytes;
    const rocksdb::Status status =
        db_->Get(rocksdb::ReadOptions(), parameters_key, &bytes);
    JobAssignment parameters;
    if (status.IsNotFound() || !parameters.ParseFromString(bytes)) {
      return Corrupt(parameters_key);
    }
    SYNCLINE_RETURN_IF_ERROR(FromRocksDb(status, directory_));
    job.parameters.assign(parameters.parameters().begin(),
                          parameters.parameters().end());
    job.tables.assign(parameters.tables().begin(), parameters.tables().end());
    const rocksdb::Status key_status =
        db_->Get(rocksdb::ReadOptions(), absl::StrCat(kClientKeyPrefix, id),
                 &job.client_key);
    if (!key_status.IsNotFound()) {
      SYNCLINE_RETURN_IF_ERROR(FromRocksDb(key_status, directory_));
    }
    return job;
  }

  const std::string directory_;
  mutable Mutex mu_;
  // Null: it could not be opened again; the next write tries.
  std::unique_ptr<rocksdb::DB> db_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<StateStore>> StateStore::Open(
    const std::string& directory) {
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(directory));
  auto store = std::make_unique<RocksDbStateStore>(directory);
  SYNCLINE_RETURN_IF_ERROR(store->Open());
  SYNCLINE_RETURN_IF_ERROR(store->CheckFormat());
  return store;
}

}  // namespace syncline::scheduler

#include "scheduler/state_store.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/file.h"
#include "common/base/status_macros.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "rocksdb/write_batch.h"

namespace syncline {
namespace {

constexpr char kFormatKey[] = "meta/format";
constexpr char kFormat[] = "1";
constexpr char kJobPrefix[] = "job/";
constexpr char kParametersPrefix[] = "parameters/";

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

// A scheduler's state is small: a few kilobytes per job.
rocksdb::Options SmallDatabase() {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.write_buffer_size = 4 << 20;
  options.max_total_wal_size = 16 << 20;
  options.max_open_files = 64;
  options.max_background_jobs = 2;
  options.keep_log_file_num = 2;
  options.info_log_level = rocksdb::WARN_LEVEL;
  // Every acknowledged write counts: a torn tail is all that may be dropped.
  options.wal_recovery_mode =
      rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  return options;
}

class RocksDbStateStore final : public StateStore {
 public:
  RocksDbStateStore(std::string directory, std::unique_ptr<rocksdb::DB> db)
      : directory_(std::move(directory)), db_(std::move(db)) {}

  absl::Status CheckFormat() {
    std::string format;
    const rocksdb::Status status =
        db_->Get(rocksdb::ReadOptions(), kFormatKey, &format);
    if (status.IsNotFound()) {
      return FromRocksDb(db_->Put(Durable(true), kFormatKey, kFormat),
                         directory_);
    }
    SYNCLINE_RETURN_IF_ERROR(FromRocksDb(status, directory_));
    if (format == kFormat) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("state directory ", directory_, " has format \"", format,
                     "\"; this scheduler reads format ", kFormat));
  }

  absl::StatusOr<Loaded> Load() const override {
    Loaded loaded;
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
    return FromRocksDb(db_->Write(Durable(true), &batch), directory_);
  }

  absl::Status Put(const JobStatus& status, bool durable) override {
    return FromRocksDb(db_->Put(Durable(durable), kJobPrefix + status.job_id(),
                                status.SerializeAsString()),
                       directory_);
  }

  absl::Status Delete(const std::string& job_id) override {
    rocksdb::WriteBatch batch;
    batch.Delete(kJobPrefix + job_id);
    batch.Delete(kParametersPrefix + job_id);
    return FromRocksDb(db_->Write(Durable(true), &batch), directory_);
  }

 private:
  static rocksdb::WriteOptions Durable(bool durable) {
    rocksdb::WriteOptions options;
    options.sync = durable;
    return options;
  }

  absl::Status Corrupt(const std::string& key) const {
    return absl::DataLossError(absl::StrCat("state directory ", directory_,
                                            ": record \"", key,
                                            "\" cannot be read"));
  }

  absl::StatusOr<StoredJob> Read(const std::string& key,
                                 const rocksdb::Slice& value) const {
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
    return job;
  }

  const std::string directory_;
  const std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StateStore>> StateStore::Open(
    const std::string& directory) {
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(directory));
  rocksdb::DB* db = nullptr;
  SYNCLINE_RETURN_IF_ERROR(FromRocksDb(
      rocksdb::DB::Open(SmallDatabase(), directory, &db), directory));
  auto store = std::make_unique<RocksDbStateStore>(
      directory, std::unique_ptr<rocksdb::DB>(db));
  SYNCLINE_RETURN_IF_ERROR(store->CheckFormat());
  return store;
}

}  // namespace syncline

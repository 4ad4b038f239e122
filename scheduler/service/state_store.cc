#include "scheduler/service/state_store.h"

#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/fault_points.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"
#include "common/system/log.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/listener.h"
#include "rocksdb/options.h"
#include "rocksdb/utilities/checkpoint.h"
#include "rocksdb/write_batch.h"

namespace syncline::scheduler {
namespace {

constexpr char kFormatKey[] = "meta/format";
constexpr char kFormat[] = "1";
constexpr char kEpochKey[] = "meta/epoch";
constexpr char kSkippedJobKey[] = "meta/skipped_job";
constexpr char kJobPrefix[] = "job/";
constexpr char kParametersPrefix[] = "parameters/";
constexpr char kClientKeyPrefix[] = "client_key/";
constexpr char kEventPrefix[] = "event/";
constexpr char kUsePrefix[] = "use/";
constexpr char kAttemptPrefix[] = "attempt/";
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
// RocksDB would go on by itself when the disk has room again, with a log whose
// writer has failed: an assertion of the packaged library (7.8) then ends the
// process. The database is opened again instead (Reopen).
class NoRecovery final : public rocksdb::EventListener {
 public:
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }
};

rocksdb::Options SmallDatabase() {
  rocksdb::Options options;
  options.listeners.push_back(std::make_shared<NoRecovery>());
  options.max_bgerror_resume_count = 0;
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

std::string EventsOf(absl::string_view job_id) {
  return absl::StrCat(kEventPrefix, job_id, "/");
}

// By number, where they are compared as text.
std::string EventKey(absl::string_view job_id, uint64_t number) {
  return absl::StrCat(EventsOf(job_id), absl::Dec(number, absl::kZeroPad12));
}

// Records have secrets of jobs that run.
void KeepPrivate(const std::string& directory) {
  std::error_code error;
  std::filesystem::permissions(directory, std::filesystem::perms::owner_all,
                               std::filesystem::perm_options::replace, error);
  if (!error) return;
  LogWarning(
      "others may be able to read the scheduler's state, which has the "
      "secrets of jobs")
      .Field("directory", directory)
      .Field("why", error.message());
}

class RocksDbStateStore final : public StateStore {
 public:
  RocksDbStateStore(std::string directory, bool read_only)
      : directory_(std::move(directory)), read_only_(read_only) {}

  absl::Status Open() {
    MutexLock lock(&mu_);
    return OpenLocked();
  }

  absl::Status CheckFormat() {
    MutexLock lock(&mu_);
    std::string format;
    const rocksdb::Status status =
        db_->Get(rocksdb::ReadOptions(), kFormatKey, &format);
    if (status.IsNotFound() && read_only_) return Corrupt(kFormatKey);
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

  absl::StatusOr<uint64_t> Epoch() const override {
    return ReadNumber(kEpochKey);
  }
  absl::Status PutEpoch(uint64_t epoch) override {
    return PutNumber(kEpochKey, epoch);
  }
  absl::StatusOr<uint64_t> SkippedJobNumber() const override {
    return ReadNumber(kSkippedJobKey);
  }
  absl::Status PutSkippedJobNumber(uint64_t number) override {
    return PutNumber(kSkippedJobKey, number);
  }

  absl::Status CopyTo(const std::string& folder) override {
    MutexLock lock(&mu_);
    if (db_ == nullptr) return NotOpen();
    rocksdb::Checkpoint* made = nullptr;
    SYNCLINE_RETURN_IF_ERROR(
        FromRocksDb(rocksdb::Checkpoint::Create(db_.get(), &made), directory_));
    const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
    return FromRocksDb(checkpoint->CreateCheckpoint(folder), directory_);
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
    SYNCLINE_RETURN_IF_ERROR(LoadUses(&loaded.uses));
    return loaded;
  }

  absl::Status PutUse(const SetMemberUseRequest& use) override {
    const std::string key =
        absl::StrCat(kUsePrefix, static_cast<int>(use.task().type()), "/",
                     use.task().index());
    rocksdb::WriteBatch batch;
    if (use.use() == SetMemberUseRequest::SCHEDULE) {
      batch.Delete(key);
    } else {
      batch.Put(key, use.SerializeAsString());
    }
    return Write(&batch, /*durable=*/true);
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

  absl::Status Put(const JobRecord& job, bool durable) override {
    const std::string& id = job.status.job_id();
    rocksdb::WriteBatch batch;
    batch.Put(kJobPrefix + id, job.status.SerializeAsString());
    if (job.attempt.has_value()) {
      batch.Put(kAttemptPrefix + id, job.attempt->SerializeAsString());
    } else {
      batch.Delete(kAttemptPrefix + id);
    }
    return Write(&batch, durable);
  }

  absl::Status PutEvent(const std::string& job_id, const StoredEvent& event,
                        uint64_t left_out) override {
    rocksdb::WriteBatch batch;
    if (left_out > 0) batch.Delete(EventKey(job_id, left_out));
    batch.Put(EventKey(job_id, event.number), event.event.SerializeAsString());
    return Write(&batch, /*durable=*/false);
  }

  absl::Status Delete(const std::string& job_id) override {
    rocksdb::WriteBatch batch;
    batch.Delete(kJobPrefix + job_id);
    batch.Delete(kParametersPrefix + job_id);
    batch.Delete(kClientKeyPrefix + job_id);
    // Up to the key behind all that begin so: '0' follows '/'.
    batch.DeleteRange(EventsOf(job_id),
                      absl::StrCat(kEventPrefix, job_id, "0"));
    batch.Delete(kAttemptPrefix + job_id);
    return Write(&batch, /*durable=*/true);
  }

 private:
  // 0: it is not there.
  absl::StatusOr<uint64_t> ReadNumber(const char* key) const {
    MutexLock lock(&mu_);
    if (db_ == nullptr) return NotOpen();
    std::string text;
    const rocksdb::Status status = db_->Get(rocksdb::ReadOptions(), key, &text);
    if (status.IsNotFound()) return 0;
    SYNCLINE_RETURN_IF_ERROR(FromRocksDb(status, directory_));
    uint64_t number = 0;
    if (!absl::SimpleAtoi(text, &number)) return Corrupt(key);
    return number;
  }
  absl::Status PutNumber(const char* key, uint64_t number) {
    rocksdb::WriteBatch batch;
    batch.Put(key, absl::StrCat(number));
    return Write(&batch, /*durable=*/true);
  }
  absl::Status NotOpen() const {
    return absl::UnavailableError(absl::StrCat("state directory ", directory_,
                                               ": the database is not open"));
  }

  // One that cannot be read is logged and left out.
  absl::Status LoadEvents(const std::string& job_id,
                          std::vector<StoredEvent>* events) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const std::unique_ptr<rocksdb::Iterator> it(
        db_->NewIterator(rocksdb::ReadOptions()));
    const std::string prefix = EventsOf(job_id);
    for (it->Seek(prefix); it->Valid() && it->key().starts_with(prefix);
         it->Next()) {
      const std::string key = it->key().ToString();
      StoredEvent event;
      if (absl::SimpleAtoi(absl::string_view(key).substr(prefix.size()),
                           &event.number) &&
          event.event.ParseFromArray(it->value().data(),
                                     static_cast<int>(it->value().size()))) {
        events->push_back(std::move(event));
      } else {
        LogError("event left out").Job(job_id).Status(Corrupt(key));
      }
    }
    return FromRocksDb(it->status(), directory_);
  }

  // One that cannot be read is logged and left out: its member gets jobs.
  absl::Status LoadUses(std::vector<SetMemberUseRequest>* uses) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const std::unique_ptr<rocksdb::Iterator> it(
        db_->NewIterator(rocksdb::ReadOptions()));
    for (it->Seek(kUsePrefix); it->Valid() && it->key().starts_with(kUsePrefix);
         it->Next()) {
      SetMemberUseRequest use;
      if (use.ParseFromArray(it->value().data(),
                             static_cast<int>(it->value().size()))) {
        uses->push_back(std::move(use));
      } else {
        LogError("use of a member left out")
            .Status(Corrupt(it->key().ToString()));
      }
    }
    return FromRocksDb(it->status(), directory_);
  }

  absl::Status OpenLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    rocksdb::DB* db = nullptr;
    rocksdb::Options options = SmallDatabase();
    options.create_if_missing = !read_only_;
    SYNCLINE_RETURN_IF_ERROR(FromRocksDb(
        read_only_ ? rocksdb::DB::OpenForReadOnly(options, directory_, &db)
                   : rocksdb::DB::Open(options, directory_, &db),
        directory_));
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
    SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kRecordWrite));
    const absl::Status written = TryWrite(batch, durable);
    if (written.ok()) return AtFaultPoint(FaultPoint::kRecordWritten);
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
    SYNCLINE_RETURN_IF_ERROR(LoadEvents(std::string(id), &job.events));
    SYNCLINE_RETURN_IF_ERROR(ReadAttempt(std::string(id), &job));
    return job;
  }

  absl::Status ReadAttempt(const std::string& id, StoredJob* job) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const std::string key = kAttemptPrefix + id;
    std::string bytes;
    const rocksdb::Status status =
        db_->Get(rocksdb::ReadOptions(), key, &bytes);
    if (status.IsNotFound()) return absl::OkStatus();
    SYNCLINE_RETURN_IF_ERROR(FromRocksDb(status, directory_));
    AttemptRecord attempt;
    if (!attempt.ParseFromString(bytes)) return Corrupt(key);
    job->attempt = std::move(attempt);
    return absl::OkStatus();
  }

  const std::string directory_;
  const bool read_only_;
  mutable Mutex mu_;
  // Null: it could not be opened again; the next write tries.
  std::unique_ptr<rocksdb::DB> db_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<StateStore>> StateStore::Open(
    const std::string& directory) {
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(directory));
  KeepPrivate(directory);
  auto store =
      std::make_unique<RocksDbStateStore>(directory, /*read_only=*/false);
  SYNCLINE_RETURN_IF_ERROR(store->Open());
  SYNCLINE_RETURN_IF_ERROR(store->CheckFormat());
  return store;
}

absl::StatusOr<std::unique_ptr<StateStore>> StateStore::OpenToRead(
    const std::string& directory) {
  std::error_code error;
  if (!std::filesystem::exists(directory + "/CURRENT", error)) {
    return absl::NotFoundError(
        absl::StrCat("no database of a scheduler in ", directory));
  }
  auto store =
      std::make_unique<RocksDbStateStore>(directory, /*read_only=*/true);
  SYNCLINE_RETURN_IF_ERROR(store->Open());
  SYNCLINE_RETURN_IF_ERROR(store->CheckFormat());
  return store;
}

}  // namespace syncline::scheduler

#include "server/row_spill.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status_macros.h"
#include "rocksdb/cache.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/filter_policy.h"
#include "rocksdb/options.h"
#include "rocksdb/sst_file_manager.h"
#include "rocksdb/table.h"
#include "rocksdb/write_batch.h"
#include "rocksdb/write_buffer_manager.h"

namespace syncline {
namespace {

// --- Keys: ascending bytes are ascending (partition, key) ---

constexpr size_t kKeyBytes = sizeof(uint32_t) + sizeof(uint64_t);

template <typename T>
void StoreBigEndian(T value, char* out) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out[i] = static_cast<char>(value >> (8 * (sizeof(T) - 1 - i)));
  }
}

struct KeyText {
  explicit KeyText(ColdKey key) {
    StoreBigEndian(key.partition, text);
    // Flipping the sign puts negative keys first.
    StoreBigEndian(static_cast<uint64_t>(key.key) ^ (uint64_t{1} << 63),
                   text + sizeof(uint32_t));
  }
  rocksdb::Slice slice() const { return {text, kKeyBytes}; }

  char text[kKeyBytes];
};

ColdKey ParseKey(rocksdb::Slice text) {
  uint32_t partition = 0;
  uint64_t key = 0;
  for (size_t i = 0; i < kKeyBytes; ++i) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    if (i < sizeof(uint32_t)) {
      partition = partition << 8 | byte;
    } else {
      key = key << 8 | byte;
    }
  }
  return {partition, static_cast<int64_t>(key ^ (uint64_t{1} << 63))};
}

// --- RocksDB ---

absl::Status FromRocksDb(const rocksdb::Status& status,
                         const std::string& folder) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = status.ToString();
  const std::string message =
      absl::StrCat("spilled rows in ", folder, ": ", text);
  if (status.IsCorruption()) return absl::DataLossError(message);
  if (status.IsNoSpace() || status.subcode() == rocksdb::Status::kSpaceLimit) {
    return absl::ResourceExhaustedError(message);
  }
  if (absl::StrContains(text, "ermission denied")) {
    return absl::PermissionDeniedError(message);
  }
  return absl::UnavailableError(message);
}

// A part of the disk's bytes is for rewriting: compaction writes a file before
// it removes what it replaces.
uint64_t RowsOnDiskMost(uint64_t disk_bytes) {
  return disk_bytes - disk_bytes / 8;
}

class RocksDbColdStore final : public ColdStore {
 public:
  explicit RocksDbColdStore(const RowSpill::Options& options)
      : options_(options),
        files_(rocksdb::NewSstFileManager(rocksdb::Env::Default())),
        cache_(rocksdb::NewLRUCache(options.memory_bytes)) {
    files_->SetMaxAllowedSpaceUsage(options.disk_bytes);
    writes_.disableWAL = true;
    reads_.verify_checksums = true;
  }

  ~RocksDbColdStore() override {
    // What is in the buffers need not reach the disk any more.
    if (db_ != nullptr) rocksdb::CancelAllBackgroundWork(db_.get(), true);
    db_.reset();
    RemoveTree(options_.folder).IgnoreError();
  }

  absl::Status Open() {
    SYNCLINE_RETURN_IF_ERROR(RemoveTree(options_.folder));
    SYNCLINE_RETURN_IF_ERROR(MakeDirs(options_.folder));
    rocksdb::DB* db = nullptr;
    SYNCLINE_RETURN_IF_ERROR(FromRocksDb(
        rocksdb::DB::Open(DbOptions(), options_.folder, &db), options_.folder));
    db_.reset(db);
    return absl::OkStatus();
  }

  absl::Status Put(absl::Span<const ColdKey> keys, const char* rows) override {
    const uint64_t bytes = keys.size() * (kKeyBytes + options_.row_bytes);
    if (disk_bytes() + bytes > RowsOnDiskMost(options_.disk_bytes)) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "spilled rows in ", options_.folder, " take ", disk_bytes(), " of ",
          options_.disk_bytes, " bytes; the rest is needed to rewrite them"));
    }
    rocksdb::WriteBatch batch(bytes + 64);
    for (size_t i = 0; i < keys.size(); ++i) {
      batch.Put(KeyText(keys[i]).slice(),
                {rows + i * options_.row_bytes, options_.row_bytes});
    }
    return Write(&batch);
  }

  absl::Status Delete(absl::Span<const ColdKey> keys) override {
    if (keys.empty()) return absl::OkStatus();
    rocksdb::WriteBatch batch;
    for (const ColdKey& key : keys) batch.Delete(KeyText(key).slice());
    return Write(&batch);
  }

  absl::Status Get(absl::Span<const ColdKey> keys, char* rows,
                   bool* found) override {
    const size_t count = keys.size();
    std::vector<KeyText> texts;
    std::vector<rocksdb::Slice> slices;
    texts.reserve(count);
    slices.reserve(count);
    for (const ColdKey& key : keys) {
      texts.emplace_back(key);
      slices.push_back(texts.back().slice());
    }
    std::vector<rocksdb::PinnableSlice> values(count);
    std::vector<rocksdb::Status> statuses(count);
    db_->MultiGet(reads_, db_->DefaultColumnFamily(), count, slices.data(),
                  values.data(), statuses.data());
    for (size_t i = 0; i < count; ++i) {
      found[i] = statuses[i].ok();
      if (statuses[i].IsNotFound()) continue;
      SYNCLINE_RETURN_IF_ERROR(FromRocksDb(statuses[i], options_.folder));
      SYNCLINE_RETURN_IF_ERROR(CheckSize(values[i]));
      std::copy_n(values[i].data(), options_.row_bytes,
                  rows + i * options_.row_bytes);
    }
    return absl::OkStatus();
  }

  absl::Status Scan(ColdKey from, size_t limit, std::vector<int64_t>* keys,
                    std::vector<char>* rows) override {
    rocksdb::ReadOptions options = reads_;
    options.fill_cache = false;
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(options));
    for (it->Seek(KeyText(from).slice()); it->Valid() && limit > 0;
         it->Next(), --limit) {
      const ColdKey key = ParseKey(it->key());
      if (key.partition != from.partition) break;
      SYNCLINE_RETURN_IF_ERROR(CheckSize(it->value()));
      keys->push_back(key.key);
      rows->insert(rows->end(), it->value().data(),
                   it->value().data() + options_.row_bytes);
    }
    return FromRocksDb(it->status(), options_.folder);
  }

  uint64_t disk_bytes() const override { return files_->GetTotalSize(); }
  uint64_t disk_limit_bytes() const override {
    return RowsOnDiskMost(options_.disk_bytes);
  }

 private:
  // Everything that it keeps in memory is charged to the cache: write buffers
  // by their manager, index and filter blocks because they are cached too.
  rocksdb::Options DbOptions() const {
    // Small beside the disk's bytes too: compaction takes several files at
    // once.
    const uint64_t buffer = std::clamp<uint64_t>(
        std::min(options_.memory_bytes / 8, options_.disk_bytes / 128),
        64 << 10, 64 << 20);
    rocksdb::Options db;
    db.create_if_missing = true;
    db.error_if_exists = true;
    db.write_buffer_size = buffer;
    db.arena_block_size = std::max<uint64_t>(buffer / 16, 4096);
    db.max_write_buffer_number = 3;
    db.write_buffer_manager = std::make_shared<rocksdb::WriteBufferManager>(
        3 * buffer, cache_, /*allow_stall=*/false);
    db.max_background_jobs = 2;
    db.max_open_files = 512;
    db.target_file_size_base =
        std::clamp<uint64_t>(options_.disk_bytes / 64, 1 << 20, 32 << 20);
    // Rows are rewritten less often the more files wait to be merged; twice the
    // usual number took a fifth off what spilling costs in all.
    db.level0_file_num_compaction_trigger = 8;
    db.max_bytes_for_level_base = 8 * buffer;
    db.level_compaction_dynamic_level_bytes = true;
    db.compression = rocksdb::kNoCompression;  // floats do not shrink
    db.memtable_whole_key_filtering = true;
    db.memtable_prefix_bloom_size_ratio = 0.05;
    db.sst_file_manager = files_;
    db.keep_log_file_num = 1;
    db.info_log_level = rocksdb::ERROR_LEVEL;
    db.stats_dump_period_sec = 0;
    db.stats_persist_period_sec = 0;

    rocksdb::BlockBasedTableOptions table;
    table.block_cache = cache_;
    table.cache_index_and_filter_blocks = true;
    table.pin_l0_filter_and_index_blocks_in_cache = false;
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    table.data_block_index_type =
        rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
    table.format_version = 5;
    db.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    return db;
  }

  // A full disk stops RocksDB for good, until it is told that there is room.
  absl::Status Write(rocksdb::WriteBatch* batch) {
    if (failed_.load(std::memory_order_relaxed)) {
      SYNCLINE_RETURN_IF_ERROR(FromRocksDb(db_->Resume(), options_.folder));
      failed_.store(false, std::memory_order_relaxed);
    }
    const rocksdb::Status status = db_->Write(writes_, batch);
    if (!status.ok()) failed_.store(true, std::memory_order_relaxed);
    return FromRocksDb(status, options_.folder);
  }

  absl::Status CheckSize(rocksdb::Slice value) const {
    if (value.size() == options_.row_bytes) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("spilled rows in ", options_.folder, ": a row of ",
                     value.size(), " bytes, expected ", options_.row_bytes));
  }

  const RowSpill::Options options_;
  const std::shared_ptr<rocksdb::SstFileManager> files_;
  const std::shared_ptr<rocksdb::Cache> cache_;
  rocksdb::WriteOptions writes_;
  rocksdb::ReadOptions reads_;
  std::unique_ptr<rocksdb::DB> db_;
  std::atomic<bool> failed_{false};
};

}  // namespace

absl::StatusOr<std::unique_ptr<ColdStore>> RowSpill::Open(
    const Options& options) {
  if (options.memory_bytes < kMemoryMin || options.disk_bytes < kDiskMin) {
    return absl::InvalidArgumentError(absl::StrCat(
        "spilled rows in ", options.folder, ": ", options.memory_bytes,
        " bytes of memory and ", options.disk_bytes,
        " on disk, expected at least ", kMemoryMin, " and ", kDiskMin));
  }
  auto store = std::make_unique<RocksDbColdStore>(options);
  SYNCLINE_RETURN_IF_ERROR(store->Open());
  return store;
}

// --- The folder ---

absl::StatusOr<std::unique_ptr<SpillFolder>> SpillFolder::Open(
    const std::string& root, absl::string_view name) {
  const std::string path = absl::StrCat(root, "/syncline-spill-", name);
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(path));
  const std::string lock_path = absl::StrCat(path, ".lock");
  const int lock = open(lock_path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (lock < 0) return FileError(errno, "open", lock_path);
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    close(lock);
    if (error != EWOULDBLOCK) return FileError(error, "lock", lock_path);
    return absl::UnavailableError(
        absl::StrCat("spill folder ", path, " is in use by another process"));
  }
  std::unique_ptr<SpillFolder> folder(new SpillFolder(path, lock));
  SYNCLINE_RETURN_IF_ERROR(RemoveTree(path));
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(path));
  // That a folder is there does not mean that it can be written.
  SYNCLINE_RETURN_IF_ERROR(
      WriteFileAtomically(absl::StrCat(path, "/probe"), "rows"));
  return folder;
}

// The lock's file stays: removing it would let two processes hold two of them.
SpillFolder::~SpillFolder() {
  RemoveTree(path_).IgnoreError();
  close(lock_);
}

std::string SpillFolder::PathFor(absl::string_view job, uint32_t table) const {
  return absl::StrCat(path_, "/", job, "/table-", table);
}

}  // namespace syncline

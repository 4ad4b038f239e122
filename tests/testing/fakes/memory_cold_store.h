#ifndef SYNCLINE_TESTS_TESTING_FAKES_MEMORY_COLD_STORE_H_
#define SYNCLINE_TESTS_TESTING_FAKES_MEMORY_COLD_STORE_H_

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "server/tables/cold_store.h"

namespace syncline {

// A cold store in a map, which fails when told to. Thread-safe; what it is told
// and what it has counted is looked at between calls.
class MemoryColdStore : public ps::ColdStore {
 public:
  explicit MemoryColdStore(
      size_t row_bytes,
      uint64_t limit = std::numeric_limits<uint64_t>::max() / 2)
      : row_bytes_(row_bytes), limit_(limit) {}

  absl::Status Put(absl::Span<const ps::ColdKey> keys,
                   const char* rows) override {
    MutexLock lock(&mu_);
    if (!put_error.ok()) return put_error;
    if ((rows_.size() + keys.size()) * row_bytes_ > limit_) {
      return absl::ResourceExhaustedError("the store is full");
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      rows_[Name(keys[i])] = {keys[i].key,
                              std::string(rows + i * row_bytes_, row_bytes_)};
    }
    ++puts;
    return absl::OkStatus();
  }

  absl::Status Get(absl::Span<const ps::ColdKey> keys, char* rows,
                   ps::ColdFound* found) override {
    MutexLock lock(&mu_);
    std::fill_n(found, keys.size(), ps::ColdFound::kUnreadable);
    if (!get_error.ok()) return get_error;
    absl::Status status;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (unreadable_keys.count(keys[i].key) > 0) {
        status = absl::DataLossError("a row was damaged");
        continue;
      }
      const auto row = rows_.find(Name(keys[i]));
      found[i] = row != rows_.end() ? ps::ColdFound::kYes : ps::ColdFound::kNo;
      if (found[i] == ps::ColdFound::kNo) continue;
      std::memcpy(rows + i * row_bytes_, row->second.bytes.data(), row_bytes_);
    }
    return status;
  }

  absl::Status Delete(absl::Span<const ps::ColdKey> keys,
                      size_t* gone) override {
    MutexLock lock(&mu_);
    *gone = put_error.ok() ? keys.size() : std::min(deletes_most, keys.size());
    for (const ps::ColdKey& key : keys.first(*gone)) rows_.erase(Name(key));
    return put_error;
  }

  absl::Status Scan(uint32_t partition, uint64_t from, size_t limit,
                    Damaged damaged, std::vector<int64_t>* keys,
                    std::vector<char>* rows) override {
    MutexLock lock(&mu_);
    const bool left_out =
        damaged == Damaged::kLeftOut && absl::IsDataLoss(get_error);
    if (!get_error.ok() && !left_out) return get_error;
    for (auto row = rows_.lower_bound({partition, from});
         row != rows_.end() && row->first.first == partition && limit > 0;
         ++row, --limit) {
      keys->push_back(row->second.key);
      rows->insert(rows->end(), row->second.bytes.begin(),
                   row->second.bytes.end());
      scanned_bytes += row_bytes_;
    }
    return absl::OkStatus();
  }

  absl::Status CheckRoom() override { return absl::OkStatus(); }

  uint64_t disk_bytes() const override {
    MutexLock lock(&mu_);
    return rows_.size() * row_bytes_;
  }
  uint64_t disk_limit_bytes() const override { return limit_; }

  absl::Status put_error;
  size_t deletes_most = 0;  // of a call that fails by it
  absl::Status get_error;
  std::set<int64_t> unreadable_keys;
  int puts = 0;
  uint64_t scanned_bytes = 0;

 private:
  struct Row {
    int64_t key;
    std::string bytes;
  };
  using RowName = std::pair<uint32_t, uint64_t>;
  static RowName Name(const ps::ColdKey& key) {
    return {key.partition, ps::ColdPosition(key.key)};
  }

  const size_t row_bytes_;
  const uint64_t limit_;
  mutable Mutex mu_;
  std::map<RowName, Row> rows_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_FAKES_MEMORY_COLD_STORE_H_

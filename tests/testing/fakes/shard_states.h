#ifndef SYNCLINE_TESTS_TESTING_FAKES_SHARD_STATES_H_
#define SYNCLINE_TESTS_TESTING_FAKES_SHARD_STATES_H_

// States of shards in memory: what a disk or a peer would have of them, and
// their records one by one.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/state/shard_state_reader.h"
#include "common/state/shard_state_stream.h"
#include "common/state/shard_state_writer.h"
#include "google/protobuf/empty.pb.h"
#include "gtest/gtest.h"
#include "server/shard/shard_start.h"

namespace syncline {

// Keeps what it is given, up to `limit` bytes.
class MemoryStateSink : public ShardStateSink {
 public:
  explicit MemoryStateSink(size_t limit = ~size_t{0}) : limit_(limit) {}

  absl::Status Append(absl::string_view head, absl::string_view bulk) override {
    EXPECT_LE(head.size() + bulk.size(), kShardStateRecordMax);
    if (bytes.size() + head.size() + bulk.size() > limit_) {
      return absl::ResourceExhaustedError("the sink is full");
    }
    bytes.append(head.data(), head.size());
    bytes.append(bulk.data(), bulk.size());
    return absl::OkStatus();
  }

  std::string bytes;

 private:
  const size_t limit_;
};

class MemoryStateSource : public ShardStateSource {
 public:
  explicit MemoryStateSource(std::string bytes) : bytes_(std::move(bytes)) {}

  absl::StatusOr<size_t> Read(size_t bytes, char* out) override {
    const size_t count = std::min(bytes, bytes_.size() - at_);
    std::memcpy(out, bytes_.data() + at_, count);
    at_ += count;
    return count;
  }
  std::string name() const override { return "memory"; }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

// Each shard takes what is its own of all states; the first takes the counts.
inline ps::ShardStarts StartsOf(std::vector<std::string> states) {
  return [states = std::move(states)](
             uint32_t shard) -> absl::StatusOr<ps::ShardStart> {
    ps::ShardStart start{
        .states = {},
        .options = {.passes_over_others = true, .with_counts = shard == 0}};
    for (const std::string& state : states) {
      start.states.push_back(std::make_unique<MemoryStateSource>(state));
    }
    return start;
  };
}

// A record that does not depend on the records before it.
struct StateRecord {
  ShardStateKind kind;
  std::string meta;
  std::string bulk;
};

inline std::vector<StateRecord> RecordsOf(const std::string& state) {
  std::vector<StateRecord> records;
  MemoryStateSource source(state);
  ShardStateReader reader(&source);
  do {
    const auto record = reader.Next();
    EXPECT_TRUE(record.ok()) << record.status();
    if (!record.ok()) return records;
    records.push_back(
        {record->kind, std::string(record->meta), std::string(record->bulk)});
  } while (records.back().kind != ShardStateKind::kTrailer);
  return records;
}

// The state that a writer would have made of these records.
inline std::string StateOf(const std::vector<StateRecord>& records) {
  MemoryStateSink sink;
  ShardStateWriter writer(&sink);
  for (const StateRecord& record : records) {
    google::protobuf::Empty meta;  // keeps fields that it does not know
    EXPECT_TRUE(meta.ParseFromString(record.meta));
    EXPECT_TRUE(writer.Write(record.kind, meta, record.bulk).ok());
  }
  return sink.bytes;
}

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_FAKES_SHARD_STATES_H_

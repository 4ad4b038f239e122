#ifndef SYNCLINE_TESTS_COMPONENT_PS_TABLES_FIXTURE_H_
#define SYNCLINE_TESTS_COMPONENT_PS_TABLES_FIXTURE_H_

// A worker of one embedding table that is made of generated code and TableMap,
// and the rows that it should read.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/element_type.h"
#include "common/base/random.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/wire/table_map.h"
#include "gtest/gtest.h"
#include "kernels/optimizer/row_initializer.h"
#include "kernels/optimizer/row_optimizer.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"

namespace syncline {

inline constexpr uint32_t kDim = 3;
inline constexpr uint64_t kSeed = 7;

using Row = std::vector<float>;
using Rows = std::map<int64_t, Row>;  // by key

inline ElementType TypeOf(WireType type) {
  return type == WIRE_BFLOAT16 ? ElementType::kBfloat16 : ElementType::kFloat32;
}

// The row as it arrives after travelling in `type`.
inline Row Rounded(Row row, ElementType type) {
  std::string bytes(row.size() * ElementBytes(type), '\0');
  Narrow(type, row.data(), bytes.data(), row.size());
  Widen(type, bytes.data(), row.data(), row.size());
  return row;
}

inline PsFixture::Options WithTable(ConsistencySpec::Mode mode,
                                    uint32_t ps_count = 1,
                                    uint32_t workers = 1) {
  PsFixture::Options options;
  options.ps_count = ps_count;
  options.workers = workers;
  options.tensor_sizes = {1000, 3000};
  options.table_dims = {kDim};
  options.spec = [mode](JobSpec* spec) {
    spec->mutable_consistency()->set_mode(mode);
    spec->mutable_training()->set_seed(kSeed);
    TableSpec* table = spec->add_tables();
    table->set_name("emb");
    table->mutable_optimizer()->set_kind(OptimizerSpec::ADAGRAD);
  };
  return options;
}

inline Row InitialRow(int64_t key) {
  Row row(kDim);
  RowInitializer(RowInitializer::Scheme::kUniform, 0.05f, kSeed, "emb")
      .Fill(key, row.data(), kDim);
  return row;
}

// The row after these summed gradients, one update each.
inline Row Updated(int64_t key,
                   const std::vector<std::pair<Row, float>>& sums) {
  const RowOptimizer optimizer(
      {.kind = OptimizerKind::kAdagrad, .epsilon = 1e-10f}, kDim);
  Row row = InitialRow(key);
  row.resize(kDim + optimizer.state_floats());
  optimizer.InitState(row.data() + kDim);
  for (const auto& [gradient, scale] : sums) {
    const float* const summed = gradient.data();
    float* const values = row.data();
    optimizer.Apply({.learning_rate = 1, .gradient_scale = scale}, 1, &summed,
                    &values);
  }
  row.resize(kDim);
  return row;
}

inline Rows RandomRows(uint64_t seed, size_t count) {
  Random random(seed);
  Rows rows;
  while (rows.size() < count) {
    Row row(kDim);
    for (float& value : row) value = static_cast<float>(random.Normal());
    rows[static_cast<int64_t>(random.Next() % 500) - 250] = row;
  }
  return rows;
}

// One worker's rows; dense blocks are left alone once they are initialised.
class RowWorker {
 public:
  RowWorker(PsFixture* fixture, uint32_t rank)
      : fixture_(fixture),
        plain_(fixture, rank),
        map_(*TableMap::Create(TableMap::DefaultSlots(fixture->ps_count()),
                               fixture->ps_count())),
        wire_type_(fixture->assignment().spec().wire_type()) {}

  absl::Status Init() {
    return plain_.Init(Flat(fixture_->map().element_count(), 1));
  }
  Caller caller(uint32_t shard) const { return plain_.caller(shard); }
  PlainWorker& plain() { return plain_; }

  // Keys of one shard in the order of messages.
  std::vector<int64_t> KeysOf(uint32_t ps, const Rows& rows) const {
    std::vector<int64_t> keys;
    for (const auto& [key, row] : rows) {
      if (map_.ShardOf(key) == ps) keys.push_back(key);
    }
    std::sort(keys.begin(), keys.end(),
              [&](int64_t a, int64_t b) { return map_.Before(a, b); });
    return keys;
  }

  PushRequest MakePush(uint32_t ps, int64_t clock, const Rows& gradients,
                       uint64_t samples) const {
    PushRequest request;
    PushHeader* header = request.mutable_header();
    *header->mutable_caller() = caller(ps);
    header->set_clock(clock);
    const std::vector<int64_t> keys = KeysOf(ps, gradients);
    if (keys.empty()) return request;
    header->set_sample_count(samples);
    std::vector<SlotRun> runs;
    EXPECT_OK(map_.CutBySlot(keys, ps, &runs));
    header->set_blocks_in_clock(static_cast<uint32_t>(runs.size()));
    header->add_tables()->set_rows(static_cast<uint32_t>(keys.size()));
    std::string* payload = request.mutable_payload();
    Append(keys, payload);
    header->set_wire_type(wire_type_);
    const ElementType type = TypeOf(wire_type_);
    for (const int64_t key : keys) {
      std::string narrow(kDim * ElementBytes(type), '\0');
      Narrow(type, gradients.at(key).data(), narrow.data(), kDim);
      *payload += narrow;
    }
    return request;
  }
  PullRequest MakePull(uint32_t ps, int64_t clock, const Rows& wanted) const {
    PullRequest request;
    *request.mutable_header()->mutable_caller() = caller(ps);
    request.mutable_header()->set_clock(clock);
    request.mutable_header()->set_wait_seconds(20);
    const std::vector<int64_t> keys = KeysOf(ps, wanted);
    if (keys.empty()) return request;
    request.mutable_header()->add_tables()->set_rows(
        static_cast<uint32_t>(keys.size()));
    Append(keys, request.mutable_payload());
    return request;
  }

  absl::Status Push(int64_t clock, const Rows& gradients, uint64_t samples) {
    for (uint32_t ps = 0; ps < fixture_->ps_count(); ++ps) {
      const absl::Status pushed =
          plain_.Send(ps, MakePush(ps, clock, gradients, samples));
      if (!pushed.ok()) return pushed;
    }
    return absl::OkStatus();
  }
  // The rows of the keys of `wanted`, at a cut whole.
  absl::StatusOr<Rows> Pull(int64_t clock, const Rows& wanted,
                            uint64_t cut_id = 0) {
    Rows rows;
    for (uint32_t ps = 0; ps < fixture_->ps_count(); ++ps) {
      PullRequest request = MakePull(ps, clock, wanted);
      request.mutable_header()->set_cut_id(cut_id);
      if (cut_id == 0) request.mutable_header()->set_wire_type(wire_type_);
      const ElementType type = TypeOf(request.header().wire_type());
      const size_t row_bytes = kDim * ElementBytes(type);
      PullResponse response;
      const absl::Status pulled = FromGrpcStatus(fixture_->stub(ps).Pull(
          MakeContext(absl::Now() + kPsTimeout).get(), request, &response));
      if (!pulled.ok()) return pulled;
      const std::vector<int64_t> keys = KeysOf(ps, wanted);
      EXPECT_EQ(response.payload().size(), keys.size() * row_bytes);
      EXPECT_EQ(response.header().tables_size(), keys.empty() ? 0 : 1);
      for (size_t i = 0; i < keys.size(); ++i) {
        rows[keys[i]] = RowAt(response.payload(), i * row_bytes, type);
      }
    }
    return rows;
  }
  absl::StatusOr<ScanTableResponse> Scan(uint32_t ps, uint64_t cut_id,
                                         const std::string& cursor) {
    ScanTableRequest request;
    *request.mutable_header()->mutable_caller() = caller(ps);
    request.mutable_header()->set_cut_id(cut_id);
    request.mutable_header()->set_cursor(cursor);
    ScanTableResponse response;
    const absl::Status scanned = FromGrpcStatus(fixture_->stub(ps).ScanTable(
        MakeContext(absl::Now() + kPsTimeout).get(), request, &response));
    if (!scanned.ok()) return scanned;
    return response;
  }
  absl::StatusOr<Rows> ScanAll(uint64_t cut_id) {
    Rows rows;
    for (uint32_t ps = 0; ps < fixture_->ps_count(); ++ps) {
      std::string cursor;
      do {
        const auto response = Scan(ps, cut_id, cursor);
        if (!response.ok()) return response.status();
        const size_t count = response->header().rows();
        const size_t values = count * sizeof(int64_t);
        for (size_t i = 0; i < count; ++i) {
          int64_t key = 0;
          std::memcpy(&key, response->payload().data() + i * sizeof(key),
                      sizeof(key));
          const Row row =
              RowAt(response->payload(), values + i * kDim * sizeof(float));
          EXPECT_TRUE(rows.emplace(key, row).second) << key << " came twice";
        }
        cursor = response->header().next_cursor();
      } while (!cursor.empty());
    }
    return rows;
  }

 private:
  template <typename T>
  static void Append(const std::vector<T>& values, std::string* bytes) {
    bytes->append(reinterpret_cast<const char*>(values.data()),
                  values.size() * sizeof(T));
  }
  static Row RowAt(const std::string& bytes, size_t offset,
                   ElementType type = ElementType::kFloat32) {
    Row row(kDim);
    Widen(type, bytes.data() + offset, row.data(), kDim);
    return row;
  }

  PsFixture* const fixture_;
  PlainWorker plain_;
  const TableMap map_;
  const WireType wire_type_;
};

inline ShardStatus::Table StatusOf(PsFixture* fixture, uint32_t ps) {
  ShardStatus status;
  fixture->stub(ps).GetShardStatus(MakeContext(absl::Now() + kPsTimeout).get(),
                                   ShardStatusRequest(), &status);
  return status.jobs_size() == 1 && status.jobs(0).tables_size() == 1
             ? status.jobs(0).tables(0)
             : ShardStatus::Table();
}

}  // namespace syncline

#endif  // SYNCLINE_TESTS_COMPONENT_PS_TABLES_FIXTURE_H_

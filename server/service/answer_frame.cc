#include "server/service/answer_frame.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "common/wire/frame.h"
#include "proto/parameter_server.pb.h"

namespace syncline::ps {
namespace {

using grpc::ByteBuffer;

// A slice over the values that owns them, with their part of the budget.
grpc::Slice ToSlice(PullValues values) {
  auto* owner = new PullValues(std::move(values));
  return grpc::Slice(
      owner->floats(), owner->bytes,
      [](void* p) { delete static_cast<PullValues*>(p); }, owner);
}

// A slice over a vector that it owns, with a part of the budget.
template <typename T>
grpc::Slice ToSlice(std::vector<T> values, InFlightBudget::Hold hold) {
  struct Owner {
    std::vector<T> values;
    InFlightBudget::Hold hold;
  };
  auto* owner = new Owner{std::move(values), std::move(hold)};
  return grpc::Slice(
      owner->values.data(), owner->values.size() * sizeof(T),
      [](void* p) { delete static_cast<Owner*>(p); }, owner);
}

void AddTables(const CallRows& rows, PullResponseHeader* header) {
  for (const RowList& list : rows.lists) {
    TableRows* table = header->add_tables();
    table->set_table(list.table);
    table->set_rows(static_cast<uint32_t>(list.keys.size()));
  }
}

}  // namespace

ByteBuffer EmptyMessage() {
  const grpc::Slice slice;
  return ByteBuffer(&slice, 1);
}

ByteBuffer OutcomeMessage(PushResponse::Outcome outcome) {
  PushResponse response;
  response.set_outcome(outcome);
  const grpc::Slice slice(response.SerializeAsString());
  return ByteBuffer(&slice, 1);
}

ByteBuffer PullFrame(JobShard* shard, uint32_t rank, PullValues values) {
  PullResponseHeader header;
  for (const BlockIndex block : values.blocks) {
    if (!shard->layout().is_dense(block)) break;
    header.add_blocks(shard->layout().ids()[block]);
  }
  if (values.form == ValueForm::kChange) {
    header.set_compression(CompressionSpec::INT8);
    header.mutable_block_bytes()->Add(values.block_bytes.begin(),
                                      values.block_bytes.end());
  }
  if (values.rows != nullptr) AddTables(*values.rows, &header);
  header.set_min_clock(values.min_clock);
  header.set_max_clock(values.max_clock);
  header.set_waited_seconds(absl::ToDoubleSeconds(values.waited));
  header.set_non_finite(shard->non_finite().CountOf(rank));
  header.set_skipped_through(values.skipped_through);
  header.set_regimes(values.regimes);
  header.set_open_clock(values.open_clock);
  header.set_checkpoint_cut(values.checkpoint_cut);
  if (values.lost != nullptr) {
    for (const ConsistencyController::LostWorker& worker : *values.lost) {
      LostWorker* const lost = header.add_lost_workers();
      lost->set_rank(worker.rank);
      lost->set_first_clock(worker.first_clock);
    }
  }
  for (const ReturnedLease& lease : values.returned) {
    ReturnedClock* const returned = header.add_returned();
    returned->set_rank(lease.rank);
    returned->set_clock(lease.clock);
    returned->set_next_clock(lease.next_clock);
  }
  FrameParts parts;
  header.SerializeToString(&parts.header);
  if (values.area.data != nullptr && values.bytes > 0) {
    SharedRange* const range = parts.shared.add_payload();
    *range = values.area.range;
    range->set_size(values.bytes);
  } else if (values.bytes > 0) {
    parts.payload.push_back(ToSlice(std::move(values)));
  }
  return JoinFrame(std::move(parts));
}

ByteBuffer ScanFrame(EmbeddingTables::Scanned rows, InFlightBudget::Hold room) {
  ScanTableResponseHeader header;
  header.set_rows(static_cast<uint32_t>(rows.keys.size()));
  header.set_next_cursor(rows.next_cursor);
  std::vector<grpc::Slice> slices;
  if (!rows.keys.empty()) {
    slices.push_back(ToSlice(std::move(rows.keys), {}));
    slices.push_back(ToSlice(std::move(rows.values), std::move(room)));
  }
  return EncodeFrame(header, std::move(slices));
}

}  // namespace syncline::ps

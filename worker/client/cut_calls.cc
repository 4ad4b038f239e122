#include "worker/client/cut_calls.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/message_buffer.h"
#include "common/wire/frame.h"
#include "common/wire/wire_cut_use.h"

namespace syncline::worker {

CutCalls::CutCalls(std::vector<uint32_t> shards,
                   std::vector<FanoutCall::Peer> peers,
                   const HeaderEncoder* headers, FanoutCall* calls)
    : shards_(std::move(shards)),
      peers_(std::move(peers)),
      headers_(*headers),
      calls_(calls) {}

absl::StatusOr<std::vector<int64_t>> CutCalls::Begin(
    const ParameterExchange::Cut& cut, absl::Duration hold) {
  BeginCutRequest request;
  *request.mutable_caller() = headers_.caller();
  request.set_cut_id(cut.id);
  request.mutable_clocks()->Add(cut.clocks.begin(), cut.clocks.end());
  request.set_hold_seconds(absl::ToDoubleSeconds(hold));
  request.set_purpose(CutPurposeOf(cut.use));
  const int64_t clock = *std::max_element(cut.clocks.begin(), cut.clocks.end());
  SYNCLINE_RETURN_IF_ERROR(CallAll("BeginCut", clock, ToByteBuffer(request)));
  return cut.clocks;
}

absl::Status CutCalls::End(uint64_t cut_id, int64_t clock) {
  EndCutRequest request;
  *request.mutable_caller() = headers_.caller();
  request.set_cut_id(cut_id);
  return CallAll("EndCut", clock, ToByteBuffer(request));
}

absl::Status CutCalls::ReportActivity(int64_t clock, absl::string_view what,
                                      uint64_t done, uint64_t total) {
  ActivityRequest request;
  *request.mutable_caller() = headers_.caller();
  request.set_clock(clock);
  request.set_what(std::string(what));
  request.set_done(done);
  request.set_total(total);
  return CallAll("ReportActivity", clock, ToByteBuffer(request));
}

absl::Status CutCalls::CallAll(const char* method, int64_t clock,
                               const grpc::ByteBuffer& request) {
  for (const uint32_t shard : shards_) {
    calls_->Start({.shard = shard,
                   .method = method,
                   .direction = FanoutCall::Direction::kPush,
                   .request = request,
                   .clock = clock});
  }
  return calls_->Wait();
}

absl::Status CutCalls::ScanTable(uint32_t table, int64_t dim, uint64_t cut_id,
                                 int64_t clock, RowSink sink) {
  ScannedRows rows;
  for (uint32_t shard = 0; shard < peers_.size(); ++shard) {
    ScanTableHeader header;
    *header.mutable_caller() = headers_.caller();
    header.set_table(table);
    header.set_cut_id(cut_id);
    do {
      SYNCLINE_RETURN_IF_ERROR(ScanChunk(shard, clock, header, &rows));
      if (rows.values.size() != rows.keys.size() * static_cast<size_t>(dim)) {
        return absl::InternalError(absl::StrCat(
            peers_[shard].name, " at ", peers_[shard].address,
            ", ScanTable of table ", table, ": ", rows.values.size(),
            " values for ", rows.keys.size(), " rows of ", dim));
      }
      SYNCLINE_RETURN_IF_ERROR(sink(rows.keys, rows.values));
      header.set_cursor(rows.header.next_cursor());
    } while (!header.cursor().empty());
  }
  return absl::OkStatus();
}

absl::Status CutCalls::ScanChunk(uint32_t shard, int64_t clock,
                                 const ScanTableHeader& header,
                                 ScannedRows* rows) {
  FanoutCall::Call call;
  call.shard = shard;
  call.method = "ScanTable";
  call.direction = FanoutCall::Direction::kPull;
  call.request = EncodeFrame(header, {});
  call.clock = clock;
  call.on_response = [rows](const grpc::ByteBuffer& response, absl::Time) {
    rows->header.Clear();
    PayloadView payload;
    SYNCLINE_RETURN_IF_ERROR(DecodeFrame(response, &rows->header, &payload));
    const size_t key_bytes = rows->header.rows() * sizeof(int64_t);
    if (payload.size_bytes() < key_bytes) {
      return absl::InternalError("answered fewer bytes than its keys have");
    }
    rows->keys.resize(rows->header.rows());
    rows->values.resize((payload.size_bytes() - key_bytes) / sizeof(float));
    payload.CopyTo(0, key_bytes, rows->keys.data());
    payload.CopyTo(key_bytes, rows->values.size() * sizeof(float),
                   rows->values.data());
    return absl::OkStatus();
  };
  calls_->Start(std::move(call));
  return calls_->Wait();
}

}  // namespace syncline::worker

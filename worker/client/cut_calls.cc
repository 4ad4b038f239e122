#include "worker/client/cut_calls.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/regime/job_regimes.h"
#include "common/rpc/message_buffer.h"
#include "common/wire/frame.h"
#include "common/wire/routing_version.h"
#include "common/wire/smallest_cut.h"
#include "common/wire/wire_cut_use.h"

namespace syncline::worker {

CutCalls::CutCalls(Options options, const HeaderEncoder* headers,
                   FanoutCall* calls,
                   std::optional<CutCoordinator>* coordinator)
    : options_(std::move(options)),
      headers_(*headers),
      calls_(calls),
      coordinator_(*coordinator) {
  UseCoordinator();
}

void CutCalls::UseCoordinator() {
  std::vector<std::string> shards;
  for (const uint32_t shard : options_.shards) {
    const FanoutCall::Peer& peer = options_.peers[shard];
    shards.push_back(absl::StrCat(peer.name, " at ", peer.address));
  }
  if (coordinator_.has_value()) {
    coordinator_->UseShards(std::move(shards), MonotonicNow(), &unsent_);
    return;
  }
  CutCoordinator::Options coordinator;
  coordinator.label = absl::StrCat("job ", options_.job_id);
  coordinator.shards = std::move(shards);
  coordinator.attempt = headers_.CallerOf(0).attempt();
  coordinator.series = options_.series;
  coordinator.spread = options_.spread;
  coordinator_.emplace(std::move(coordinator));
}

// --- Cuts: FanoutCall repeats lost calls, so each is answered once ---

absl::StatusOr<std::vector<int64_t>> CutCalls::Begin(
    const ParameterExchange::Cut& cut, absl::Duration hold) {
  const absl::Time now = MonotonicNow();
  CutActions actions;
  if (cut.use == CutUse::kRegime) regime_ = cut.regime;
  // A cut may be under way since before the routing changed.
  if (!coordinator_->Has(cut.id)) {
    SYNCLINE_RETURN_IF_ERROR(coordinator_->Request(
        {.name = cut.id,
         .use = cut.use,
         .clocks = cut.clocks,
         .equal_clocks = options_.equal_clocks || cut.use == CutUse::kRegime,
         .id = cut.id,
         .hold = hold,
         .deadline = now + options_.patience},
        now, &actions));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const CutAction outcome,
                            AwaitOutcome(cut.id, std::move(actions)));
  SYNCLINE_RETURN_IF_ERROR(outcome.status);
  return outcome.clocks;
}

absl::Status CutCalls::End(uint64_t cut_id, int64_t clock) {
  CutActions actions;
  if (coordinator_->End(cut_id, MonotonicNow(), &actions)) {
    SYNCLINE_ASSIGN_OR_RETURN(const CutAction outcome,
                              AwaitOutcome(cut_id, std::move(actions)));
    return outcome.status;
  }
  // Another member has announced it.
  EndCutRequest request;
  request.set_cut_id(cut_id);
  return CallAll("EndCut", clock, &request);
}

absl::Status CutCalls::Commit(uint64_t cut_id, int64_t clock) {
  committed_ = cut_id;
  return End(cut_id, clock);
}

absl::StatusOr<RegimeSchedule> CutCalls::GetRegimes(int64_t clock) {
  std::vector<GetRegimesResponse> answers(options_.shards.size());
  for (size_t i = 0; i < options_.shards.size(); ++i) {
    GetRegimesRequest request;
    *request.mutable_caller() = headers_.CallerOf(options_.shards[i]);
    FanoutCall::Call call;
    call.shard = options_.shards[i];
    call.method = "GetRegimes";
    call.clock = clock;
    call.request = ToByteBuffer(request);
    call.on_response = [answer = &answers[i]](const grpc::ByteBuffer& response,
                                              absl::Time) {
      return FromByteBuffer(response, answer)
                 ? absl::OkStatus()
                 : absl::InternalError("the answer is none");
    };
    calls_->Start(std::move(call));
  }
  SYNCLINE_RETURN_IF_ERROR(calls_->Wait());
  std::optional<RegimeSchedule> all;
  for (size_t i = 0; i < answers.size(); ++i) {
    const FanoutCall::Peer& peer = options_.peers[options_.shards[i]];
    const absl::StatusOr<RegimeSchedule> of_shard =
        ReadRegimes(answers[i].regimes());
    if (!of_shard.ok()) {
      return Annotate(of_shard.status(),
                      absl::StrCat(peer.name, " at ", peer.address));
    }
    if (!all.has_value()) all = *of_shard;
    if (*all == *of_shard) continue;
    const FanoutCall::Peer& first = options_.peers[options_.shards[0]];
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", options_.job_id, " at clock ", clock, ": ", first.name, " at ",
        first.address, " has ", answers[0].regimes_size(), " regimes, ",
        peer.name, " at ", peer.address, " has ", answers[i].regimes_size(),
        " or others: a change of the regime has reached one and not the "
        "other"));
  }
  if (!all.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", options_.job_id, ": no shard takes part"));
  }
  return *all;
}

uint64_t CutCalls::WireId(uint64_t cut_id) const {
  const uint64_t id = coordinator_->IdOf(cut_id);
  return id != 0 ? id : cut_id;
}

absl::StatusOr<CutAction> CutCalls::AwaitOutcome(uint64_t name,
                                                 CutActions actions) {
  std::move(unsent_.begin(), unsent_.end(), std::back_inserter(actions));
  unsent_.clear();
  while (true) {
    std::optional<CutAction> outcome;
    for (CutAction& action : actions) {
      if (action.kind == CutAction::Kind::kBegin ||
          action.kind == CutAction::Kind::kEnd) {
        Send(action);
      } else if (action.name == name) {
        outcome = std::move(action);
      }
    }
    SYNCLINE_RETURN_IF_ERROR(calls_->Wait());
    actions.clear();
    GiveAnswers(&actions);
    // Messages that end a failed cut are sent, too, before the caller goes on.
    if (outcome.has_value() && actions.empty()) return *outcome;
    if (!actions.empty()) {
      // Before what the answers have brought, which is later and so counts.
      if (outcome.has_value()) {
        actions.insert(actions.begin(), *std::move(outcome));
      }
      continue;
    }
    SYNCLINE_RETURN_IF_ERROR(calls_->WaitUntil(coordinator_->next_tick()));
    coordinator_->OnTick(MonotonicNow(), &actions);
  }
}

void CutCalls::Send(const CutAction& action) {
  FanoutCall::Call call;
  call.shard = options_.shards[action.shard];
  if (action.kind == CutAction::Kind::kBegin) {
    BeginCutRequest request;
    *request.mutable_caller() = headers_.CallerOf(call.shard);
    request.set_cut_id(action.cut_id);
    request.mutable_clocks()->Add(action.clocks.begin(), action.clocks.end());
    request.set_hold_seconds(absl::ToDoubleSeconds(action.hold));
    request.set_purpose(CutPurposeOf(action.use));
    if (action.use == CutUse::kRegime && regime_.has_value()) {
      regime_->first_clock = action.clocks[0];
      *request.mutable_regime() = ToProto(*regime_);
    }
    call.method = "BeginCut";
    call.clock = *std::max_element(action.clocks.begin(), action.clocks.end());
    call.request = ToByteBuffer(request);
  } else {
    EndCutRequest request;
    *request.mutable_caller() = headers_.CallerOf(call.shard);
    request.set_cut_id(action.cut_id);
    request.set_commit(committed_ != 0 && action.name == committed_);
    call.method = "EndCut";
    call.request = ToByteBuffer(request);
  }
  call.on_response = [this, action](const grpc::ByteBuffer&, absl::Time) {
    OnAnswer(action, absl::OkStatus());
    return absl::OkStatus();
  };
  call.on_refused = [this, action](const absl::Status& refusal) {
    // The shard is elsewhere, and has refused nothing.
    if (RoutingVersionOf(refusal).has_value()) return refusal;
    OnAnswer(action, refusal);
    return absl::OkStatus();
  };
  calls_->Start(std::move(call));
}

void CutCalls::OnAnswer(const CutAction& action, absl::Status status) {
  MutexLock lock(&mu_);
  answered_.push_back({action, std::move(status)});
}

void CutCalls::GiveAnswers(CutActions* actions) {
  std::vector<Answered> answered;
  {
    MutexLock lock(&mu_);
    answered.swap(answered_);
  }
  const absl::Time now = MonotonicNow();
  for (const Answered& one : answered) {
    const CutAction& action = one.action;
    if (action.kind == CutAction::Kind::kEnd) {
      coordinator_->OnEnded(action.shard, action.cut_id, one.status, now,
                            actions);
      continue;
    }
    coordinator_->OnBegun(
        action.shard, action.cut_id,
        {.status = one.status,
         .smallest = SmallestCutOf(one.status, action.clocks.size())},
        now, actions);
  }
}

// --- The rest ---

absl::Status CutCalls::ReportActivity(int64_t clock, absl::string_view what,
                                      uint64_t done, uint64_t total) {
  ActivityRequest request;
  request.set_clock(clock);
  request.set_what(std::string(what));
  request.set_done(done);
  request.set_total(total);
  return CallAll("ReportActivity", clock, &request);
}

template <typename Request>
absl::Status CutCalls::CallAll(const char* method, int64_t clock,
                               Request* request) {
  for (const uint32_t shard : options_.shards) {
    *request->mutable_caller() = headers_.CallerOf(shard);
    calls_->Start({.shard = shard,
                   .method = method,
                   .direction = FanoutCall::Direction::kPush,
                   .request = ToByteBuffer(*request),
                   .clock = clock});
  }
  return calls_->Wait();
}

absl::Status CutCalls::ScanTable(uint32_t table, int64_t dim, uint64_t cut_id,
                                 int64_t clock, RowSink sink) {
  ScannedRows rows;
  for (uint32_t shard = 0; shard < options_.peers.size(); ++shard) {
    ScanTableHeader header;
    *header.mutable_caller() = headers_.CallerOf(shard);
    header.set_table(table);
    header.set_cut_id(cut_id);
    do {
      SYNCLINE_RETURN_IF_ERROR(ScanChunk(shard, clock, header, &rows));
      if (rows.values.size() != rows.keys.size() * static_cast<size_t>(dim)) {
        return absl::InternalError(absl::StrCat(
            options_.peers[shard].name, " at ", options_.peers[shard].address,
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

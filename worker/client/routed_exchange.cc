#include "worker/client/routed_exchange.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/wire/routing_version.h"

namespace syncline::worker {
namespace {

const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

}  // namespace

RoutedExchange::RoutedExchange(const Options& options)
    : options_(options), client_(options.make_client(options.routing->job())) {
  MutexLock lock(&mu_);
  to_cancel_ = client_;
}

void RoutedExchange::Cancel(const absl::Status& reason) {
  options_.routing->Cancel(reason);
  std::shared_ptr<ParameterExchange> client;
  {
    MutexLock lock(&mu_);
    if (cancelled_.ok()) cancelled_ = reason;
    client = to_cancel_;
  }
  if (client != nullptr) client->Cancel(reason);
}

// --- From one routing to the next ---

template <typename Call>
auto RoutedExchange::Routed(Call call) -> decltype(call()) {
  while (true) {
    auto result = call();
    if (!RoutingVersionOf(StatusOf(result)).has_value()) return result;
    SYNCLINE_RETURN_IF_ERROR(GoOnElsewhere(StatusOf(result)));
  }
}

absl::Status RoutedExchange::GoOnElsewhere(const absl::Status& refusal) {
  SYNCLINE_RETURN_IF_ERROR(options_.routing->Follow(refusal));
  const std::shared_ptr<const RoutedJob> job = options_.routing->job();
  {
    MutexLock lock(&mu_);
    to_cancel_ = nullptr;
  }
  // A client that was refused before it got the step does not know.
  step_.abandoned |= client_->step_abandoned();
  // Its calls end here, and let the memory of gradients and values go.
  client_.reset();
  if (options_.on_routing != nullptr) options_.on_routing(job->table);
  client_ = options_.make_client(job);
  client_->UseReturned(make_returned_);
  absl::Status cancelled;
  {
    MutexLock lock(&mu_);
    to_cancel_ = client_;
    cancelled = cancelled_;
  }
  if (!cancelled.ok()) client_->Cancel(cancelled);
  if (step_.open) HandOverStep();
  return absl::OkStatus();
}

void RoutedExchange::HandOverStep() {
  client_->BeginStep(step_.step);
  if (!step_.early_rows.empty()) {
    client_->PullEarly(step_.early_rows, step_.early_clock);
  }
  if (step_.abandoned) {
    client_->AbandonStep(/*own_values=*/false);  // they were counted
  } else {
    for (const uint32_t tensor : step_.tensors) {
      client_->OnGradientReady(tensor);
    }
  }
  if (step_.ended) client_->EndBackward(step_.next_rows);
}

// --- The state between steps, and cuts ---

absl::Status RoutedExchange::Init(int64_t total_clocks) {
  return Routed([&] { return client_->Init(total_clocks); });
}

absl::Status RoutedExchange::Pull(int64_t clock) {
  return Routed([&] { return client_->Pull(clock); });
}

absl::Status RoutedExchange::PullRows(int64_t clock, uint64_t cut_id,
                                      absl::Span<RowBatch* const> rows) {
  return Routed([&] { return client_->PullRows(clock, cut_id, rows); });
}

absl::Status RoutedExchange::ReportActivity(int64_t clock,
                                            absl::string_view what,
                                            uint64_t done, uint64_t total) {
  return Routed(
      [&] { return client_->ReportActivity(clock, what, done, total); });
}

absl::StatusOr<std::vector<int64_t>> RoutedExchange::BeginCut(const Cut& cut) {
  return Routed([&] { return client_->BeginCut(cut); });
}

absl::Status RoutedExchange::PullCut(uint64_t cut_id, int64_t clock) {
  return Routed([&] { return client_->PullCut(cut_id, clock); });
}

absl::Status RoutedExchange::ScanTable(uint32_t table, int64_t dim,
                                       uint64_t cut_id, int64_t clock,
                                       RowSink sink) {
  // A scan that has given rows cannot begin again: the sink would have them
  // twice. It is under a cut that is held, and a routing cut waits for its end,
  // so the routing stands still.
  return client_->ScanTable(table, dim, cut_id, clock, sink);
}

absl::Status RoutedExchange::EndCut(uint64_t cut_id, int64_t clock) {
  return Routed([&] { return client_->EndCut(cut_id, clock); });
}

absl::Status RoutedExchange::AwaitCut(uint64_t cut_id, int64_t clock) {
  return Routed([&] { return client_->AwaitCut(cut_id, clock); });
}

absl::Status RoutedExchange::CommitRegime(uint64_t cut_id, int64_t clock) {
  return Routed([&] { return client_->CommitRegime(cut_id, clock); });
}

absl::StatusOr<RegimeSchedule> RoutedExchange::FollowRegimes(int64_t clock) {
  return Routed([&] { return client_->FollowRegimes(clock); });
}

std::unique_ptr<CheckpointWriting> RoutedExchange::OpenCheckpoint(
    uint64_t cut_id) {
  return client_->OpenCheckpoint(cut_id);
}

// --- A step ---

void RoutedExchange::BeginStep(const Step& step) {
  step_.open = true;
  step_.abandoned = false;
  step_.ended = false;
  step_.step = step;
  step_.early_rows = {};
  step_.tensors.clear();
  step_.next_rows = {};
  client_->BeginStep(step);
}

void RoutedExchange::PullEarly(absl::Span<RowBatch* const> next_rows,
                               int64_t min_clock) {
  step_.early_rows = next_rows;
  step_.early_clock = min_clock;
  client_->PullEarly(next_rows, min_clock);
}

void RoutedExchange::AbandonStep(bool own_values) {
  client_->AbandonStep(own_values);
}

void RoutedExchange::OnGradientReady(uint32_t tensor) {
  step_.tensors.push_back(tensor);
  client_->OnGradientReady(tensor);
}

void RoutedExchange::EndBackward(absl::Span<RowBatch* const> next_rows) {
  step_.ended = true;
  step_.next_rows = next_rows;
  client_->EndBackward(next_rows);
}

absl::Status RoutedExchange::Wait() {
  const absl::Status status = Routed([&] { return client_->Wait(); });
  step_.open = false;
  return status;
}

}  // namespace syncline::worker

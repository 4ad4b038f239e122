#include "server/service/metrics.h"

namespace syncline::ps {
namespace {

constexpr const char* kRpcNames[kPsRpcCount] = {
    "Init",           "PushPull",        "Push",
    "Pull",           "BeginCut",        "EndCut",
    "ReportActivity", "FoldNorm",        "FixClock",
    "FoldStatistics", "GetShardStatus",  "ScanTable",
    "OfferMemory",    "AttachMemory",    "GetRouting",
    "GetRegimes",     "AwaitCheckpoint", "CommitCheckpoint"};

}  // namespace

PsMetrics::PsMetrics(MetricsRegistry* registry)
    : own_registry_(registry == nullptr ? std::make_unique<MetricsRegistry>()
                                        : nullptr),
      registry_(registry == nullptr ? own_registry_.get() : registry) {
  for (int rpc = 0; rpc < kPsRpcCount; ++rpc) {
    durations_[rpc] = &registry_->AddHistogram(
        "syncline_ps_request_duration_seconds", {{"rpc", kRpcNames[rpc]}},
        MetricsRegistry::DurationBounds());
  }
  received_bytes_ = &registry_->AddCounter("syncline_ps_received_bytes_total");
  sent_bytes_ = &registry_->AddCounter("syncline_ps_sent_bytes_total");
  const auto shared_payload = [this](const char* direction) {
    return &registry_->AddCounter(
        "syncline_ps_shared_memory_payload_bytes_total",
        {{"direction", direction}});
  };
  shared_received_ = shared_payload("received");
  shared_sent_ = shared_payload("sent");
  shared_memory_bytes_ =
      &registry_->AddGauge("syncline_ps_shared_memory_bytes");
  shared_memory_limit_bytes_ =
      &registry_->AddGauge("syncline_ps_shared_memory_limit_bytes");
  duplicates_ = &registry_->AddCounter("syncline_ps_duplicate_blocks_total");
  abandoned_cuts_ = &registry_->AddCounter("syncline_ps_abandoned_cuts_total");
  skipped_clocks_ = &registry_->AddCounter("syncline_ps_skipped_clocks_total");
  const auto checkpoints = [this](const char* result) {
    return &registry_->AddCounter("syncline_ps_checkpoints_total",
                                  {{"result", result}});
  };
  checkpoints_written_ = checkpoints("written");
  checkpoints_failed_ = checkpoints("failed");
  checkpoint_bytes_ =
      &registry_->AddCounter("syncline_ps_checkpoint_bytes_total");
  checkpoint_seconds_ =
      &registry_->AddCounter("syncline_ps_checkpoint_seconds_total");
  checkpoint_copies_ =
      &registry_->AddCounter("syncline_ps_checkpoint_copies_total");
  checkpoint_waits_ =
      &registry_->AddCounter("syncline_ps_checkpoint_waits_total");
  const auto checkpoint_wait = [this](const char* what) {
    return &registry_->AddCounter("syncline_ps_checkpoint_wait_seconds_total",
                                  {{"for", what}});
  };
  checkpoint_block_seconds_ = checkpoint_wait("block");
  checkpoint_table_seconds_ = checkpoint_wait("table");
  in_flight_bytes_ = &registry_->AddGauge("syncline_ps_in_flight_bytes");
  in_flight_limit_bytes_ =
      &registry_->AddGauge("syncline_ps_in_flight_limit_bytes");
  const auto parked = [this](const char* kind) {
    return &registry_->AddGauge("syncline_ps_parked_calls", {{"kind", kind}});
  };
  parked_pushes_ = parked("push");
  parked_pulls_ = parked("pull");
  parked_statistics_ = parked("statistics");
  parameter_bytes_ = &registry_->AddGauge("syncline_ps_parameter_bytes");
  slot_bytes_ = &registry_->AddGauge("syncline_ps_slot_bytes");
  fold_bytes_ = &registry_->AddGauge("syncline_ps_fold_bytes");
  jobs_ = &registry_->AddGauge("syncline_ps_jobs");
  clock_spread_ = &registry_->AddGauge("syncline_ps_clock_spread_clocks");
}

Counter* PsMetrics::RequestCounter(PsRpc rpc, absl::StatusCode code) {
  const int index = static_cast<int>(code);
  std::atomic<Counter*>& slot =
      requests_[static_cast<int>(rpc)]
               [index >= 0 && index < kCodeCount ? index : 2 /* Unknown */];
  Counter* counter = slot.load(std::memory_order_acquire);
  if (counter == nullptr) {
    // Two threads may both ask; the registry gives them the same one.
    counter =
        &registry_->AddCounter("syncline_ps_requests_total",
                               {{"rpc", kRpcNames[static_cast<int>(rpc)]},
                                {"code", absl::StatusCodeToString(code)}});
    slot.store(counter, std::memory_order_release);
  }
  return counter;
}

void PsMetrics::Answered(PsRpc rpc, absl::StatusCode code,
                         absl::Duration duration) {
  RequestCounter(rpc, code)->Add();
  durations_[static_cast<int>(rpc)]->Observe(absl::ToDoubleSeconds(duration));
}

void PsMetrics::Checkpoints(const CheckpointEvents& events) {
  checkpoints_written_->Add(static_cast<double>(events.written));
  checkpoints_failed_->Add(static_cast<double>(events.failed));
  checkpoint_bytes_->Add(static_cast<double>(events.bytes));
  checkpoint_seconds_->Add(absl::ToDoubleSeconds(events.took));
  checkpoint_copies_->Add(static_cast<double>(events.copies));
  checkpoint_waits_->Add(static_cast<double>(events.waits));
  checkpoint_block_seconds_->Add(absl::ToDoubleSeconds(events.block_waits));
  checkpoint_table_seconds_->Add(absl::ToDoubleSeconds(events.table_waits));
}

void PsMetrics::Set(const Sample& sample) {
  in_flight_bytes_->Set(sample.in_flight_bytes);
  in_flight_limit_bytes_->Set(sample.in_flight_limit_bytes);
  shared_memory_bytes_->Set(sample.shared_memory_bytes);
  shared_memory_limit_bytes_->Set(sample.shared_memory_limit_bytes);
  parked_pushes_->Set(sample.parked_pushes);
  parked_pulls_->Set(sample.parked_pulls);
  parked_statistics_->Set(sample.parked_statistics);
  parameter_bytes_->Set(sample.parameter_bytes);
  slot_bytes_->Set(sample.slot_bytes);
  fold_bytes_->Set(sample.fold_bytes);
  jobs_->Set(sample.jobs);
  clock_spread_->Set(sample.clock_spread);
}

}  // namespace syncline::ps

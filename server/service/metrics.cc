#include "server/service/metrics.h"

namespace syncline::ps {
namespace {

constexpr const char* kRpcNames[kPsRpcCount] = {
    "Init",           "PushPull",       "Push",           "Pull",
    "BeginCut",       "EndCut",         "ReportActivity", "FoldNorm",
    "FoldStatistics", "GetShardStatus", "ScanTable",      "OfferMemory",
    "AttachMemory",   "GetRouting"};

}  // namespace

PsMetrics::PsMetrics(MetricsRegistry* registry)
    : own_registry_(registry == nullptr ? std::make_unique<MetricsRegistry>()
                                        : nullptr),
      registry_(registry == nullptr ? own_registry_.get() : registry) {
  for (int rpc = 0; rpc < kPsRpcCount; ++rpc) {
    durations_[rpc] = &registry_->AddHistogram(
        "syncline_ps_request_duration_seconds",
        "Time from a call's arrival to its answer, parking included.",
        {{"rpc", kRpcNames[rpc]}}, MetricsRegistry::DurationBounds());
  }
  received_bytes_ = &registry_->AddCounter("syncline_ps_received_bytes_total",
                                           "Payload bytes received.");
  sent_bytes_ = &registry_->AddCounter("syncline_ps_sent_bytes_total",
                                       "Payload bytes sent.");
  const auto shared_payload = [this](const char* direction) {
    return &registry_->AddCounter(
        "syncline_ps_shared_memory_payload_bytes_total",
        "Payload bytes, of those received and sent, that went through shared "
        "memory.",
        {{"direction", direction}});
  };
  shared_received_ = shared_payload("received");
  shared_sent_ = shared_payload("sent");
  shared_memory_bytes_ = &registry_->AddGauge(
      "syncline_ps_shared_memory_bytes",
      "Bytes of memory of workers on this host that are mapped.");
  shared_memory_limit_bytes_ =
      &registry_->AddGauge("syncline_ps_shared_memory_limit_bytes",
                           "Above this workers are told to use the network.");
  duplicates_ = &registry_->AddCounter(
      "syncline_ps_duplicate_blocks_total",
      "Blocks that were pushed again and not applied again.");
  abandoned_cuts_ =
      &registry_->AddCounter("syncline_ps_abandoned_cuts_total",
                             "Cuts that were held for too long and given up.");
  skipped_clocks_ = &registry_->AddCounter(
      "syncline_ps_skipped_clocks_total",
      "Clocks at which nothing was applied because a gradient was not finite; "
      "pushes of a worker, where workers do not wait for each other.");
  in_flight_bytes_ = &registry_->AddGauge(
      "syncline_ps_in_flight_bytes", "Bytes of requests and responses held.");
  in_flight_limit_bytes_ = &registry_->AddGauge(
      "syncline_ps_in_flight_limit_bytes",
      "Calls beyond this limit are refused until others end.");
  const auto parked = [this](const char* kind) {
    return &registry_->AddGauge("syncline_ps_parked_calls",
                                "Calls that wait for another caller.",
                                {{"kind", kind}});
  };
  parked_pushes_ = parked("push");
  parked_pulls_ = parked("pull");
  parked_statistics_ = parked("statistics");
  parameter_bytes_ = &registry_->AddGauge("syncline_ps_parameter_bytes",
                                          "Bytes of parameter values held.");
  slot_bytes_ = &registry_->AddGauge("syncline_ps_slot_bytes",
                                     "Bytes of optimizer state held.");
  fold_bytes_ = &registry_->AddGauge(
      "syncline_ps_fold_bytes",
      "Bytes of gradients held until other workers' arrive.");
  jobs_ = &registry_->AddGauge("syncline_ps_jobs", "Open jobs.");
  clock_spread_ = &registry_->AddGauge(
      "syncline_ps_clock_spread_clocks",
      "Clocks between the fastest and the slowest active worker.");
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
        &registry_->AddCounter("syncline_ps_requests_total", "Answered calls.",
                               {{"rpc", kRpcNames[static_cast<int>(rpc)]},
                                {"code", absl::StatusCodeToString(code)}});
    slot.store(counter, std::memory_order_release);
  }
  return counter;
}

void PsMetrics::NonFinite(const std::string& worker, uint64_t count) {
  registry_
      ->AddCounter("syncline_ps_non_finite_total",
                   "Blocks and rows of gradients that were not finite.",
                   {{"worker", worker}})
      .Add(static_cast<double>(count));
}

void PsMetrics::Answered(PsRpc rpc, absl::StatusCode code,
                         absl::Duration duration) {
  RequestCounter(rpc, code)->Add();
  durations_[static_cast<int>(rpc)]->Observe(absl::ToDoubleSeconds(duration));
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

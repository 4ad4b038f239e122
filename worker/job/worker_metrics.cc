#include "worker/job/worker_metrics.h"

#include <string>

namespace syncline::worker {

WorkerMetrics::WorkerMetrics(MetricsRegistry* registry) {
  if (registry == nullptr) return;
  AddSteps(registry);
  AddEvaluations(registry);
  AddClient(registry);
  AddSharedMemory(registry);
}

void WorkerMetrics::AddSteps(MetricsRegistry* registry) {
  steps_ = &registry->AddCounter("syncline_worker_steps_total",
                                 "Training steps closed.");
  samples_ = &registry->AddCounter("syncline_worker_samples_total",
                                   "Samples trained on.");
  const auto fed = [&](const char* content) {
    return &registry->AddCounter(
        "syncline_worker_input_values_total",
        "Numbers fed to training steps, by content: data, or padding of lists "
        "that are shorter than the model takes or than their batch's bucket.",
        {{"content", content}});
  };
  fed_values_ = fed("data");
  fed_padding_ = fed("padding");
  const auto phase = [&](const char* name) {
    return &registry->AddCounter(
        "syncline_worker_training_seconds_total",
        "Time of the training thread, by what it did: data (waiting for a "
        "batch), compute (forward and backward), push (until its gradients "
        "had left), wait (until the servers let it read: for other workers), "
        "pull (until the values were here).",
        {{"phase", name}});
  };
  data_seconds_ = phase("data");
  compute_seconds_ = phase("compute");
  push_seconds_ = phase("push");
  wait_seconds_ = phase("wait");
  pull_seconds_ = phase("pull");
  step_seconds_ = &registry->AddHistogram("syncline_worker_step_seconds",
                                          "Duration of a training step.", {},
                                          MetricsRegistry::DurationBounds());
  loss_scale_ = &registry->AddGauge(
      "syncline_worker_loss_scale",
      "Scale of the loss in the latest step with precision FLOAT16; 0 before "
      "the first one.");
  overflowed_steps_ = &registry->AddCounter(
      "syncline_worker_overflowed_steps_total",
      "Training steps that had no effect, or are dealt with as non_finite says "
      "where the scale is fixed, because a scaled gradient was not finite; in "
      "SYNC of any worker.");
}

void WorkerMetrics::AddEvaluations(MetricsRegistry* registry) {
  running_jobs_ = &registry->AddGauge("syncline_worker_jobs",
                                      "Jobs this process is training, or "
                                      "evaluating as their evaluator, 0 or 1.");
  evaluated_samples_ = &registry->AddCounter(
      "syncline_worker_evaluated_samples_total", "Samples evaluated.");
  evaluation_seconds_ =
      &registry->AddCounter("syncline_worker_evaluation_seconds_total",
                            "Time that evaluations have taken.");
}

void WorkerMetrics::AddClient(MetricsRegistry* registry) {
  client_.pushed_bytes = &registry->AddCounter(
      "syncline_worker_pushed_bytes_total",
      "Gradient bytes handed to the network, without repetitions.");
  client_.pulled_bytes = &registry->AddCounter(
      "syncline_worker_pulled_bytes_total", "Parameter bytes received.");
  client_.retries =
      &registry->AddCounter("syncline_worker_ps_retries_total",
                            "Calls to a ps that were sent again.");
  const auto lookups = [&](const char* result) {
    return &registry->AddCounter(
        "syncline_worker_row_cache_lookups_total",
        "Rows of tables looked for in the worker's cache, by result: hit, miss "
        "(then pulled).",
        {{"result", result}});
  };
  cache_hits_ = lookups("hit");
  cache_misses_ = lookups("miss");
  client_.held_back = &registry->AddCounter(
      "syncline_worker_ps_held_back_total",
      "Calls that a ps had no memory for, held back and sent again.");
  client_.non_finite = &registry->AddCounter(
      "syncline_worker_non_finite_total",
      "Gradients of this worker, or blocks and rows of them, that were not "
      "finite and have no effect.");
}

void WorkerMetrics::AddSharedMemory(MetricsRegistry* registry) {
  const auto shared_bytes = [&](const char* direction) {
    return &registry->AddCounter(
        "syncline_worker_shared_memory_bytes_total",
        "Payload bytes, of those pushed and pulled, that went through memory "
        "shared with a ps on this host.",
        {{"direction", direction}});
  };
  client_.shared_pushed_bytes = shared_bytes("push");
  client_.shared_pulled_bytes = shared_bytes("pull");
  client_.shared_links =
      &registry->AddGauge("syncline_worker_shared_memory_links",
                          "Ps of the running job that share memory with it.");
  for (int i = 0; i < kSharedFallbackCount; ++i) {
    const auto reason = static_cast<SharedFallback>(i);
    shared_fallbacks_[i] = &registry->AddCounter(
        "syncline_worker_shared_memory_fallbacks_total",
        "Why the network was used, once per ps, or per call where the memory "
        "was full.",
        {{"reason", std::string(FallbackName(reason))}});
  }
  client_.on_shared_fallback = [this](SharedFallback reason) {
    shared_fallbacks_[static_cast<int>(reason)]->Add();
  };
}

void WorkerMetrics::OnStep(uint64_t samples,
                           const ProgressMeter::StepTimes& times) {
  if (steps_ == nullptr) return;
  steps_->Add();
  samples_->Add(static_cast<double>(samples));
  data_seconds_->Add(absl::ToDoubleSeconds(times.data));
  compute_seconds_->Add(absl::ToDoubleSeconds(times.compute));
  push_seconds_->Add(absl::ToDoubleSeconds(times.push));
  wait_seconds_->Add(absl::ToDoubleSeconds(times.wait));
  pull_seconds_->Add(absl::ToDoubleSeconds(times.pull));
  step_seconds_->Observe(absl::ToDoubleSeconds(times.total()));
}

void WorkerMetrics::OnLossScale(double scale) {
  if (loss_scale_ != nullptr) loss_scale_->Set(scale);
}

void WorkerMetrics::OnOverflow() {
  if (overflowed_steps_ != nullptr) overflowed_steps_->Add();
}

void WorkerMetrics::OnFed(int64_t values, int64_t padding) {
  if (fed_values_ == nullptr) return;
  fed_values_->Add(static_cast<double>(values));
  fed_padding_->Add(static_cast<double>(padding));
}

void WorkerMetrics::OnCachedRows(size_t read, size_t pulled) {
  if (cache_hits_ == nullptr) return;
  cache_hits_->Add(static_cast<double>(read - pulled));
  cache_misses_->Add(static_cast<double>(pulled));
}

void WorkerMetrics::OnEvaluation(uint64_t samples, absl::Duration took) {
  if (evaluated_samples_ == nullptr) return;
  evaluated_samples_->Add(static_cast<double>(samples));
  evaluation_seconds_->Add(absl::ToDoubleSeconds(took));
}

void WorkerMetrics::OnJobRunning(bool running) {
  if (running_jobs_ != nullptr) running_jobs_->Set(running ? 1 : 0);
}

}  // namespace syncline::worker

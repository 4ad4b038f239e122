#include "worker/job/worker_metrics.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace syncline::worker {

WorkerMetrics::WorkerMetrics(MetricsRegistry* registry) {
  if (registry == nullptr) return;
  AddSteps(registry);
  AddEvaluations(registry);
  AddClient(registry);
  AddSharedMemory(registry);
  collecting_ = registry->AddCollector(
      [this](MetricSamples* samples) { Collect(samples); });
}

void WorkerMetrics::AddSteps(MetricsRegistry* registry) {
  steps_ = &registry->AddCounter("syncline_worker_steps_total");
  samples_ = &registry->AddCounter("syncline_worker_samples_total");
  const auto fed = [&](const char* content) {
    return &registry->AddCounter("syncline_worker_input_values_total",
                                 {{"content", content}});
  };
  fed_values_ = fed("data");
  fed_padding_ = fed("padding");
  const auto phase = [&](const char* name) {
    return &registry->AddCounter("syncline_worker_training_seconds_total",
                                 {{"phase", name}});
  };
  data_seconds_ = phase("data");
  compute_seconds_ = phase("compute");
  const auto part = [&](const char* name) {
    return &registry->AddCounter("syncline_worker_compute_seconds_total",
                                 {{"part", name}});
  };
  forward_seconds_ = part("forward");
  backward_seconds_ = part("backward");
  update_seconds_ = part("update");
  push_seconds_ = phase("push");
  wait_seconds_ = phase("wait");
  pull_seconds_ = phase("pull");
  step_seconds_ = &registry->AddHistogram("syncline_worker_step_seconds", {},
                                          MetricsRegistry::DurationBounds());
  loss_scale_ = &registry->AddGauge("syncline_worker_loss_scale");
  overflowed_steps_ =
      &registry->AddCounter("syncline_worker_overflowed_steps_total");
  late_gradients_ =
      &registry->AddCounter("syncline_worker_late_gradients_total");
}

void WorkerMetrics::AddEvaluations(MetricsRegistry* registry) {
  running_jobs_ = &registry->AddGauge("syncline_worker_jobs");
  evaluated_samples_ =
      &registry->AddCounter("syncline_worker_evaluated_samples_total");
  evaluation_seconds_ =
      &registry->AddCounter("syncline_worker_evaluation_seconds_total");
}

void WorkerMetrics::AddClient(MetricsRegistry* registry) {
  client_.pushed_bytes =
      &registry->AddCounter("syncline_worker_pushed_bytes_total");
  client_.pulled_bytes =
      &registry->AddCounter("syncline_worker_pulled_bytes_total");
  client_.retries = &registry->AddCounter("syncline_worker_ps_retries_total");
  const auto lookups = [&](const char* result) {
    return &registry->AddCounter("syncline_worker_row_cache_lookups_total",
                                 {{"result", result}});
  };
  cache_hits_ = lookups("hit");
  cache_misses_ = lookups("miss");
  client_.held_back =
      &registry->AddCounter("syncline_worker_ps_held_back_total");
  client_.non_finite =
      &registry->AddCounter("syncline_worker_non_finite_total");
}

void WorkerMetrics::AddSharedMemory(MetricsRegistry* registry) {
  const auto shared_bytes = [&](const char* direction) {
    return &registry->AddCounter("syncline_worker_shared_memory_bytes_total",
                                 {{"direction", direction}});
  };
  client_.shared_pushed_bytes = shared_bytes("push");
  client_.shared_pulled_bytes = shared_bytes("pull");
  client_.shared_links =
      &registry->AddGauge("syncline_worker_shared_memory_links");
  for (int i = 0; i < kSharedFallbackCount; ++i) {
    const auto reason = static_cast<SharedFallback>(i);
    shared_fallbacks_[i] =
        &registry->AddCounter("syncline_worker_shared_memory_fallbacks_total",
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

void WorkerMetrics::OnComputed(double forward, double backward,
                               double updates) {
  if (forward_seconds_ == nullptr) return;
  forward_seconds_->Add(forward);
  backward_seconds_->Add(backward);
  update_seconds_->Add(updates);
}

void WorkerMetrics::OnLossScale(double scale) {
  if (loss_scale_ != nullptr) loss_scale_->Set(scale);
}

void WorkerMetrics::OnOverflow() {
  if (overflowed_steps_ != nullptr) overflowed_steps_->Add();
}

void WorkerMetrics::OnLateGradient() {
  if (late_gradients_ != nullptr) late_gradients_->Add();
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

void WorkerMetrics::OnJobBegins(const Job& job) {
  if (running_jobs_ != nullptr) running_jobs_->Set(1);
  MutexLock lock(&mu_);
  job_ = job;
  progress_.Clear();
}

void WorkerMetrics::OnJobEnds() {
  if (running_jobs_ != nullptr) running_jobs_->Set(0);
  MutexLock lock(&mu_);
  job_.reset();
}

void WorkerMetrics::OnProgress(const WorkerProgress& progress) {
  MutexLock lock(&mu_);
  const bool has_step = progress.has_loss() && !std::isnan(progress.loss());
  const WorkerProgress before = progress_;
  progress_ = progress;
  if (has_step) return;
  progress_.clear_loss();
  if (before.has_loss()) progress_.set_loss(before.loss());
}

void WorkerMetrics::Collect(MetricSamples* samples) const {
  MutexLock lock(&mu_);
  if (!job_.has_value()) return;
  const Job& job = *job_;
  const std::string rank = absl::StrCat(job.rank);
  const MetricSamples::Labels labels = {{"job", job.id}, {"rank", rank}};
  samples->Add("syncline_worker_job_clock", labels,
               static_cast<double>(progress_.clock()));
  samples->Add("syncline_worker_job_planned_clocks", labels,
               static_cast<double>(progress_.clocks_total()));
  if (progress_.has_loss()) {
    samples->Add("syncline_worker_job_loss", labels, progress_.loss());
  }
  const auto add_dense = [&](const char* what, uint64_t sent,
                             uint64_t float32) {
    const auto add = [&](const char* as, uint64_t bytes) {
      samples->Add(
          "syncline_worker_job_dense_bytes",
          {{"as", as}, {"job", job.id}, {"rank", rank}, {"what", what}},
          static_cast<double>(bytes));
    };
    add("sent", sent);
    add("float32", float32);
  };
  add_dense("gradients", progress_.gradient_bytes(),
            progress_.gradient_float32_bytes());
  add_dense("values", progress_.value_bytes(), progress_.value_float32_bytes());
  const auto add_part = [&](const char* part, int64_t bytes) {
    samples->Add("syncline_worker_job_plan_bytes",
                 {{"job", job.id}, {"part", part}, {"rank", rank}},
                 static_cast<double>(bytes));
  };
  add_part("arena", job.arena_bytes);
  add_part("rest", job.memory_bytes - job.arena_bytes);
}

}  // namespace syncline::worker

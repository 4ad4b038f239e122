// How fast a data set becomes batches: the floor under every step of a worker.

#include <cstring>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "tests/bench/benchmarks.h"
#include "worker/data/dataset.h"

namespace syncline {
namespace {

constexpr int64_t kBatch = 1024;
constexpr int64_t kPixels = 784;

absl::StatusOr<std::unique_ptr<worker::Dataset>> OpenDigits(int64_t count) {
  DataSpec data;
  data.mutable_train()->mutable_digits()->set_count(
      static_cast<uint32_t>(count));
  Feed* feed = data.add_feeds();
  feed->set_input("x");
  feed->set_field("image");
  feed->set_scale(1 / 255.0f);
  return worker::Dataset::Open(data.train(), data, "", {{kPixels}}, 10, 1);
}

// One pass in shuffled order; samples per second.
double TimeRead(const worker::Dataset& dataset, worker::BatchPlan* plan,
                int64_t epoch, worker::Batch* batch) {
  plan->Indices(epoch, 0);  // the shuffle is once per epoch, not per step
  const absl::Time begin = absl::Now();
  for (int64_t step = 0; step < plan->steps_per_epoch(); ++step) {
    dataset.Read(plan->Indices(epoch, step), batch);
  }
  return dataset.size() / absl::ToDoubleSeconds(absl::Now() - begin);
}

// The same number of floats, moved from one place to another.
double TimeCopy(int64_t samples, const std::vector<float>& from,
                std::vector<float>* to) {
  const absl::Time begin = absl::Now();
  for (int64_t sample = 0; sample < samples; sample += kBatch) {
    std::memcpy(to->data(), from.data() + sample * kPixels,
                kBatch * kPixels * sizeof(float));
  }
  return samples / absl::ToDoubleSeconds(absl::Now() - begin);
}

}  // namespace

absl::Status RunReadBench(const BenchOptions& options, Report* report) {
  const int64_t samples = (options.smoke ? 2 : 32) * kBatch;
  const absl::Time begin = absl::Now();
  SYNCLINE_ASSIGN_OR_RETURN(const auto dataset, OpenDigits(samples));
  report->Set("samples", samples);
  report->Set("batch", kBatch);
  report->Add("draw a digit", "us",
              absl::ToDoubleMicroseconds(absl::Now() - begin) / samples);

  worker::BatchPlan plan(
      {.sample_count = samples, .batch_size = kBatch, .seed = 1});
  worker::Batch batch;
  dataset->Read({0}, &batch);
  if (batch.feeds[0].size() != kPixels || batch.labels.size() != 1) {
    return absl::InternalError("a sample has the wrong size");
  }
  std::vector<float> from(samples * kPixels, 1.0f);
  std::vector<float> to(kBatch * kPixels);
  for (int i = 0; i < options.repetitions; ++i) {
    report->Add("read", "samples/s", TimeRead(*dataset, &plan, i, &batch));
    report->Add("memcpy", "samples/s", TimeCopy(samples, from, &to));
  }
  report->AddRatio("read / memcpy", "read", "memcpy");
  return absl::OkStatus();
}

}  // namespace syncline

#include "worker/job/product_choice.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"
#include "common/system/log.h"
#include "kernels/device/device.h"
#include "kernels/device/product_tuner.h"

namespace syncline::worker {

ProductChoice::ProductChoice(Device* gpu, std::string job_id,
                             ProductTuning tuning)
    : gpu_(gpu), job_id_(std::move(job_id)), tuning_(std::move(tuning)) {}

absl::Status ProductChoice::Begin() {
  if (gpu_ != nullptr) tuner_ = gpu_->product_tuner();
  if (!exists()) return absl::OkStatus();
  return tuner_->Follow(ProductTable(tuner_->library()));
}

absl::Status ProductChoice::Follow(absl::string_view text, bool is_chief) {
  if (!exists()) return absl::OkStatus();
  const auto table = ProductTable::FromText(text);
  const absl::Status followed =
      table.ok() ? tuner_->Follow(*table) : table.status();
  if (absl::IsInternal(followed)) return followed;
  if (!followed.ok() && is_chief) {
    LogWarning(
        "the job's algorithms of matrix products are of no use to its chief: "
        "they are chosen anew, and products may end with other last bits than "
        "in the attempt before")
        .Job(job_id_)
        .Status(followed);
    return absl::OkStatus();
  }
  if (!followed.ok()) {
    LogWarning(
        "matrix products are chosen by this worker's own library, and end with "
        "other last bits than the chief's may")
        .Job(job_id_)
        .Field("what_to_do",
               "give all workers of a job the same GPUs and the same version "
               "of cuBLAS")
        .Status(followed);
    return absl::OkStatus();
  }
  if (tuner_->refused() > 0) {
    LogWarning("the library of matrix products refuses the chief's algorithms")
        .Job(job_id_)
        .Field("products", tuner_->refused())
        .Field("library", tuner_->library().name);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ProductChoice::Measure(const GoOnCheck& go_on) {
  if (!exists()) return std::string();
  const ProductTable kept = ReadKept();
  // Without measuring the job still has a table: what another worker's library
  // would choose for itself may differ.
  SYNCLINE_ASSIGN_OR_RETURN(
      const ProductTuner::Report report,
      tuner_->Tune(*gpu_, tuning_.measures ? kept : ProductTable(),
                   {.time_max = tuning_.measures ? tuning_.time_max
                                                 : absl::ZeroDuration(),
                    .go_on = go_on}));
  const ProductTable chosen = tuner_->table();
  if (!tuning_.measures) return chosen.ToText();
  LogInfo("algorithms of matrix products chosen")
      .Job(job_id_)
      .Field("known", report.known)
      .Field("measured", report.measured)
      .Field("other_than_the_librarys", report.changed)
      .Field("not_measured", report.unmeasured.size())
      .Field("seconds", absl::ToDoubleSeconds(report.took));
  if (report.measured > 0) {
    ProductTable measured(chosen.library());
    const std::set<std::string> unmeasured(report.unmeasured.begin(),
                                           report.unmeasured.end());
    for (const auto& [key, algorithm] : chosen.algorithms()) {
      if (!unmeasured.contains(key)) measured.Set(key, algorithm);
    }
    Keep(kept, std::move(measured));
  }
  return chosen.ToText();
}

ProductTable ProductChoice::ReadKept() const {
  if (!tuning_.measures || tuning_.file.empty()) return {};
  const auto text = ReadFile(tuning_.file, ProductTable::kTextBytesMax);
  if (absl::IsNotFound(text.status())) return {};
  auto table = text.ok() ? ProductTable::FromText(*text)
                         : absl::StatusOr<ProductTable>(text.status());
  absl::Status usable = table.status();
  if (usable.ok() && !(table->library() == tuner_->library())) {
    usable = absl::FailedPreconditionError(
        absl::StrCat("it is of ", table->library().name, " on ",
                     table->library().gpu, ", and here are ",
                     tuner_->library().name, " and ", tuner_->library().gpu));
  }
  if (usable.ok()) return *std::move(table);
  LogWarning("kept algorithms of matrix products are not used")
      .Job(job_id_)
      .Field("file", tuning_.file)
      .Field("what_follows",
             "they are measured again, and the file is written "
             "anew")
      .Status(usable);
  return {};
}

void ProductChoice::Keep(const ProductTable& kept, ProductTable chosen) const {
  if (tuning_.file.empty()) return;
  // Those of this job first: where there is no room for more, the others go.
  if (kept.library() == chosen.library()) {
    for (const auto& [key, algorithm] : kept.algorithms()) {
      if (chosen.Find(key) == nullptr) chosen.Set(key, algorithm);
    }
  }
  const absl::Status written =
      WriteFileAtomically(tuning_.file, chosen.ToText());
  if (!written.ok()) {
    LogWarning("algorithms of matrix products are not kept for other jobs")
        .Job(job_id_)
        .Field("file", tuning_.file)
        .Status(written);
  }
}

}  // namespace syncline::worker

#include "common/job/table_spec_validator.h"

#include <cstddef>
#include <iterator>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/job/hybrid_rules.h"
#include "common/job/job_spec_fields.h"
#include "common/job/quorum_validator.h"

namespace syncline {
namespace {

// Ranges are those of proto/job_spec.proto.

constexpr int kTablesMax = 1024;
constexpr uint64_t kBytesMin = 1 << 20;
constexpr uint64_t kBytesMax = uint64_t{1} << 50;
constexpr uint64_t kFilterBytesMin = 4096;
// Sightings are counted in one byte.
constexpr uint32_t kSightingsMax = 255;
constexpr uint32_t kCacheRowsMax = 10'000'000;
constexpr uint64_t kClocksMax = uint64_t{1} << 62;

bool IsTableOptimizer(OptimizerSpec::Kind kind) {
  return FindTableOptimizer(kind) != nullptr;
}

// "SGD, ADAGRAD or ADAM".
std::string TableOptimizerNames() {
  constexpr size_t kCount = std::size(kTableOptimizers);
  std::string names;
  for (size_t i = 0; i < kCount; ++i) {
    if (i > 0) names += i + 1 < kCount ? ", " : " or ";
    names += OptimizerSpec::Kind_Name(kTableOptimizers[i].kind);
  }
  return names;
}

void CheckScheme(const std::string& path, const TableSpec& table,
                 Problems* problems) {
  using R = InitializerRule;
  if (IsOneOf(table.scheme(), {R::HE_UNIFORM, R::HE_NORMAL})) {
    problems->Add(path + ".scheme", R::Scheme_Name(table.scheme()),
                  " is not for tables, whose rows have no inputs; use ZEROS, "
                  "CONSTANT, UNIFORM, NORMAL, XAVIER_UNIFORM or XAVIER_NORMAL");
  }
  if (table.value() != 0 && table.scheme() != R::CONSTANT) {
    problems->Add(path + ".value", "is for CONSTANT only");
  }
  problems->NotNegative(path + ".scale", table.scale());
  if (table.scale() != 0 && IsOneOf(table.scheme(), {R::ZEROS, R::CONSTANT})) {
    problems->Add(path + ".scale", "has no meaning for ZEROS and CONSTANT");
  }
}

void CheckTableOptimizer(const std::string& path, const TableSpec& table,
                         const OptimizerSpec& of_job, Problems* problems) {
  if (!table.has_optimizer()) {
    if (of_job.kind() != OptimizerSpec::KIND_UNSPECIFIED &&
        !IsTableOptimizer(of_job.kind())) {
      problems->Add(path + ".optimizer", "is required, because the job's own, ",
                    OptimizerSpec::Kind_Name(of_job.kind()),
                    ", is not for tables; use ", TableOptimizerNames());
    }
    return;
  }
  const std::string optimizer = path + ".optimizer";
  const OptimizerSpec& own = table.optimizer();
  if (own.kind() == OptimizerSpec::KIND_UNSPECIFIED) {
    problems->Add(optimizer + ".kind", "is required");
    return;
  }
  if (!IsTableOptimizer(own.kind())) {
    problems->Add(optimizer + ".kind", OptimizerSpec::Kind_Name(own.kind()),
                  " is not for tables; use ", TableOptimizerNames());
    return;
  }
  CheckOptimizerFields(optimizer, own, problems);
  for (const auto& [field, given] :
       {std::pair{".clip_value", own.clip_value() != 0},
        std::pair{".clip_norm", own.clip_norm() != 0}}) {
    if (given) {
      problems->Add(optimizer + field,
                    "is for the whole gradient: give it in the job's "
                    "optimizer");
    }
  }
}

void CheckAdmission(const std::string& path, const TableSpec& table,
                    Problems* problems) {
  const AdmissionSpec& admission = table.admission();
  problems->AtMost(path + ".min_sightings", admission.min_sightings(),
                   kSightingsMax);
  if (!(admission.probability() >= 0 && admission.probability() <= 1)) {
    problems->Add(path + ".probability", admission.probability(),
                  " is outside (0, 1]");
  }
  const bool counts = admission.min_sightings() > 1;
  if (counts && admission.probability() != 0) {
    problems->Add(path + ".probability", "not together with min_sightings");
  }
  const uint64_t bytes = admission.filter_bytes();
  if (bytes == 0) return;
  if (!counts) {
    problems->Add(path + ".filter_bytes",
                  "has no meaning without min_sightings > 1");
  } else if (bytes < kFilterBytesMin || bytes > kBytesMax) {
    problems->Add(path + ".filter_bytes", bytes, " is outside ",
                  kFilterBytesMin, "..", kBytesMax);
  } else if (table.memory_bytes() != 0 && bytes > table.memory_bytes() / 2) {
    problems->Add(path + ".filter_bytes", bytes,
                  " is more than half of memory_bytes, ", table.memory_bytes(),
                  ", which it is part of");
  }
}

void CheckExpiry(const std::string& path, const ExpirySpec& expiry,
                 Problems* problems) {
  problems->AtMost(path + ".unseen_clocks", expiry.unseen_clocks(), kClocksMax);
  problems->Seconds(path + ".unseen_seconds", expiry.unseen_seconds());
  problems->NotNegative(path + ".min_score", expiry.min_score());
  if (!(expiry.decay() >= 0 && expiry.decay() <= 1)) {
    problems->Add(path + ".decay", expiry.decay(), " is outside (0, 1]");
  }
  problems->AtMost(path + ".decay_clocks", expiry.decay_clocks(), kClocksMax);
  if (expiry.min_score() > 0) {
    if (expiry.decay_clocks() == 0) {
      problems->Add(path + ".decay_clocks", "is required with min_score");
    }
    return;
  }
  if (expiry.decay() != 0) {
    problems->Add(path + ".decay", "has no meaning without min_score");
  }
  if (expiry.decay_clocks() != 0) {
    problems->Add(path + ".decay_clocks", "has no meaning without min_score");
  }
}

void CheckBytes(const std::string& path, uint64_t bytes, Problems* problems) {
  if (bytes == 0 || (bytes >= kBytesMin && bytes <= kBytesMax)) return;
  problems->Add(path, bytes, " is outside ", kBytesMin, "..", kBytesMax);
}

// Refuses a cache where a worker could not follow its own pushes, or the age of
// others'.
void CheckCacheClocks(const std::string& field, const JobSpec& spec,
                      const TableSpec& table, Problems* problems) {
  const ConsistencySpec& consistency = RowConsistency(spec);
  if (IsSyncOrKin(consistency.mode())) {
    problems->Add(field,
                  "is not for SYNC, where a row that is trained may not be "
                  "older than its clock; use BOUNDED_STALENESS or ASYNC");
  } else if (consistency.mode() == ConsistencySpec::BOUNDED_STALENESS &&
             table.cache_clocks() > consistency.staleness_bound()) {
    problems->Add(field, table.cache_clocks(), " is more than ",
                  RowConsistencyField(spec), ".staleness_bound, ",
                  consistency.staleness_bound());
  }
  const OptimizerSpec::Kind kind = table.has_optimizer()
                                       ? table.optimizer().kind()
                                       : spec.optimizer().kind();
  if (IsTableOptimizer(kind) && kind != OptimizerSpec::SGD) {
    problems->Add(field, "is for SGD only: a worker cannot follow what ",
                  OptimizerSpec::Kind_Name(kind),
                  " makes of the rows that it pushes");
  }
  const float probability = table.admission().probability();
  if (table.admission().min_sightings() > 1 ||
      (probability > 0 && probability < 1)) {
    problems->Add(field,
                  "not together with admission: a worker does not know whether "
                  "its push was admitted");
  }
  if (spec.optimizer().clip_norm() != 0) {
    problems->Add(field, "not together with optimizer.clip_norm");
  }
  const bool scales =
      spec.precision() == FLOAT16 && !spec.loss_scale().has_fixed();
  if (spec.non_finite() == SKIP_STEP || scales) {
    problems->Add(field, "not together with ",
                  scales ? "a dynamic loss_scale" : "non_finite SKIP_STEP",
                  ": a worker does not know which steps were skipped");
  }
}

void CheckCache(const std::string& path, const JobSpec& spec,
                const TableSpec& table, Problems* problems) {
  problems->AtMost(path + ".cache_rows", table.cache_rows(), kCacheRowsMax);
  if (table.cache_rows() == 0) {
    if (table.cache_clocks() != 0) {
      problems->Add(path + ".cache_clocks",
                    "has no meaning without cache_rows");
    }
    return;
  }
  if (table.cache_clocks() != 0) {
    CheckCacheClocks(path + ".cache_clocks", spec, table, problems);
  } else if (!spec.data().has_test()) {
    problems->Add(path + ".cache_rows",
                  "has no effect: without cache_clocks it serves evaluations, "
                  "and there is no data.test");
  }
}

}  // namespace

void CheckTables(const JobSpec& spec, Problems* problems) {
  if (spec.tables_size() > kTablesMax) {
    problems->Add("tables", spec.tables_size(), " are too many, at most ",
                  kTablesMax);
    return;
  }
  absl::flat_hash_map<std::string, std::string> seen;
  for (int i = 0; i < spec.tables_size(); ++i) {
    const TableSpec& table = spec.tables(i);
    const std::string path = Indexed("tables", i);
    problems->NotEmpty(path + ".name", table.name());
    const auto [first, inserted] = seen.emplace(table.name(), path);
    if (!inserted) problems->Add(path + ".name", "repeats ", first->second);
    CheckScheme(path, table, problems);
    CheckTableOptimizer(path, table, spec.optimizer(), problems);
    CheckAdmission(path + ".admission", table, problems);
    CheckExpiry(path + ".expiry", table.expiry(), problems);
    CheckBytes(path + ".memory_bytes", table.memory_bytes(), problems);
    CheckBytes(path + ".disk_bytes", table.disk_bytes(), problems);
    CheckCache(path, spec, table, problems);
  }
}

std::string DecayNote(const JobSpec& spec) {
  for (const TableSpec& table : spec.tables()) {
    const OptimizerSpec& optimizer =
        table.has_optimizer() ? table.optimizer() : spec.optimizer();
    if (!(optimizer.weight_decay() > 0)) continue;
    return absl::StrCat(
        "table '", table.name(),
        "': weight_decay is of the rows that a step has a gradient for; a row "
        "that no sample of a step has does not decay in it, as it would in a "
        "model without tables");
  }
  return "";
}

}  // namespace syncline

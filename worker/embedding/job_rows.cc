#include "worker/embedding/job_rows.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/elastic_validator.h"
#include "common/job/evaluate_validator.h"
#include "common/system/available_memory.h"
#include "common/wire/routing_table.h"
#include "worker/data/formats/csv_table.h"

namespace syncline::worker {
namespace {

// Room for looking up keys of one table: about a message.
constexpr size_t kLookupBytes = 4 << 20;
constexpr size_t kLookupRowsMax = 1 << 14;

absl::Status CheckAgreement(const JobAssignment& assignment,
                            const TrainingGraph& training) {
  bool agree =
      assignment.tables_size() == static_cast<int>(training.tables.size());
  for (int t = 0; agree && t < assignment.tables_size(); ++t) {
    agree = assignment.tables(t).name() == training.tables[t].name &&
            assignment.tables(t).dim() == training.tables[t].dim;
  }
  if (agree) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "its tables are not those of the assignment; are all daemons of one "
      "version?");
}

absl::StatusOr<std::vector<TableMap>> MapsOf(const JobAssignment& assignment) {
  std::vector<TableMap> maps;
  if (!OnlyEvaluates(assignment.spec())) {
    SYNCLINE_ASSIGN_OR_RETURN(const RoutingTable routing,
                              RoutingTable::Create(assignment));
    maps.assign(routing.tables().begin(), routing.tables().end());
    return maps;
  }
  // There are no ps: rows are read from files.
  for (const TableInfo& table : assignment.tables()) {
    SYNCLINE_ASSIGN_OR_RETURN(
        TableMap map, TableMap::Create(table.slots(), /*shard_count=*/1));
    maps.push_back(std::move(map));
  }
  return maps;
}

}  // namespace

// Only what varies in width is padded: libsvm's indices, and csv's lists.
std::optional<int64_t> PaddingOf(const JobSpec& spec, int feed,
                                 int64_t ids_per_sample) {
  const Feed& f = spec.data().feeds(feed);
  const DataSource& source = spec.data().train();
  const bool is_padded =
      source.has_csv() ? IsCsvList(source.csv(), f.field(), ids_per_sample)
                       : source.has_libsvm() && f.field() == "indices";
  return is_padded ? std::optional<int64_t>(f.padding()) : std::nullopt;
}

struct JobRows::Sizes {
  RowBatch::Options trained;
  std::optional<RowBatch::Options> evaluated;
  size_t cached = 0;  // rows, while one cut is evaluated
  size_t kept = 0;    // those of the trainer's TrainingRowCache

  uint64_t bytes() const {
    return 2 * RowBatch::BytesFor(trained) +
           (evaluated ? RowBatch::BytesFor(*evaluated) : 0) +
           RowCache::BytesFor(cached + kept, static_cast<size_t>(trained.dim));
  }
};

absl::StatusOr<std::vector<JobRows::Sizes>> JobRows::SizesOf(
    const JobSpec& spec, const Model& model, const TrainingGraph& training,
    bool evaluates) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<Dims> shapes,
                            model.InferShapes(1));
  std::vector<Sizes> all;
  for (size_t t = 0; t < training.tables.size(); ++t) {
    Sizes sizes;
    sizes.trained.name = training.tables[t].name;
    sizes.trained.dim = training.tables[t].dim;
    sizes.trained.rows = training.tables[t].rows;
    for (const TrainingTable::Lookup& lookup : training.tables[t].lookups) {
      const int64_t ids = ElementCount(shapes[training.feeds[lookup.feed]]);
      sizes.trained.lookups.push_back(
          {.feed = lookup.feed,
           .ids_per_sample = ids,
           .padding = PaddingOf(spec, lookup.feed, ids)});
    }
    const TableSpec& of_table = spec.tables(static_cast<int>(t));
    if (evaluates) {
      sizes.evaluated = sizes.trained;
      sizes.evaluated->samples_max = spec.training().eval_batch_size();
      // Those of a checkpoint are in memory anyway.
      const bool reads_files =
          OnlyEvaluates(spec) || EvaluatesCheckpoints(spec);
      if (!reads_files) sizes.cached = of_table.cache_rows();
    }
    if (of_table.cache_clocks() > 0) sizes.kept = of_table.cache_rows();
    sizes.trained.samples_max = LargestShare(spec);
    sizes.trained.with_gradients = true;
    all.push_back(std::move(sizes));
  }
  return all;
}

absl::StatusOr<uint64_t> JobRowsBytes(const JobSpec& spec, const Model& model,
                                      const TrainingGraph& training,
                                      bool evaluates) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<JobRows::Sizes> all,
                            JobRows::SizesOf(spec, model, training, evaluates));
  uint64_t bytes = 0;
  for (const JobRows::Sizes& sizes : all) bytes += sizes.bytes();
  return bytes;
}

absl::StatusOr<std::shared_ptr<JobRows>> JobRows::Create(
    const JobAssignment& assignment, const Model& model,
    const TrainingGraph& training, bool evaluates) {
  SYNCLINE_RETURN_IF_ERROR(CheckAgreement(assignment, training));
  SYNCLINE_ASSIGN_OR_RETURN(
      const std::vector<Sizes> all,
      SizesOf(assignment.spec(), model, training, evaluates));
  std::shared_ptr<JobRows> rows(new JobRows());
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<TableMap> maps,
                            MapsOf(assignment));
  for (size_t t = 0; t < all.size(); ++t) {
    SYNCLINE_RETURN_IF_ERROR(
        rows->AddTable(static_cast<uint32_t>(t), all[t], maps[t]));
  }
  return rows;
}

absl::Status JobRows::AddTable(uint32_t table, const Sizes& sizes,
                               const TableMap& map) {
  const RowBatch::Options& trained = sizes.trained;
  const int64_t ids =
      std::max(RowBatch::IdsMaxOf(trained),
               sizes.evaluated ? RowBatch::IdsMaxOf(*sizes.evaluated) : 0);
  const uint64_t bytes = sizes.bytes();
  const uint64_t available = AvailableMemoryBytes();
  if (ids > RowBatch::kIdsMax || bytes > available) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "rows of a batch of table \"", trained.name, "\": up to ", ids,
        " ids and ", sizes.cached + sizes.kept, " cached rows take ", bytes,
        " bytes, of which ", available, " are there, and there may be at most ",
        RowBatch::kIdsMax, " ids; use smaller batches or fewer `cache_rows`"));
  }
  if (sizes.evaluated) evaluated_.push_back(Add(table, *sizes.evaluated, map));
  current_.push_back(Add(table, trained, map));
  next_.push_back(Add(table, trained, map));
  caches_.push_back(sizes.cached > 0
                        ? std::make_unique<RowCache>(
                              sizes.cached, static_cast<size_t>(trained.dim),
                              /*clocks=*/0)
                        : nullptr);
  return absl::OkStatus();
}

absl::Span<RowBatch* const> JobRows::lookup() {
  for (size_t t = lookup_.size(); t < current_.size(); ++t) {
    RowBatch::Options options;
    options.name = current_[t]->name();
    options.dim = current_[t]->dim();
    options.samples_max = static_cast<int64_t>(lookup_max(t));
    options.lookups = {{.feed = static_cast<int>(t), .ids_per_sample = 1}};
    lookup_.push_back(
        Add(static_cast<uint32_t>(t), options, current_[t]->map()));
  }
  return lookup_;
}

size_t JobRows::lookup_max(size_t table) const {
  const size_t row_bytes =
      static_cast<size_t>(current_[table]->dim()) * sizeof(float);
  return std::clamp<size_t>(kLookupBytes / row_bytes, 1, kLookupRowsMax);
}

RowBatch* JobRows::Add(uint32_t table, const RowBatch::Options& options,
                       const TableMap& map) {
  tables_.push_back(table);
  owned_.push_back(std::make_unique<RowBatch>(options, map));
  return owned_.back().get();
}

void JobRows::UseRouting(const RoutingTable& routing) {
  for (size_t i = 0; i < owned_.size(); ++i) {
    owned_[i]->UseMap(routing.tables()[tables_[i]]);
  }
}

void Collect(const Batch& batch, absl::Span<RowBatch* const> rows) {
  for (RowBatch* table : rows) table->Collect(batch);
}

}  // namespace syncline::worker

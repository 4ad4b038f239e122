#include "worker/data/dataset.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/job/job_spec_fields.h"
#include "worker/data/formats/criteo_table.h"
#include "worker/data/formats/csv_columns.h"
#include "worker/data/formats/csv_table.h"
#include "worker/data/formats/digits_table.h"
#include "worker/data/formats/idx_table.h"
#include "worker/data/formats/libsvm_table.h"
#include "worker/data/formats/npy_table.h"
#include "worker/data/formats/token_table.h"
#include "worker/data/label_map.h"
#include "worker/data/reading/sample_table.h"

namespace syncline::worker {
namespace {

struct FeedMap {
  int field = 0;           // of the table
  bool is_length = false;  // of that field; else its values
  bool integers = false;
  float scale = 1;
  float offset = 0;
  std::vector<int32_t> order = {};  // of its values; empty: as in the table
};

// How a job's feeds and its label lie over the fields of a table.
struct Mapping {
  std::vector<FieldRequest> fields;  // what the table is asked for
  std::vector<FeedMap> feeds;
  int label = 0;  // its field

  // The field of that name; -1: none.
  int Find(absl::string_view name) const {
    for (size_t i = 0; i < fields.size(); ++i) {
      if (fields[i].name == name) return static_cast<int>(i);
    }
    return -1;
  }
};

FieldRequest LabelRequest(const Label& label, int64_t width) {
  FieldRequest field(LabelField(label));
  field.padded_width = width;
  field.padding = label.ignore();
  field.complete = !label.has_ignore();
  return field;
}

absl::StatusOr<Mapping> MapFields(const DataSpec& data,
                                  absl::Span<const FeedShape> feeds,
                                  int64_t label_width) {
  Mapping mapping;
  for (int i = 0; i < data.feeds_size(); ++i) {
    const Feed& feed = data.feeds(i);
    mapping.feeds.push_back({.field = static_cast<int>(mapping.fields.size()),
                             .is_length = !MeasuredField(feed.field()).empty(),
                             .integers = feeds[i].integers,
                             .scale = feed.scale() == 0 ? 1 : feed.scale(),
                             .offset = feed.offset()});
    if (mapping.feeds.back().is_length) continue;
    FieldRequest field(feed.field());
    field.integers = feeds[i].integers;
    field.padded_width = feeds[i].elements;
    if (field.integers) field.padding = feed.padding();
    mapping.fields.push_back(std::move(field));
  }
  mapping.label = static_cast<int>(mapping.fields.size());
  mapping.fields.push_back(LabelRequest(data.label(), label_width));
  for (int i = 0; i < data.feeds_size(); ++i) {
    if (!mapping.feeds[i].is_length) continue;
    const std::string& field = data.feeds(i).field();
    mapping.feeds[i].field = mapping.Find(MeasuredField(field));
    if (mapping.feeds[i].field >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "no feed reads what \"", field, "\" is to be the length of"));
  }
  return mapping;
}

absl::StatusOr<std::unique_ptr<SampleTable>> LoadTable(
    const DataSource& source, absl::Span<const FieldRequest> fields,
    const DataRoot& data_root, const std::string& work_dir) {
  switch (source.format_case()) {
    case DataSource::kIdx:
      return LoadIdx(source.idx(), fields, data_root);
    case DataSource::kCsv:
      return LoadCsv(source.csv(), fields, data_root);
    case DataSource::kLibsvm:
      return LoadLibsvm(source.libsvm(), fields, data_root);
    case DataSource::kDigits:
      return LoadDigits(source.digits(), fields);
    case DataSource::kCriteo:
      return LoadCriteo(source.criteo(), fields, data_root, work_dir);
    case DataSource::kTokens:
      return LoadTokens(source.tokens(), fields, data_root);
    case DataSource::kNpy:
      return LoadNpy(source.npy(), fields, data_root);
    case DataSource::FORMAT_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("the data source has no format");
}

// All fields whose size does not fit, one per line.
absl::Status CheckWidths(const SampleTable& table, const Mapping& mapping,
                         const DataSpec& data,
                         absl::Span<const FeedShape> feeds,
                         int64_t label_width) {
  std::vector<std::string> problems;
  for (int i = 0; i < data.feeds_size(); ++i) {
    const FeedMap& feed = mapping.feeds[i];
    const int64_t width = feed.is_length ? 1 : table.width(feed.field);
    if (width == feeds[i].elements) continue;
    problems.push_back(absl::StrCat(
        table.Where(feed.field, 0), ": field \"", data.feeds(i).field(),
        "\" has ", width, " values per sample, the graph input \"",
        data.feeds(i).input(), "\" takes ", feeds[i].elements));
  }
  if (table.width(mapping.label) != label_width) {
    problems.push_back(
        absl::StrCat(table.Where(mapping.label, 0), ": label field \"",
                     mapping.fields[mapping.label].name, "\" has ",
                     table.width(mapping.label),
                     " values per sample, the loss takes ", label_width));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

// Fills the feeds' orders. All shapes that do not fit, one per line.
absl::Status OrderValues(const SampleTable& table, const DataSpec& data,
                         absl::Span<const FeedShape> feeds,
                         const SampleDims& label_dims, Mapping* mapping) {
  std::vector<std::string> problems;
  for (int i = 0; i < data.feeds_size(); ++i) {
    FeedMap& feed = mapping->feeds[i];
    if (feed.is_length || feeds[i].dims.empty()) continue;
    auto order =
        FindValueOrder(data.feeds(i), table.dims(feed.field), feeds[i].dims);
    if (order.ok()) {
      feed.order = *std::move(order);
    } else {
      problems.push_back(absl::StrCat(table.Where(feed.field, 0), ": ",
                                      order.status().message()));
    }
  }
  const std::optional<SampleDims> labels = table.dims(mapping->label);
  if (labels.has_value() && !label_dims.empty() &&
      !SameOrder(*labels, label_dims)) {
    problems.push_back(absl::StrCat(
        table.Where(mapping->label, 0), ": label field \"",
        mapping->fields[mapping->label].name, "\" has the shape ",
        DimsText(*labels), " a sample, the loss takes ", DimsText(label_dims)));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

absl::Status CheckLabels(const SampleTable& table, int field,
                         const LabelMap& map) {
  constexpr int64_t kChunk = 4096;
  const int64_t width = table.width(field);
  std::vector<int64_t> samples;
  std::vector<float> values;
  for (int64_t begin = 0; begin < table.size(); begin += kChunk) {
    samples.resize(std::min(kChunk, table.size() - begin));
    std::iota(samples.begin(), samples.end(), begin);
    values.resize(samples.size() * width);
    table.Read(field, samples, 1, 0, values.data());
    for (size_t i = 0; i < values.size(); ++i) {
      const absl::Status checked = map.Check(values[i]);
      if (checked.ok()) continue;
      return Annotate(checked, table.Where(field, begin + i / width));
    }
    table.HasRead(begin, static_cast<int64_t>(samples.size()));
  }
  return absl::OkStatus();
}

// OK if no bucket takes less than a shorter one, and the last takes all that is
// read.
absl::Status CheckBuckets(absl::Span<const BucketShape> buckets,
                          absl::Span<const FeedShape> feeds,
                          int64_t label_width) {
  if (buckets.empty()) return absl::OkStatus();
  const auto compare = [](const BucketShape& a, const BucketShape& b,
                          auto holds) {
    return holds(a.label_width, b.label_width) &&
           absl::c_equal(a.elements, b.elements, holds);
  };
  BucketShape read;
  read.label_width = label_width;
  for (const FeedShape& feed : feeds) read.elements.push_back(feed.elements);
  bool fits = compare(buckets.back(), read, std::equal_to<int64_t>());
  for (size_t i = 1; i < buckets.size(); ++i) {
    fits =
        fits && compare(buckets[i - 1], buckets[i], std::less_equal<int64_t>());
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "data.buckets: the model takes more values or labels of a short sample "
      "than of a longer one");
}

// Leaves the first `width` of each row's `old_width` values.
template <typename T>
void CutRows(size_t old_width, size_t width, std::vector<T>* values) {
  SYNCLINE_CHECK(width <= old_width);
  if (width == old_width) return;
  const size_t rows = values->size() / old_width;
  for (size_t row = 1; row < rows; ++row) {
    const auto begin = values->begin() + row * old_width;
    std::copy(begin, begin + width, values->begin() + row * width);
  }
  values->resize(rows * width);
}

class MappedTable : public Dataset {
 public:
  MappedTable(std::unique_ptr<const SampleTable> table, Mapping mapping,
              LabelMap labels, std::vector<BucketShape> shapes)
      : table_(std::move(table)),
        mapping_(std::move(mapping)),
        labels_(std::move(labels)),
        shapes_(std::move(shapes)) {}

  // Finds each sample's bucket. The last takes what the table's fields are
  // padded to, hence all.
  void FillBuckets() {
    if (shapes_.empty()) return;
    for (int64_t sample = 0; sample < size(); ++sample) {
      size_t bucket = 0;
      while (bucket + 1 < shapes_.size() && !Takes(shapes_[bucket], sample)) {
        ++bucket;
      }
      buckets_.push_back(static_cast<uint8_t>(bucket));
    }
  }

  int64_t size() const override { return table_->size(); }
  absl::Span<const uint8_t> buckets() const override { return buckets_; }

  void Read(absl::Span<const int64_t> indices, Batch* batch) const override {
    batch->size = indices.size();
    batch->feeds.resize(mapping_.feeds.size());
    batch->int_feeds.resize(mapping_.feeds.size());
    for (size_t i = 0; i < mapping_.feeds.size(); ++i) {
      const FeedMap& feed = mapping_.feeds[i];
      if (feed.integers) {
        ReadInts(feed, indices, &batch->int_feeds[i]);
      } else {
        ReadFloats(feed, indices, &batch->feeds[i]);
      }
    }
    batch->label_width = table_->width(mapping_.label);
    batch->labels.resize(indices.size() * batch->label_width);
    table_->Read(mapping_.label, indices, 1, 0, batch->labels.data());
    for (float& value : batch->labels) value = labels_.Map(value);
    CutToBucket(indices, batch);
    CountPadding(indices, batch);
  }
  int64_t CountIds(int feed, int64_t id) const override {
    const FeedMap& of = mapping_.feeds[feed];
    return of.integers && !of.is_length ? table_->CountIds(of.field, id) : 0;
  }
  void WillRead(const SampleRange& samples) const override {
    table_->WillRead(samples.first, samples.count);
  }
  void HasRead(const SampleRange& samples) const override {
    table_->HasRead(samples.first, samples.count);
  }

 private:
  bool Takes(const BucketShape& shape, int64_t sample) const {
    if (table_->length(mapping_.label, sample) > shape.label_width) {
      return false;
    }
    for (size_t i = 0; i < mapping_.feeds.size(); ++i) {
      const FeedMap& feed = mapping_.feeds[i];
      if (feed.is_length) continue;
      if (table_->length(feed.field, sample) > shape.elements[i]) return false;
    }
    return true;
  }

  // Samples were padded for the longest; beyond their bucket there is nothing
  // but padding.
  void CutToBucket(absl::Span<const int64_t> indices, Batch* batch) const {
    if (shapes_.empty()) return;
    uint8_t bucket = 0;
    for (const int64_t i : indices) bucket = std::max(bucket, buckets_[i]);
    const BucketShape& shape = shapes_[bucket];
    batch->length = shape.length;
    for (size_t i = 0; i < mapping_.feeds.size(); ++i) {
      CutRows(shapes_.back().elements[i], shape.elements[i], &batch->feeds[i]);
      CutRows(shapes_.back().elements[i], shape.elements[i],
              &batch->int_feeds[i]);
    }
    CutRows(shapes_.back().label_width, shape.label_width, &batch->labels);
    batch->label_width = shape.label_width;
  }

  void CountPadding(absl::Span<const int64_t> indices, Batch* batch) const {
    int64_t fed = 0;
    batch->value_count = 0;
    for (size_t i = 0; i < mapping_.feeds.size(); ++i) {
      const FeedMap& feed = mapping_.feeds[i];
      fed += static_cast<int64_t>(batch->feeds[i].size() +
                                  batch->int_feeds[i].size());
      for (const int64_t sample : indices) {
        batch->value_count +=
            feed.is_length ? 1 : table_->length(feed.field, sample);
      }
    }
    batch->padding_count = fed - batch->value_count;
  }

  void ReadInts(const FeedMap& feed, absl::Span<const int64_t> indices,
                std::vector<int64_t>* out) const {
    if (feed.is_length) {
      out->clear();
      for (const int64_t i : indices) {
        out->push_back(table_->length(feed.field, i));
      }
      return;
    }
    out->resize(indices.size() * table_->width(feed.field));
    table_->ReadInts(feed.field, indices, out->data());
    ReorderRows<int64_t>(feed.order, out);
  }
  void ReadFloats(const FeedMap& feed, absl::Span<const int64_t> indices,
                  std::vector<float>* out) const {
    if (feed.is_length) {
      out->clear();
      for (const int64_t i : indices) {
        const auto length = static_cast<float>(table_->length(feed.field, i));
        out->push_back(length * feed.scale + feed.offset);
      }
      return;
    }
    out->resize(indices.size() * table_->width(feed.field));
    table_->Read(feed.field, indices, feed.scale, feed.offset, out->data());
    ReorderRows<float>(feed.order, out);
  }

  const std::unique_ptr<const SampleTable> table_;
  const Mapping mapping_;
  const LabelMap labels_;
  const std::vector<BucketShape> shapes_;
  std::vector<uint8_t> buckets_;  // by sample
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::Open(
    const DataSource& source, const DataSpec& data, const DataRoot& data_root,
    absl::Span<const FeedShape> feeds, int64_t class_count, int64_t label_width,
    const std::string& work_dir, absl::Span<const BucketShape> buckets,
    const SampleDims& label_dims) {
  SYNCLINE_CHECK(static_cast<int>(feeds.size()) == data.feeds_size());
  SYNCLINE_CHECK(buckets.size() <= size_t{kLengthBucketsMax});
  SYNCLINE_RETURN_IF_ERROR(CheckBuckets(buckets, feeds, label_width));
  SYNCLINE_ASSIGN_OR_RETURN(Mapping mapping,
                            MapFields(data, feeds, label_width));
  SYNCLINE_ASSIGN_OR_RETURN(
      std::unique_ptr<SampleTable> table,
      LoadTable(source, mapping.fields, data_root, work_dir));
  SYNCLINE_RETURN_IF_ERROR(
      CheckWidths(*table, mapping, data, feeds, label_width));
  SYNCLINE_RETURN_IF_ERROR(
      OrderValues(*table, data, feeds, label_dims, &mapping));
  LabelMap labels(data.label(), class_count);
  SYNCLINE_RETURN_IF_ERROR(CheckLabels(*table, mapping.label, labels));
  auto dataset = std::make_unique<MappedTable>(
      std::move(table), std::move(mapping), std::move(labels),
      std::vector<BucketShape>(buckets.begin(), buckets.end()));
  dataset->FillBuckets();
  return dataset;
}

absl::Status CompareSources(const DataSpec& data, const DataRoot& data_root) {
  if (!data.train().has_csv() || !data.test().has_csv()) {
    return absl::OkStatus();
  }
  std::vector<FieldRequest> fields;
  for (const Feed& feed : data.feeds()) fields.emplace_back(feed.field());
  fields.emplace_back(LabelField(data.label()));
  return CompareColumns(data.train().csv(), data.test().csv(), fields,
                        data_root);
}

}  // namespace syncline::worker

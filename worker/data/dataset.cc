#include "worker/data/dataset.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/data/criteo_table.h"
#include "worker/data/csv_table.h"
#include "worker/data/digits_table.h"
#include "worker/data/idx_table.h"
#include "worker/data/label_map.h"
#include "worker/data/libsvm_table.h"
#include "worker/data/npy_table.h"
#include "worker/data/sample_table.h"
#include "worker/data/token_table.h"

namespace syncline {
namespace {

struct FeedMap {
  bool integers = false;
  float scale = 1;
  float offset = 0;
};

// Fields in the order in which a table is asked for them: by feed index, then
// the label.
std::vector<FieldRequest> RequestedFields(const DataSpec& data,
                                          absl::Span<const FeedShape> feeds,
                                          int64_t label_width) {
  std::vector<FieldRequest> fields;
  for (int i = 0; i < data.feeds_size(); ++i) {
    FieldRequest field(data.feeds(i).field());
    field.integers = feeds[i].integers;
    field.padded_width = feeds[i].elements;
    if (field.integers) field.padding = data.feeds(i).padding();
    fields.push_back(std::move(field));
  }
  const std::string& label = data.label().field();
  fields.emplace_back(label.empty() ? "label" : label);
  fields.back().padded_width = label_width;
  fields.back().complete = !data.label().has_ignore();
  fields.back().padding = data.label().ignore();
  return fields;
}

absl::StatusOr<std::unique_ptr<SampleTable>> LoadTable(
    const DataSource& source, absl::Span<const FieldRequest> fields,
    absl::string_view data_root, const std::string& work_dir) {
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
absl::Status CheckWidths(const SampleTable& table,
                         absl::Span<const FieldRequest> fields,
                         const DataSpec& data,
                         absl::Span<const FeedShape> feeds,
                         int64_t label_width) {
  std::vector<std::string> problems;
  const int label = data.feeds_size();
  for (int i = 0; i < label; ++i) {
    if (table.width(i) == feeds[i].elements) continue;
    problems.push_back(
        absl::StrCat(table.Where(i, 0), ": field \"", fields[i].name, "\" has ",
                     table.width(i), " values per sample, the graph input \"",
                     data.feeds(i).input(), "\" takes ", feeds[i].elements));
  }
  if (table.width(label) != label_width) {
    problems.push_back(
        absl::StrCat(table.Where(label, 0), ": label field \"",
                     fields[label].name, "\" has ", table.width(label),
                     " values per sample, the loss takes ", label_width));
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

class MappedTable : public Dataset {
 public:
  MappedTable(std::unique_ptr<const SampleTable> table, const DataSpec& data,
              absl::Span<const FeedShape> feeds, LabelMap labels)
      : table_(std::move(table)), labels_(std::move(labels)) {
    for (size_t i = 0; i < feeds.size(); ++i) {
      const Feed& feed = data.feeds(static_cast<int>(i));
      feeds_.push_back({feeds[i].integers,
                        feed.scale() == 0 ? 1.0f : feed.scale(),
                        feed.offset()});
    }
  }

  int64_t size() const override { return table_->size(); }

  void Read(absl::Span<const int64_t> indices, Batch* batch) const override {
    batch->size = indices.size();
    batch->feeds.resize(feeds_.size());
    batch->int_feeds.resize(feeds_.size());
    for (size_t i = 0; i < feeds_.size(); ++i) {
      const size_t count = indices.size() * table_->width(i);
      if (feeds_[i].integers) {
        batch->int_feeds[i].resize(count);
        table_->ReadInts(i, indices, batch->int_feeds[i].data());
      } else {
        batch->feeds[i].resize(count);
        table_->Read(i, indices, feeds_[i].scale, feeds_[i].offset,
                     batch->feeds[i].data());
      }
    }
    const int label = feeds_.size();
    batch->label_width = table_->width(label);
    batch->labels.resize(indices.size() * batch->label_width);
    table_->Read(label, indices, 1, 0, batch->labels.data());
    for (float& value : batch->labels) value = labels_.Map(value);
  }
  void WillRead(const SampleRange& samples) const override {
    table_->WillRead(samples.first, samples.count);
  }
  void HasRead(const SampleRange& samples) const override {
    table_->HasRead(samples.first, samples.count);
  }

 private:
  const std::unique_ptr<const SampleTable> table_;
  const LabelMap labels_;
  std::vector<FeedMap> feeds_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::Open(
    const DataSource& source, const DataSpec& data, absl::string_view data_root,
    absl::Span<const FeedShape> feeds, int64_t class_count, int64_t label_width,
    const std::string& work_dir) {
  SYNCLINE_CHECK(static_cast<int>(feeds.size()) == data.feeds_size());
  const std::vector<FieldRequest> fields =
      RequestedFields(data, feeds, label_width);
  SYNCLINE_ASSIGN_OR_RETURN(std::unique_ptr<SampleTable> table,
                            LoadTable(source, fields, data_root, work_dir));
  SYNCLINE_RETURN_IF_ERROR(
      CheckWidths(*table, fields, data, feeds, label_width));
  LabelMap labels(data.label(), class_count);
  SYNCLINE_RETURN_IF_ERROR(CheckLabels(*table, data.feeds_size(), labels));
  return std::make_unique<MappedTable>(std::move(table), data, feeds,
                                       std::move(labels));
}

}  // namespace syncline

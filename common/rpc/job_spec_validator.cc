#include "common/rpc/job_spec_validator.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/rpc/job_spec_fields.h"
#include "common/rpc/job_spec_problems.h"
#include "common/rpc/step_limits.h"
#include "common/rpc/table_spec_validator.h"
#include "google/protobuf/descriptor.h"

namespace syncline {
namespace {

// Ranges are those of proto/job_spec.proto.

namespace pb = google::protobuf;

constexpr uint32_t kCsvColumnsMax = 10'000'000;
constexpr uint32_t kSamplesMax = 10'000'000;
constexpr uint32_t kVocabularyMax = 1u << 24;  // exact in float32
constexpr int64_t kLabelMax = 1 << 24;         // likewise
constexpr uint32_t kLengthMax = 1'048'576;
constexpr uint32_t kTokenStrideMax = (1u << 31) - 1;
constexpr uint32_t kWindowMin = 4096;
constexpr uint32_t kWindowMax = 1 << 30;
constexpr uint32_t kBatchMax = 1'048'576;
constexpr int kFeedRankMax = 8;
constexpr int64_t kSampleElementsMax = (int64_t{1} << 31) - 1;

// "kind: LAMB is not built yet; use SGD".
template <typename Enum>
void NotBuilt(absl::string_view path, Enum value, absl::string_view instead,
              Problems* problems) {
  const auto* name = pb::GetEnumDescriptor<Enum>()->FindValueByNumber(value);
  if (name == nullptr) return;  // reported by CheckFieldValues
  problems->Add(path, name->name(), " is not built yet; use ", instead);
}

void CheckName(const std::string& name, Problems* problems) {
  const bool valid_length = !name.empty() && name.size() <= 64;
  bool valid_characters = true;
  for (char c : name) {
    valid_characters &= absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                        c == '.' || c == '_' || c == '-';
  }
  if (!valid_length || !valid_characters) {
    problems->Add("name", Quote(name.substr(0, 80)),
                  " is not 1..64 characters of [A-Za-z0-9._-]");
  }
}

void CheckRule(const std::string& path, const InitializerRule& rule,
               Problems* problems) {
  problems->NotEmpty(path + ".pattern", rule.pattern());
  if (rule.scheme() == InitializerRule::SCHEME_UNSPECIFIED) {
    problems->Add(path + ".scheme", "is required");
  }
  problems->NotNegative(path + ".scale", rule.scale());
  if (!InitializerRule::Scheme_IsValid(rule.scheme())) return;
  if (rule.value() != 0 && rule.scheme() != InitializerRule::CONSTANT) {
    problems->Add(path + ".value", "is for CONSTANT only");
  }
  if (rule.scale() != 0 &&
      IsOneOf(rule.scheme(),
              {InitializerRule::ZEROS, InitializerRule::CONSTANT})) {
    problems->Add(path + ".scale", "has no meaning for ZEROS and CONSTANT");
  }
}

void CheckModel(const ModelSpec& model, Problems* problems) {
  problems->NotEmpty("model.path", model.path());
  absl::flat_hash_map<std::string, std::string> seen;
  for (int i = 0; i < model.initialize_size(); ++i) {
    const std::string path = Indexed("model.initialize", i);
    CheckRule(path, model.initialize(i), problems);
    const auto [first, inserted] =
        seen.emplace(model.initialize(i).pattern(), path);
    if (!inserted) {
      problems->Add(path + ".pattern", "repeats ", first->second,
                    ", which wins");
    }
  }
  seen.clear();
  for (int i = 0; i < model.freeze_size(); ++i) {
    const std::string path = Indexed("model.freeze", i);
    problems->NotEmpty(path, model.freeze(i));
    const auto [first, inserted] = seen.emplace(model.freeze(i), path);
    if (!inserted) problems->Add(path, "repeats ", first->second);
  }
  seen.clear();
  for (int i = 0; i < model.train_size(); ++i) {
    const std::string path = Indexed("model.train", i);
    problems->NotEmpty(path, model.train(i));
    const auto [first, inserted] = seen.emplace(model.train(i), path);
    if (!inserted) problems->Add(path, "repeats ", first->second);
  }
}

void CheckCount(const std::string& path, uint32_t value, uint32_t max,
                Problems* problems) {
  if (value < 1 || value > max) {
    problems->Add(path, value, " is outside 1..", max);
  }
}

void CheckTokens(const std::string& path, const TokenSource& source,
                 Problems* problems) {
  problems->NotEmpty(path + ".path", source.path());
  if (!TokenSource::Format_IsValid(source.format())) {
    problems->Add(path + ".format", source.format(), " is not a format");
  }
  problems->AtMost(path + ".vocabulary", source.vocabulary(), kVocabularyMax);
  problems->AtMost(path + ".stride", source.stride(), kTokenStrideMax);
  const double end = source.end() == 0 ? 1 : source.end();
  if (!(source.begin() >= 0 && source.begin() < end && end <= 1)) {
    problems->Add(path, "begin ", source.begin(), " and end ", end,
                  " must be 0 <= begin < end <= 1");
  }
}

void CheckArrays(const std::string& path, const NpySource& source,
                 Problems* problems) {
  if (source.arrays().empty()) problems->Add(path, "is required");
  std::set<absl::string_view> fields;
  for (int i = 0; i < source.arrays_size(); ++i) {
    const NpySource::Array& array = source.arrays(i);
    const std::string at = Indexed(path, i);
    problems->NotEmpty(at + ".field", array.field());
    problems->NotEmpty(at + ".path", array.path());
    if (!fields.insert(array.field()).second) {
      problems->Add(at + ".field", Quote(array.field()), " is there already");
    }
  }
}

void CheckDelimiter(const std::string& path, const std::string& delimiter,
                    Problems* problems) {
  if (delimiter.size() > 1) {
    problems->Add(path, Quote(delimiter), " is not one character");
  } else if (absl::StrContains("0123456789+-.eE\"\r\n", delimiter) &&
             !delimiter.empty()) {
    problems->Add(path, Quote(delimiter),
                  " can be part of a number or ends a line");
  }
}

std::string CsvDelimiter(const CsvSource& source) {
  return source.delimiter().empty() ? "," : source.delimiter();
}

void CheckSource(const std::string& path, const DataSource& source,
                 Problems* problems) {
  switch (source.format_case()) {
    case DataSource::kIdx:
      problems->NotEmpty(path + ".idx.images", source.idx().images());
      problems->NotEmpty(path + ".idx.labels", source.idx().labels());
      return;
    case DataSource::kCsv:
      problems->NotEmpty(path + ".csv.path", source.csv().path());
      CheckDelimiter(path + ".csv.delimiter", source.csv().delimiter(),
                     problems);
      CheckDelimiter(path + ".csv.list_delimiter",
                     source.csv().list_delimiter(), problems);
      if (source.csv().list_delimiter() == CsvDelimiter(source.csv())) {
        problems->Add(path + ".csv.list_delimiter",
                      Quote(source.csv().list_delimiter()),
                      " is what is between columns");
      }
      return;
    case DataSource::kLibsvm:
      problems->NotEmpty(path + ".libsvm.path", source.libsvm().path());
      problems->AtMost(path + ".libsvm.dimension", source.libsvm().dimension(),
                       kCsvColumnsMax);
      return;
    case DataSource::kDigits:
      CheckCount(path + ".digits.count", source.digits().count(), kSamplesMax,
                 problems);
      return;
    case DataSource::kCriteo:
      problems->NotEmpty(path + ".criteo.path", source.criteo().path());
      if (const uint32_t window = source.criteo().window_samples();
          window != 0 && (window < kWindowMin || window > kWindowMax)) {
        problems->Add(path + ".criteo.window_samples", window, " is outside ",
                      kWindowMin, "..", kWindowMax);
      }
      return;
    case DataSource::kTokens:
      CheckTokens(path + ".tokens", source.tokens(), problems);
      return;
    case DataSource::kNpy:
      CheckArrays(path + ".npy.arrays", source.npy(), problems);
      return;
    case DataSource::FORMAT_NOT_SET:
      problems->Add(
          path, "needs one of idx, csv, libsvm, digits, criteo, tokens, npy");
      return;
  }
}

// Columns named by "7" or "0:64"; 0 if `field` is neither.
uint32_t ColumnCount(absl::string_view field) {
  const std::vector<absl::string_view> parts = absl::StrSplit(field, ':');
  uint32_t begin = 0;
  uint32_t end = 0;
  if (parts.size() > 2 || !absl::SimpleAtoi(parts[0], &begin)) return 0;
  if (parts.size() == 1) return begin < kCsvColumnsMax ? 1 : 0;
  if (!absl::SimpleAtoi(parts[1], &end)) return 0;
  return begin < end && end <= kCsvColumnsMax ? end - begin : 0;
}

bool IsCriteoField(absl::string_view field) {
  uint32_t column = 0;
  if (absl::ConsumePrefix(&field, "dense:")) {
    return absl::SimpleAtoi(field, &column) && column < 13;
  }
  if (absl::ConsumePrefix(&field, "categories:")) {
    return absl::SimpleAtoi(field, &column) && column < 26;
  }
  return field == "label" || field == "dense" || field == "categories";
}

bool HasArray(const NpySource& source, absl::string_view field) {
  return absl::c_any_of(source.arrays(), [field](const auto& array) {
    return array.field() == field;
  });
}

// What the source itself tells about a field's name; the rest is known when the
// files are read.
void CheckField(const std::string& path, absl::string_view field,
                absl::string_view source_path, const DataSource& source,
                Problems* problems) {
  std::vector<absl::string_view> names = {"image"};
  switch (source.format_case()) {
    case DataSource::kIdx:
    case DataSource::kDigits:
      break;
    case DataSource::kLibsvm:
      names = {"features", "indices", "values"};
      if (field == "features" && source.libsvm().dimension() == 0) {
        problems->Add(path, "'features' needs ", source_path,
                      ".libsvm.dimension of at least 1");
      }
      break;
    case DataSource::kCriteo:
      if (IsCriteoField(field)) return;
      problems->Add(path, Quote(field), " is not a field of ", source_path,
                    ", which has 'label', 'dense', 'dense:0' to 'dense:12', "
                    "'categories' and 'categories:0' to 'categories:25'");
      return;
    case DataSource::kCsv:
      if (!source.csv().has_header() && ColumnCount(field) == 0) {
        problems->Add(path, Quote(field),
                      " is not a column number or range "
                      "(\"7\", \"0:64\"), and ",
                      source_path, ".csv has no header line");
      }
      return;
    case DataSource::kTokens:
      if (field == "tokens" || field == "next") return;
      problems->Add(path, Quote(field), " is not a field of ", source_path,
                    ", which has 'tokens' and 'next'");
      return;
    case DataSource::kNpy:
      if (!HasArray(source.npy(), field)) {
        problems->Add(path, Quote(field), " is not a field of ", source_path,
                      ".npy.arrays");
      }
      return;
    case DataSource::FORMAT_NOT_SET:
      return;
  }
  if (!absl::c_linear_search(names, field) && field != "label") {
    problems->Add(path, Quote(field), " is not a field of ", source_path,
                  ", which has '", absl::StrJoin(names, "', '"),
                  "' and 'label'");
  }
}

// Whether samples may have fewer values of the field than an input takes. Of
// csv the width decides too, which the model knows.
bool MayBePadded(const DataSource& source, const std::string& field) {
  if (!source.has_csv()) return field == "indices";
  return !source.csv().list_delimiter().empty() &&
         !absl::StrContains(field, ':');
}

// A feed that is the length of another field.
void CheckMeasured(const std::string& path, const Feed& feed,
                   const DataSpec& data, Problems* problems) {
  const absl::string_view field = MeasuredField(feed.field());
  if (feed.padding() != 0) problems->Add(path + ".padding", "is for lists");
  if (field == LabelField(data.label()) ||
      absl::c_any_of(data.feeds(), [&](const Feed& f) {
        return f.field() == field && MeasuredField(f.field()).empty();
      })) {
    return;
  }
  problems->Add(path + ".field", Quote(feed.field()),
                " is the length of what a feed or the label reads, but none "
                "reads ",
                Quote(field));
}

// Whether samples may differ in how many values of the field they have.
bool IsList(const DataSource& source, absl::string_view field) {
  if (source.has_libsvm()) return field == "indices" || field == "values";
  return source.has_csv() && !source.csv().list_delimiter().empty() &&
         !absl::StrContains(field, ':') && MeasuredField(field).empty();
}

// How the values of a feed lie; their number is the model's business.
void CheckLayout(const std::string& path, const Feed& feed,
                 const DataSpec& data, Problems* problems) {
  if (feed.reshape().empty() && feed.transpose().empty()) return;
  const std::string first =
      path + (feed.reshape().empty() ? ".transpose" : ".reshape");
  if (!MeasuredField(feed.field()).empty()) {
    problems->Add(first, "is for values; ", Quote(feed.field()),
                  " is one number");
  } else if (IsList(data.train(), feed.field()) ||
             IsList(data.test(), feed.field())) {
    problems->Add(first,
                  "is for fields of which all samples have as many "
                  "values; ",
                  Quote(feed.field()), " is a list");
  }
  if (std::max(feed.reshape_size(), feed.transpose_size()) > kFeedRankMax) {
    problems->Add(first, "has more than ", kFeedRankMax, " dimensions");
    return;
  }
  int64_t elements = 1;
  for (int i = 0; i < feed.reshape_size(); ++i) {
    const int64_t size = feed.reshape(i);
    if (size < 1 || size > kSampleElementsMax / elements) {
      problems->Add(Indexed(path + ".reshape", i), size,
                    " must be at least 1, and all of them together at most ",
                    kSampleElementsMax, " elements");
      return;
    }
    elements *= size;
  }
  const int rank =
      feed.reshape().empty() ? feed.transpose_size() : feed.reshape_size();
  absl::flat_hash_set<uint32_t> seen;
  for (const uint32_t d : feed.transpose()) {
    if (d < static_cast<uint32_t>(rank)) seen.insert(d);
  }
  if (feed.transpose().empty() || (static_cast<int>(seen.size()) == rank &&
                                   feed.transpose_size() == rank)) {
    return;
  }
  problems->Add(path + ".transpose", "[", absl::StrJoin(feed.transpose(), ", "),
                "] must have each of 0..", rank - 1, " once");
}

void CheckFeeds(const DataSpec& data, Problems* problems) {
  if (data.feeds().empty()) {
    problems->Add("data.feeds", "is empty: no graph input gets data");
  }
  absl::flat_hash_map<std::string, std::string> seen;
  for (int i = 0; i < data.feeds_size(); ++i) {
    const std::string path = Indexed("data.feeds", i);
    const Feed& feed = data.feeds(i);
    problems->NotEmpty(path + ".input", feed.input());
    problems->NotEmpty(path + ".field", feed.field());
    const auto [first, inserted] = seen.emplace(feed.input(), path);
    if (!inserted) {
      problems->Add(path + ".input", Quote(feed.input()), " is fed by ",
                    first->second, " already");
    }
    CheckLayout(path, feed, data, problems);
    if (!MeasuredField(feed.field()).empty()) {
      CheckMeasured(path, feed, data, problems);
      continue;
    }
    if (feed.padding() != 0 && !MayBePadded(data.train(), feed.field())) {
      problems->Add(path + ".padding",
                    "is for 'indices' of libsvm and lists of csv "
                    "(csv.list_delimiter, one column) only");
    }
    if (feed.field().empty()) continue;
    CheckField(path + ".field", feed.field(), "data.train", data.train(),
               problems);
    if (data.has_test()) {
      CheckField(path + ".field", feed.field(), "data.test", data.test(),
                 problems);
    }
  }
}

void CheckIgnoredLabel(const JobSpec& spec, Problems* problems) {
  const Label& label = spec.data().label();
  if (!label.has_ignore()) return;
  const auto add = [&](const auto&... message) {
    problems->Add("data.label.ignore", message...);
  };
  if (label.ignore() < -kLabelMax || label.ignore() > kLabelMax) {
    add(label.ignore(), " is outside -", kLabelMax, "..", kLabelMax);
  }
  if (IsOneOf(spec.loss().kind(), {LossSpec::SIGMOID_CROSS_ENTROPY,
                                   LossSpec::MEAN_SQUARED_ERROR})) {
    add("is for SOFTMAX_CROSS_ENTROPY only");
  }
  if (absl::c_linear_search(label.classes(),
                            static_cast<float>(label.ignore()))) {
    add(label.ignore(), " is one of data.label.classes");
  }
}

void CheckLabel(const JobSpec& spec, Problems* problems) {
  const Label& label = spec.data().label();
  const std::string field = LabelField(label);
  CheckField("data.label.field", field, "data.train", spec.data().train(),
             problems);
  if (spec.data().has_test()) {
    CheckField("data.label.field", field, "data.test", spec.data().test(),
               problems);
  }
  CheckIgnoredLabel(spec, problems);
  if (!LossSpec::Kind_IsValid(spec.loss().kind())) return;
  const bool regression = spec.loss().kind() == LossSpec::MEAN_SQUARED_ERROR;
  if (!regression && ColumnCount(field) > 1) {
    problems->Add("data.label.field", Quote(field),
                  " is more than one column; a classification loss takes one");
  }
  const int classes = label.classes_size();
  if (classes == 0) return;
  if (regression) {
    problems->Add("data.label.classes",
                  "has no meaning for "
                  "MEAN_SQUARED_ERROR");
  } else if (spec.loss().kind() == LossSpec::SIGMOID_CROSS_ENTROPY &&
             classes != 2) {
    problems->Add("data.label.classes", classes,
                  " values; SIGMOID_CROSS_ENTROPY has 2 classes");
  } else if (classes < 2) {
    problems->Add("data.label.classes", "needs at least 2 values");
  }
  absl::flat_hash_map<float, int> seen;
  for (int i = 0; i < classes; ++i) {
    if (!seen.emplace(label.classes(i), i).second) {
      problems->Add(Indexed("data.label.classes", i), label.classes(i),
                    " is listed twice");
    }
  }
}

void CheckBuckets(const DataSpec& data, Problems* problems) {
  const LengthBuckets& buckets = data.buckets();
  problems->NotEmpty("data.buckets.dimension", buckets.dimension());
  if (buckets.lengths_size() < 1 ||
      buckets.lengths_size() > kLengthBucketsMax) {
    problems->Add("data.buckets.lengths", buckets.lengths_size(),
                  " lengths, must be 1..", kLengthBucketsMax);
  }
  for (int i = 0; i < buckets.lengths_size(); ++i) {
    const std::string path = Indexed("data.buckets.lengths", i);
    CheckCount(path, buckets.lengths(i), kLengthMax, problems);
    if (i > 0 && buckets.lengths(i) <= buckets.lengths(i - 1)) {
      problems->Add(path, buckets.lengths(i), " does not ascend, after ",
                    buckets.lengths(i - 1));
    }
  }
  const auto check_source = [&](absl::string_view path,
                                const DataSource& source) {
    if (source.format_case() == DataSource::FORMAT_NOT_SET) return;
    if (absl::c_any_of(data.feeds(), [&](const Feed& feed) {
          return IsList(source, feed.field());
        })) {
      return;
    }
    problems->Add("data.buckets", "all samples of ", path,
                  " are of one length: no feed reads a list of csv "
                  "(csv.list_delimiter, one column) or 'indices' or 'values' "
                  "of libsvm");
  };
  check_source("data.train", data.train());
  if (data.has_test()) check_source("data.test", data.test());
}

void CheckData(const JobSpec& spec, Problems* problems) {
  const DataSpec& data = spec.data();
  CheckSource("data.train", data.train(), problems);
  if (data.has_test()) CheckSource("data.test", data.test(), problems);
  CheckFeeds(data, problems);
  CheckLabel(spec, problems);
  if (data.has_buckets()) CheckBuckets(data, problems);
  if (data.sharing() == DataSpec::LEASED) {
    NotBuilt("data.sharing", data.sharing(), "STATIC", problems);
  }
}

// The number of classes, which the model knows, aside.
bool HasMeaning(Metric metric, LossSpec::Kind loss) {
  switch (loss) {
    case LossSpec::MEAN_SQUARED_ERROR:
      return metric == MEAN_SQUARED_ERROR;
    case LossSpec::SIGMOID_CROSS_ENTROPY:
      return metric != TOP5_ACCURACY;
    default:
      return true;
  }
}

void CheckLossAndMetrics(const JobSpec& spec, Problems* problems) {
  const LossSpec::Kind loss = spec.loss().kind();
  if (loss == LossSpec::KIND_UNSPECIFIED) {
    problems->Add("loss.kind", "is required");
  }
  if (spec.metrics_size() > 0 && !spec.data().has_test()) {
    problems->Add("metrics", "nothing is evaluated without data.test");
  }
  bool seen[Metric_ARRAYSIZE] = {};
  for (int i = 0; i < spec.metrics_size(); ++i) {
    const std::string path = Indexed("metrics", i);
    const Metric metric = spec.metrics(i);
    if (!Metric_IsValid(metric)) continue;
    if (metric == METRIC_UNSPECIFIED) {
      problems->Add(path, "METRIC_UNSPECIFIED names no metric");
      continue;
    }
    if (metric == LOSS) {
      problems->Add(path,
                    "LOSS is computed in any case; it is for "
                    "export.best_of only");
      continue;
    }
    if (std::exchange(seen[metric], true)) {
      problems->Add(path, Metric_Name(metric), " is listed twice");
    }
    if (!HasMeaning(metric, loss)) {
      problems->Add(path, Metric_Name(metric), " has no meaning for ",
                    LossSpec::Kind_Name(loss));
    }
  }
}

void CheckExport(const JobSpec& spec, Problems* problems) {
  constexpr char kPath[] = "export.best_of";
  const Metric by = spec.export_().best_of();
  if (by == METRIC_UNSPECIFIED || !Metric_IsValid(by)) return;
  if (!spec.data().has_test()) {
    problems->Add(kPath, "nothing is evaluated without data.test");
  }
  if (spec.tables_size() > 0) {
    problems->Add(kPath,
                  "jobs with tables store their last parameters only; "
                  "leave it out");
  }
  const JobSpec full = WithDefaults(spec);
  if (by != LOSS && spec.data().has_test() &&
      std::find(full.metrics().begin(), full.metrics().end(), by) ==
          full.metrics().end()) {
    problems->Add(kPath, Metric_Name(by),
                  " is not computed; add it to metrics, or use LOSS");
  }
}

void CheckOptimizer(const OptimizerSpec& optimizer, Problems* problems) {
  using O = OptimizerSpec;
  const O::Kind kind = optimizer.kind();
  if (kind == O::KIND_UNSPECIFIED) {
    problems->Add("optimizer.kind", "is required");
    return;  // what else is given cannot be judged without it
  }
  if (kind == O::ROW_WISE_ADAGRAD) {
    problems->Add("optimizer.kind",
                  "ROW_WISE_ADAGRAD is for tables only; name it in "
                  "tables[].optimizer");
    return;
  }
  CheckOptimizerFields("optimizer", optimizer, problems);
  if (optimizer.clip_value() != 0 && optimizer.clip_norm() != 0) {
    problems->Add("optimizer.clip_norm", "not together with clip_value");
  }
}

void CheckLearningRate(const LearningRateSpec& rate, Problems* problems) {
  using L = LearningRateSpec;
  const L::Schedule schedule = rate.schedule();
  problems->Positive("learning_rate.base", rate.base());
  if (!L::Schedule_IsValid(schedule)) return;
  const auto unread = [&](absl::string_view path, bool given, bool read) {
    if (given && !read) {
      problems->Add(path, "has no meaning for ", L::Schedule_Name(schedule));
    }
  };
  const bool step = schedule == L::STEP;
  unread("learning_rate.step_clocks", rate.step_clocks() != 0, step);
  unread("learning_rate.gamma", rate.gamma() != 0, step);
  unread("learning_rate.warmup_clocks", rate.warmup_clocks() != 0,
         ReadsWarmup(schedule));
  unread("learning_rate.total_clocks", rate.total_clocks() != 0,
         ReadsTotal(schedule));
  unread("learning_rate.start", rate.has_start(), ReadsStart(schedule));
  unread("learning_rate.final", rate.has_final(), ReadsFinal(schedule));
  if (step && rate.step_clocks() <= 0) {
    problems->Add("learning_rate.step_clocks", rate.step_clocks(),
                  " must be > 0");
  }
  if (step && !(rate.gamma() >= 0 && rate.gamma() <= 1)) {
    problems->Add("learning_rate.gamma", rate.gamma(), " is outside (0, 1]");
  }
  problems->NotNegative("learning_rate.warmup_clocks", rate.warmup_clocks());
  problems->NotNegative("learning_rate.total_clocks", rate.total_clocks());
  if (ReadsWarmup(schedule) && ReadsTotal(schedule) &&
      rate.total_clocks() > 0 && rate.warmup_clocks() >= rate.total_clocks()) {
    problems->Add("learning_rate.warmup_clocks", rate.warmup_clocks(),
                  " must be less than total_clocks, ", rate.total_clocks());
  }
  const auto below_base = [&](absl::string_view path, float value) {
    problems->NotNegative(path, value);
    if (value > rate.base()) {
      problems->Add(path, value, " is above learning_rate.base, ", rate.base());
    }
  };
  if (rate.has_start()) below_base("learning_rate.start", rate.start());
  if (rate.has_final()) below_base("learning_rate.final", rate.final());
  if (schedule == L::RANGE_TEST && rate.has_start() && rate.start() == 0) {
    problems->Add("learning_rate.start",
                  "must be > 0 for RANGE_TEST, which "
                  "grows by a constant factor");
  }
}

void CheckConsistency(const JobSpec& spec, Problems* problems) {
  using C = ConsistencySpec;
  const ConsistencySpec& consistency = spec.consistency();
  if (!IsOneOf(consistency.mode(), {C::MODE_UNSPECIFIED, C::SYNC,
                                    C::BOUNDED_STALENESS, C::ASYNC})) {
    NotBuilt("consistency.mode", consistency.mode(),
             "SYNC, BOUNDED_STALENESS or ASYNC", problems);
  }
  if (spec.optimizer().kind() == OptimizerSpec::LAMB &&
      IsOneOf(consistency.mode(), {C::BOUNDED_STALENESS, C::ASYNC})) {
    problems->Add("optimizer.kind",
                  "LAMB is for SYNC only: its trust ratio is of whole tensors "
                  "at one clock; use ADAMW");
  }
  if (spec.training().sync_batch_statistics() &&
      IsOneOf(consistency.mode(), {C::BOUNDED_STALENESS, C::ASYNC})) {
    problems->Add("training.sync_batch_statistics",
                  "is for SYNC only: in other modes workers do not compute the "
                  "same step at the same time");
  }
  if (consistency.staleness_bound() != 0 &&
      C::Mode_IsValid(consistency.mode()) &&
      consistency.mode() != C::BOUNDED_STALENESS) {
    problems->Add("consistency.staleness_bound",
                  "is for BOUNDED_STALENESS only");
  }
  problems->AtMost("consistency.staleness_bound", consistency.staleness_bound(),
                   1'000'000);
}

void CheckWhatIsNotBuilt(const JobSpec& spec, Problems* problems) {
  if (spec.strategy() > PARAMETER_SERVER) {
    NotBuilt("strategy", spec.strategy(), "PARAMETER_SERVER", problems);
  }
  if (spec.precision() > FLOAT32) {
    NotBuilt("precision", spec.precision(), "FLOAT32", problems);
  }
  if (spec.durability() > CHECKPOINT) {
    NotBuilt("durability", spec.durability(), "CHECKPOINT", problems);
  }
}

void CheckSizes(const JobSpec& spec, Problems* problems) {
  const TrainingSpec& training = spec.training();
  problems->AtMost("training.epochs", training.epochs(), 1'000'000);
  problems->AtMost("training.max_clocks", training.max_clocks(),
                   uint64_t{1} << 62);
  problems->AtMost("training.batch_size", training.batch_size(), kBatchMax);
  problems->AtMost("training.eval_batch_size", training.eval_batch_size(),
                   kBatchMax);
  problems->AtMost("training.micro_batches", training.micro_batches(),
                   WithDefaults(spec).training().batch_size());
  problems->AtMost("training.recompute_segments", training.recompute_segments(),
                   1024);
  problems->AtMost("training.threads", training.threads(), 1024);
  problems->AtMost("resources.workers", spec.resources().workers(), 1024);
  problems->AtMost("resources.ps", spec.resources().ps(), 1024);
  const double step_timeout = spec.limits().step_timeout_seconds();
  problems->NotNegative("limits.step_timeout_seconds", step_timeout);
  if ((step_timeout > 0 && step_timeout < kStepTimeoutSecondsMin) ||
      step_timeout > kStepTimeoutSecondsMax) {
    problems->Add("limits.step_timeout_seconds", step_timeout,
                  " is out of range, must be ", kStepTimeoutSecondsMin, " to ",
                  kStepTimeoutSecondsMax, ", or 0 for 60");
  }
  // Beyond 1e9 s a duration no longer has nanoseconds; nobody waits that long.
  problems->Seconds("limits.max_seconds", spec.limits().max_seconds());
}

}  // namespace

void CheckOptimizerFields(const std::string& path,
                          const OptimizerSpec& optimizer, Problems* problems) {
  using O = OptimizerSpec;
  // A field that the kind does not read is a mistake, not a wish to ignore.
  const auto only_for = [&](absl::string_view field, bool given,
                            std::initializer_list<O::Kind> kinds) {
    if (!given || IsOneOf(optimizer.kind(), kinds)) return;
    if (!O::Kind_IsValid(optimizer.kind())) return;  // that is said elsewhere
    problems->Add(absl::StrCat(path, ".", field), "has no meaning for ",
                  O::Kind_Name(optimizer.kind()), ", only for ",
                  absl::StrJoin(kinds, ", ", [](std::string* out, O::Kind k) {
                    absl::StrAppend(out, O::Kind_Name(k));
                  }));
  };
  only_for("momentum", optimizer.has_momentum(),
           {O::MOMENTUM, O::NESTEROV, O::RMSPROP});
  only_for("beta1", optimizer.has_beta1(), {O::ADAM, O::ADAMW, O::LAMB});
  only_for("beta2", optimizer.has_beta2(), {O::ADAM, O::ADAMW, O::LAMB});
  only_for("epsilon", optimizer.has_epsilon(),
           {O::ADAM, O::ADAMW, O::LAMB, O::RMSPROP, O::ADAGRAD,
            O::ROW_WISE_ADAGRAD});
  only_for("initial_accumulator", optimizer.has_initial_accumulator(),
           {O::ADAGRAD, O::ROW_WISE_ADAGRAD, O::FTRL});
  only_for("decay", optimizer.has_decay(), {O::RMSPROP});
  only_for("centered", optimizer.centered(), {O::RMSPROP});
  only_for("l1", optimizer.l1() != 0, {O::FTRL});
  only_for("l2", optimizer.l2() != 0, {O::FTRL});
  only_for("learning_rate_power", optimizer.has_learning_rate_power(),
           {O::FTRL});
  problems->UnitInterval(path + ".momentum", optimizer.momentum());
  problems->UnitInterval(path + ".beta1", optimizer.beta1());
  problems->UnitInterval(path + ".beta2", optimizer.beta2());
  problems->UnitInterval(path + ".decay", optimizer.decay());
  if (optimizer.has_epsilon()) {
    problems->Positive(path + ".epsilon", optimizer.epsilon());
  }
  problems->NotNegative(path + ".initial_accumulator",
                        optimizer.initial_accumulator());
  problems->NotNegative(path + ".weight_decay", optimizer.weight_decay());
  problems->NotNegative(path + ".clip_value", optimizer.clip_value());
  problems->NotNegative(path + ".clip_norm", optimizer.clip_norm());
  problems->NotNegative(path + ".l1", optimizer.l1());
  problems->NotNegative(path + ".l2", optimizer.l2());
  if (!(optimizer.learning_rate_power() >= -1 &&
        optimizer.learning_rate_power() <= 0)) {
    problems->Add(path + ".learning_rate_power",
                  optimizer.learning_rate_power(), " is outside [-1, 0]");
  }
}

std::vector<std::string> ValidateJobSpec(const JobSpec& spec) {
  std::vector<std::string> list;
  CheckFieldValues(spec, &list);
  Problems problems(&list);
  CheckName(spec.name(), &problems);
  CheckModel(spec.model(), &problems);
  CheckData(spec, &problems);
  CheckLossAndMetrics(spec, &problems);
  CheckExport(spec, &problems);
  CheckOptimizer(spec.optimizer(), &problems);
  CheckLearningRate(spec.learning_rate(), &problems);
  CheckConsistency(spec, &problems);
  CheckTables(spec, &problems);
  CheckWhatIsNotBuilt(spec, &problems);
  CheckSizes(spec, &problems);
  return list;
}

absl::Status ProblemsToStatus(const std::vector<std::string>& problems) {
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

}  // namespace syncline

#include "common/job/data_spec_validator.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/job/job_spec_fields.h"

namespace syncline {
namespace {

// Ranges are those of proto/job_spec.proto.

constexpr uint32_t kCsvColumnsMax = 10'000'000;
constexpr uint32_t kSamplesMax = 10'000'000;
constexpr uint32_t kVocabularyMax = 1u << 24;  // exact in float32
constexpr int64_t kLabelMax = 1 << 24;         // likewise
constexpr uint32_t kLengthMax = 1'048'576;
constexpr uint32_t kTokenStrideMax = (1u << 31) - 1;
constexpr uint32_t kWindowMin = 4096;
constexpr uint32_t kWindowMax = 1 << 30;
constexpr int kFeedRankMax = 8;
constexpr int64_t kSampleElementsMax = (int64_t{1} << 31) - 1;

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
      problems->Add(at + ".field", QuoteText(array.field()),
                    " is there already");
    }
  }
}

void CheckDelimiter(const std::string& path, const std::string& delimiter,
                    Problems* problems) {
  if (delimiter.size() > 1) {
    problems->Add(path, QuoteText(delimiter), " is not one character");
  } else if (absl::StrContains("0123456789+-.eE\"\r\n", delimiter) &&
             !delimiter.empty()) {
    problems->Add(path, QuoteText(delimiter),
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
                      QuoteText(source.csv().list_delimiter()),
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

// A field's name against what the source's specification says of it; the rest
// is known when the files are read.
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
      problems->Add(path, QuoteText(field), " is not a field of ", source_path,
                    ", which has 'label', 'dense', 'dense:0' to 'dense:12', "
                    "'categories' and 'categories:0' to 'categories:25'");
      return;
    case DataSource::kCsv:
      if (!source.csv().has_header() && ColumnCount(field) == 0) {
        problems->Add(path, QuoteText(field),
                      " is not a column number or range "
                      "(\"7\", \"0:64\"), and ",
                      source_path, ".csv has no header line");
      }
      return;
    case DataSource::kTokens:
      if (field == "tokens" || field == "next") return;
      problems->Add(path, QuoteText(field), " is not a field of ", source_path,
                    ", which has 'tokens' and 'next'");
      return;
    case DataSource::kNpy:
      if (!HasArray(source.npy(), field)) {
        problems->Add(path, QuoteText(field), " is not a field of ",
                      source_path, ".npy.arrays");
      }
      return;
    case DataSource::FORMAT_NOT_SET:
      return;
  }
  if (!absl::c_linear_search(names, field) && field != "label") {
    problems->Add(path, QuoteText(field), " is not a field of ", source_path,
                  ", which has '", absl::StrJoin(names, "', '"),
                  "' and 'label'");
  }
}

// Samples may have fewer values of the field than an input takes. Of csv the
// width decides too, which the model knows.
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
  problems->Add(path + ".field", QuoteText(feed.field()),
                " is the length of what a feed or the label reads, but none "
                "reads ",
                QuoteText(field));
}

// How the values of a feed lie; their number is the model's business.
void CheckLayout(const std::string& path, const Feed& feed,
                 const DataSpec& data, Problems* problems) {
  if (feed.reshape().empty() && feed.transpose().empty()) return;
  const std::string first =
      path + (feed.reshape().empty() ? ".transpose" : ".reshape");
  if (!MeasuredField(feed.field()).empty()) {
    problems->Add(first, "is for values; ", QuoteText(feed.field()),
                  " is one number");
  } else if (IsListField(data.train(), feed.field()) ||
             IsListField(data.test(), feed.field())) {
    problems->Add(first,
                  "is for fields of which all samples have as many "
                  "values; ",
                  QuoteText(feed.field()), " is a list");
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
      problems->Add(path + ".input", QuoteText(feed.input()), " is fed by ",
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
  // Labels are floats: one that is read as 2^24 may have been 2^24 + 1.
  if (label.ignore() <= -kLabelMax || label.ignore() >= kLabelMax) {
    add(label.ignore(), " is outside -", kLabelMax - 1, "..", kLabelMax - 1);
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
    problems->Add("data.label.field", QuoteText(field),
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
    if (std::fabs(label.classes(i)) >= static_cast<float>(kLabelMax)) {
      problems->Add(Indexed("data.label.classes", i), label.classes(i),
                    ": labels are float32, which from 2^24 on does not tell "
                    "neighbouring integers apart; number the classes from 0 "
                    "in the data");
    }
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
          return IsListField(source, feed.field());
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

}  // namespace

void CheckData(const JobSpec& spec, Problems* problems) {
  const DataSpec& data = spec.data();
  CheckSource("data.train", data.train(), problems);
  if (data.has_test()) CheckSource("data.test", data.test(), problems);
  CheckFeeds(data, problems);
  CheckLabel(spec, problems);
  if (data.has_buckets()) CheckBuckets(data, problems);
}

std::string OffsetNote(const JobSpec& spec) {
  // Float32 numbers near it are 1/128 apart.
  constexpr float kLarge = 1 << 16;
  if (spec.data().train().has_npy()) return "";
  for (int i = 0; i < spec.data().feeds_size(); ++i) {
    const float offset = std::abs(spec.data().feeds(i).offset());
    if (!(offset > kLarge)) continue;
    const float apart = std::nextafter(offset, 2 * offset) - offset;
    return absl::StrCat(
        "data.feeds[", i,
        "].offset is added to values that are float32, of "
        "which those near ",
        offset, " are ", apart,
        " apart: what is between is lost before. Subtract it in the file, or "
        "bring the values as .npy files of int64 or float64");
  }
  return "";
}

bool IsListField(const DataSource& source, absl::string_view field) {
  if (source.has_libsvm()) return field == "indices" || field == "values";
  return source.has_csv() && !source.csv().list_delimiter().empty() &&
         !absl::StrContains(field, ':') && MeasuredField(field).empty();
}

}  // namespace syncline

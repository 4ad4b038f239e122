#include "worker/data/formats/csv_columns.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "worker/data/reading/input_file.h"
#include "worker/data/reading/text_input.h"

namespace syncline::worker {
namespace {

constexpr size_t kColumnsMax = 10'000'000;

// The first names of a header, for messages.
std::string NamesText(const std::vector<std::string>& header) {
  constexpr size_t kShownBytes = 96;
  std::string text;
  for (size_t i = 0; i < header.size(); ++i) {
    if (text.size() > kShownBytes) {
      return absl::StrCat(text, " ... (", header.size(), " columns)");
    }
    absl::StrAppend(&text, i == 0 ? "" : ", ", QuotedStart(header[i]));
  }
  return text;
}

// Parses "4" or "0:64".
bool ParseRange(absl::string_view text, ColumnRange* range) {
  const std::vector<absl::string_view> ends = absl::StrSplit(text, ':');
  const auto parse = [](absl::string_view s, int64_t* out) {
    return !s.empty() && std::all_of(s.begin(), s.end(), absl::ascii_isdigit) &&
           absl::SimpleAtoi(s, out);
  };
  if (ends.size() > 2 || !parse(ends[0], &range->begin)) return false;
  range->end = range->begin;
  if (ends.size() == 1) return ++range->end > 0;
  return parse(ends[1], &range->end);
}

// The column of this name; -1: there is none.
int64_t ColumnNamed(const Schema& schema, absl::string_view name) {
  const auto& header = schema.header;
  const auto named = std::find(header.begin(), header.end(), name);
  return named == header.end() ? -1 : named - header.begin();
}

// Refuses an ambiguous field: it gives the numbers of columns, but other
// columns have these numbers as their names.
absl::Status CheckMeaning(const std::string& field, const Schema& schema) {
  ColumnRange range;
  if (schema.header.empty() || !ParseRange(field, &range) ||
      range.begin >= range.end || range.end > schema.column_count) {
    return absl::OkStatus();
  }
  const std::string first = absl::StrCat(range.begin);
  const std::string last = absl::StrCat(range.end - 1);
  const int64_t named_first = ColumnNamed(schema, first);
  const int64_t named_last = ColumnNamed(schema, last);
  if (named_first < 0 || named_last < 0 || named_first == range.begin) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "field \"", field, "\" may be column numbers, from 0, or names, and ",
      "these differ: column ", named_first, " is named \"", first, "\"",
      first == last ? ""
                    : absl::StrCat(", column ", named_last, " \"", last, "\""),
      ". Give the columns of the header names that are no numbers"));
}

// True if the columns are numbers that no header has: with a fraction, an
// exponent or a sign, or the same one twice. Years and the 0, 1, 2 ... of
// pandas are names.
bool ReadsLikeSample(absl::Span<const std::string> names) {
  if (names.size() < 2) return false;
  bool is_name = true;
  for (const std::string& name : names) {
    if (!ParseNumber(name).ok()) return false;
    is_name &= absl::c_all_of(name, absl::ascii_isdigit);
  }
  std::vector<std::string> sorted(names.begin(), names.end());
  absl::c_sort(sorted);
  return !is_name || absl::c_adjacent_find(sorted) != sorted.end();
}

// A header, and the file that it is of.
struct Header {
  std::string file;
  Schema schema;
};

// Nothing: there is no header, or none that can be read.
std::optional<Header> ReadHeader(const CsvSource& source,
                                 const DataRoot& data_root) {
  if (!source.has_header()) return std::nullopt;
  const auto files = FindFiles(source.path(), data_root);
  if (!files.ok()) return std::nullopt;
  auto reader = LineReader::Open(files->front());
  if (!reader.ok()) return std::nullopt;
  absl::string_view line;
  while (true) {
    const absl::StatusOr<bool> more = reader->Next(&line);
    if (!more.ok() || !*more) return std::nullopt;
    if (!IsBlankLine(line, CsvDelimiter(source))) break;
  }
  std::vector<Column> columns;
  if (!SplitColumns(line, CsvDelimiter(source), &columns).ok()) {
    return std::nullopt;
  }
  auto names = HeaderNames(columns);
  if (!names.ok()) return std::nullopt;
  const auto count = static_cast<int64_t>(names->size());
  return Header{.file = reader->path(),
                .schema = {.header = *std::move(names), .column_count = count}};
}

// The names of a header, to be found in one step: there may be millions.
using NameSet = absl::flat_hash_set<absl::string_view>;

// The first column of the range whose name stands elsewhere in the other
// header, which has `test_names`; -1: none.
int64_t FirstMoved(const ColumnRange& range, const Schema& train,
                   const Schema& test, const NameSet& test_names) {
  for (int64_t i = range.begin; i < range.end; ++i) {
    const std::string& name = train.header[i];
    if (test.header[i] != name && test_names.contains(name)) return i;
  }
  return -1;
}

}  // namespace

// Cuts a line into columns. Errors: InvalidArgument "POSITION: problem", with
// the position from 1.
absl::Status SplitColumns(absl::string_view line, char delimiter,
                          std::vector<Column>* columns) {
  columns->clear();
  size_t begin = 0;
  while (true) {
    size_t end;
    if (begin < line.size() && line[begin] == '"') {
      size_t close = line.find('"', begin + 1);
      while (close != line.npos && close + 1 < line.size() &&
             line[close + 1] == '"') {
        close = line.find('"', close + 2);
      }
      end = close == line.npos ? line.npos : close + 1;
      if (end == line.npos || (end < line.size() && line[end] != delimiter)) {
        return absl::InvalidArgumentError(absl::StrCat(
            begin + 1,
            ": a column in quotes must end with a quote, on the same line and "
            "right before the delimiter"));
      }
      columns->push_back({line.substr(begin + 1, close - begin - 1),
                          static_cast<int64_t>(begin) + 1});
    } else {
      end = std::min(line.find(delimiter, begin), line.size());
      columns->push_back(
          {line.substr(begin, end - begin), static_cast<int64_t>(begin)});
    }
    if (end == line.size()) return absl::OkStatus();
    if (columns->size() == kColumnsMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(begin + 1, ": more than ", kColumnsMax, " columns"));
    }
    begin = end + 1;
  }
}

bool IsBlankLine(absl::string_view line, char delimiter) {
  return absl::StripAsciiWhitespace(line).empty() &&
         !absl::StrContains(line, delimiter);
}

char CsvDelimiter(const CsvSource& source) {
  return source.delimiter().empty() ? ',' : source.delimiter()[0];
}

// Advice if `line` is one column for want of its delimiter: the field to set.
// Empty: it is not.
std::string DelimiterHint(absl::string_view line, char delimiter,
                          int64_t column_count) {
  if (column_count > 1) return "";
  for (const char other : {';', '\t', ',', '|', ' '}) {
    if (other == delimiter || !absl::StrContains(line, other)) continue;
    return absl::StrCat("; the line has no \"",
                        absl::CEscape(std::string(1, delimiter)),
                        "\", so perhaps csv.delimiter should be \"",
                        absl::CEscape(std::string(1, other)), "\"");
  }
  return "";
}

absl::StatusOr<std::vector<std::string>> HeaderNames(
    absl::Span<const Column> columns) {
  std::vector<std::string> names;
  names.reserve(columns.size());
  for (const Column& column : columns) {
    names.push_back(absl::StrReplaceAll(absl::StripAsciiWhitespace(column.text),
                                        {{"\"\"", "\""}}));
  }
  if (ReadsLikeSample(names)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has_header says that this line names the columns, but it reads like a "
        "sample: ",
        NamesText(names), ". Set has_header: false if it is one"));
  }
  return names;
}

absl::StatusOr<ColumnRange> ResolveField(const std::string& field,
                                         const Schema& schema) {
  SYNCLINE_RETURN_IF_ERROR(CheckMeaning(field, schema));
  const auto& header = schema.header;
  const auto named = std::find(header.begin(), header.end(), field);
  if (named != header.end()) {
    if (std::find(named + 1, header.end(), field) != header.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("two columns are named \"", field, "\""));
    }
    const int64_t column = named - header.begin();
    return ColumnRange{column, column + 1};
  }
  ColumnRange range;
  if (!ParseRange(field, &range)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no field \"", field, "\": ",
        header.empty()
            ? "without a header line (has_header) fields are column numbers, "
              "\"4\" or \"0:64\""
            : absl::StrCat("the columns are ", NamesText(header))));
  }
  if (range.begin >= range.end || range.end > schema.column_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("no field \"", field, "\": there are ",
                     schema.column_count, " columns, 0..",
                     schema.column_count - 1, ", and a range is half-open"));
  }
  return range;
}

absl::Status CompareColumns(const CsvSource& train, const CsvSource& test,
                            absl::Span<const FieldRequest> fields,
                            const DataRoot& data_root) {
  const std::optional<Header> a = ReadHeader(train, data_root);
  const std::optional<Header> b = ReadHeader(test, data_root);
  if (!a.has_value() || !b.has_value()) return absl::OkStatus();
  const NameSet test_names(b->schema.header.begin(), b->schema.header.end());
  std::vector<std::string> problems;
  for (const FieldRequest& field : fields) {
    if (ColumnNamed(a->schema, field.name) >= 0) continue;  // by its name
    const auto range = ResolveField(field.name, a->schema);
    if (!range.ok() || range->end > b->schema.column_count) continue;
    const int64_t column = FirstMoved(*range, a->schema, b->schema, test_names);
    if (column < 0) continue;
    problems.push_back(absl::StrCat(
        "field \"", field.name,
        "\" means other columns here than in data.train: ", "column ", column,
        " is ", QuotedStart(a->schema.header[column]), " in ", a->file, " and ",
        QuotedStart(b->schema.header[column]), " in ", b->file,
        ". Name the columns in the job, or write both files in one order"));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

}  // namespace syncline::worker

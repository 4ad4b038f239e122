#ifndef SYNCLINE_WORKER_DATA_FORMATS_CSV_COLUMNS_H_
#define SYNCLINE_WORKER_DATA_FORMATS_CSV_COLUMNS_H_

// The columns of a CSV file: its lines cut at the delimiter, its header, and
// which columns a field of a job means.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/job_spec.pb.h"
#include "worker/data/reading/data_root.h"
#include "worker/data/reading/sample_table.h"

namespace syncline::worker {

struct Column {
  absl::string_view text;  // without the quotes around it
  int64_t position = 0;    // of its first character in the line, from 0
};

// Cuts a line into columns. Errors: InvalidArgument "POSITION: problem", with
// the position from 1.
absl::Status SplitColumns(absl::string_view line, char delimiter,
                          std::vector<Column>* columns);

// The delimiter of a source; comma if it names none.
char CsvDelimiter(const CsvSource& source);

// True for a line that is none of the data. Tabs or blanks that stand between
// empty columns make a line.
bool IsBlankLine(absl::string_view line, char delimiter);

// Advice if `line` is one column for want of its delimiter: the field to set.
// Empty: it is not.
std::string DelimiterHint(absl::string_view line, char delimiter,
                          int64_t column_count);

// The names of the columns of a header line. Errors: InvalidArgument: it reads
// like a sample, because all columns are numbers as no one names columns.
absl::StatusOr<std::vector<std::string>> HeaderNames(
    absl::Span<const Column> columns);

// Columns [begin, end), from 0.
struct ColumnRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// The columns, as the first line of the first file says.
struct Schema {
  std::vector<std::string> header;  // empty without a header line
  int64_t column_count = 0;
};

// The columns that `field` means. Errors: InvalidArgument: there are none, or
// it may mean several.
absl::StatusOr<ColumnRange> ResolveField(const std::string& field,
                                         const Schema& schema);

// OK unless fields, by the numbers of columns, mean other columns in one source
// than in the other, by the names in both headers. Reads the first line of the
// first file of each; what is wrong with these is LoadCsv's to say.
// Errors: InvalidArgument, naming both files, a line a field.
absl::Status CompareColumns(const CsvSource& train, const CsvSource& test,
                            absl::Span<const FieldRequest> fields,
                            const DataRoot& data_root);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_FORMATS_CSV_COLUMNS_H_

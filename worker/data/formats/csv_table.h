#ifndef SYNCLINE_WORKER_DATA_FORMATS_CSV_TABLE_H_
#define SYNCLINE_WORKER_DATA_FORMATS_CSV_TABLE_H_

#include <memory>

#include "proto/job_spec.pb.h"
#include "worker/data/reading/memory_budget.h"
#include "worker/data/reading/sample_table.h"

namespace syncline::worker {

// Loads text with one sample per line and one number per column. A field is a
// column of that name (with a header line), or a column number "4", or a
// half-open range of numbers "0:64", from 0. Columns that no field names may
// hold anything; those that are named are kept as float32, or as int64 where
// they are asked for as integers: 4 or 8 bytes per value.
//
// With a list delimiter a field that is one column and feeds several elements a
// sample is a list: as long as it is in each line, padded when it is read.
//
// Blank lines are skipped; every other line must have as many columns as the
// first. A column may be in double quotes (doubled inside), on one line. With
// several files, each has the header, and the headers are equal. Text is UTF-8;
// row names, as R and pandas add them, are refused where they would be data.
absl::StatusOr<std::unique_ptr<SampleTable>> LoadCsv(
    const CsvSource& source, absl::Span<const FieldRequest> fields,
    const DataRoot& data_root, const MemoryBudget& memory = MemoryBudget());

// True if a field that feeds `width` elements a sample is a list. LoadCsv and
// the code that makes room for padding both follow this rule.
bool IsCsvList(const CsvSource& source, absl::string_view field, int64_t width);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_FORMATS_CSV_TABLE_H_

#ifndef SYNCLINE_WORKER_DATA_CSV_TABLE_H_
#define SYNCLINE_WORKER_DATA_CSV_TABLE_H_

#include <memory>

#include "proto/job_spec.pb.h"
#include "worker/data/sample_table.h"

namespace syncline {

// Loads text with one sample per line and one number per column. A field is a
// column of that name (with a header line), or a column number "4", or a
// half-open range of numbers "0:64", from 0. Columns that no field names may
// hold anything; those that are named are kept as float32, or as int64 where
// they are asked for as integers: 4 or 8 bytes per value.
//
// Blank lines are skipped; every other line must have as many columns as the
// first. A column may be in double quotes (doubled inside), on one line. With
// several files, each has the header, and the headers are equal.
absl::StatusOr<std::unique_ptr<SampleTable>> LoadCsv(
    const CsvSource& source, absl::Span<const FieldRequest> fields,
    absl::string_view data_root);

}  // namespace syncline

#endif  // SYNCLINE_WORKER_DATA_CSV_TABLE_H_

#ifndef SYNCLINE_WORKER_DATA_FORMATS_TOKEN_TABLE_H_
#define SYNCLINE_WORKER_DATA_FORMATS_TOKEN_TABLE_H_

#include <memory>

#include "proto/job_spec.pb.h"
#include "worker/data/reading/memory_budget.h"
#include "worker/data/reading/sample_table.h"

namespace syncline::worker {

// Loads sequences of tokens as samples that are windows of them (TokenSource in
// job_spec.proto). Fields: "tokens", integers, and "next", also as integers;
// all must be asked for with one width, T. Tokens stay as narrow as in the
// file. Errors, besides TokenFile's: InvalidArgument: a token that is not below
// the vocabulary, by file and offset; widths that differ; no file with T + 1
// tokens.
absl::StatusOr<std::unique_ptr<SampleTable>> LoadTokens(
    const TokenSource& source, absl::Span<const FieldRequest> fields,
    const DataRoot& data_root, const MemoryBudget& memory = MemoryBudget());

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_FORMATS_TOKEN_TABLE_H_

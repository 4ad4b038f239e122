#ifndef SYNCLINE_WORKER_DATA_FORMATS_DIGITS_TABLE_H_
#define SYNCLINE_WORKER_DATA_FORMATS_DIGITS_TABLE_H_

#include <cstdint>
#include <memory>

#include "common/system/available_memory.h"
#include "proto/job_spec.pb.h"
#include "worker/data/reading/sample_table.h"

namespace syncline::worker {

// The digits of digit_drawing.h as a source. Fields: "image" ([28, 28]) and
// "label". The first ones are drawn once and kept, one byte per pixel, in up to
// `kept_bytes_max` and a quarter of `available` bytes; what is beyond is drawn
// again at each read. Drawing asks the thread's ReadWatch every 1,000 digits
// and ends with its error.
absl::StatusOr<std::unique_ptr<SampleTable>> LoadDigits(
    const DigitsSource& source, absl::Span<const FieldRequest> fields,
    int64_t kept_bytes_max = 256 << 20,
    uint64_t available = AvailableMemoryBytes());

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_FORMATS_DIGITS_TABLE_H_

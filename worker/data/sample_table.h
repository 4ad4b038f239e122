#ifndef SYNCLINE_WORKER_DATA_SAMPLE_TABLE_H_
#define SYNCLINE_WORKER_DATA_SAMPLE_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace syncline {

// A loaded source before a job's mapping: samples with the fields that were
// asked for, numbered by that request, in whatever compact form the format
// allows. Immutable, hence thread-safe. Each format has a loader:
//
//   StatusOr<unique_ptr<SampleTable>> LoadX(const XSource& source,
//       Span<const std::string> fields, string_view data_root);
//
// which checks the whole input (see Dataset::Open for the errors).
class SampleTable {
 public:
  virtual ~SampleTable() = default;

  virtual int64_t size() const = 0;
  // Values of `field` in one sample; > 0.
  virtual int64_t width(int field) const = 0;
  // out[i, :] = value * scale + offset of sample samples[i]; row-major,
  // [samples.size(), width(field)].
  virtual void Read(int field, absl::Span<const int64_t> samples, float scale,
                    float offset, float* out) const = 0;
  // Where the user finds the value: "FILE:LINE" or "FILE: record N" (from 0).
  virtual std::string Where(int field, int64_t sample) const = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_WORKER_DATA_SAMPLE_TABLE_H_

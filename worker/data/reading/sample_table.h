#ifndef SYNCLINE_WORKER_DATA_READING_SAMPLE_TABLE_H_
#define SYNCLINE_WORKER_DATA_READING_SAMPLE_TABLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/data/reading/data_root.h"
#include "worker/data/reading/value_order.h"

namespace syncline::worker {

// A field of a source, as a job asks for it. (Converts from a name, so that a
// list of names is a list of float32 fields.)
struct FieldRequest {
  // NOLINTNEXTLINE(google-explicit-constructor): see above
  FieldRequest(const char* name) : name(name) {}
  // NOLINTNEXTLINE(google-explicit-constructor): see above
  FieldRequest(std::string name) : name(std::move(name)) {}

  std::string name;
  // Read by ReadInts, as int64; else by Read, as float32.
  bool integers = false;
  // Values per sample that samples of a field of variable width are padded to,
  // with `padding`. Fields of fixed width do not look at either.
  int64_t padded_width = 0;
  int64_t padding = 0;
  // Nothing may be missing: padding would pass for a value (labels).
  bool complete = false;
};

// A loaded source before a job's mapping: samples with the fields that were
// asked for, numbered by that request, in whatever compact form the format
// allows. Immutable, hence thread-safe. Each format has a loader:
//
//   StatusOr<unique_ptr<SampleTable>> LoadX(const XSource& source,
//       Span<const FieldRequest> fields, const DataRoot& data_root);
//
// which checks the whole input (see Dataset::Open for the errors), and refuses
// integers of a field that has none.
class SampleTable {
 public:
  virtual ~SampleTable() = default;

  virtual int64_t size() const = 0;
  // Values of `field` in one sample; > 0.
  virtual int64_t width(int field) const = 0;
  // The shape of `field` in one sample, of width(field) elements; nullopt: the
  // format knows none.
  virtual std::optional<SampleDims> dims(int field) const {
    return std::nullopt;
  }
  // Values that one sample has before padding, <= width(field).
  virtual int64_t length(int field, int64_t sample) const {
    return width(field);
  }
  // How often `id` is among the integers of all samples, before padding. 0 for
  // a field of other values, and in formats without lists.
  virtual int64_t CountIds(int field, int64_t id) const { return 0; }
  // out[i, :] = value * scale + offset of sample samples[i]; row-major,
  // [samples.size(), width(field)]. REQUIRES: not asked for as integers.
  virtual void Read(int field, absl::Span<const int64_t> samples, float scale,
                    float offset, float* out) const = 0;
  // out[i, :] = value of sample samples[i], likewise. REQUIRES: asked for as
  // integers.
  virtual void ReadInts(int field, absl::Span<const int64_t> samples,
                        int64_t* out) const;
  // As in Dataset.
  virtual void WillRead(int64_t first, int64_t count) const {}
  virtual void HasRead(int64_t first, int64_t count) const {}
  // Where the user finds the value: "FILE:LINE" or "FILE: record N" (from 0).
  virtual std::string Where(int field, int64_t sample) const = 0;
};

// "no field "x"; a SOURCE has FIELDS", or that the field is no integer.
absl::Status NoSuchField(const FieldRequest& field, absl::string_view source,
                         absl::string_view fields);
absl::Status NotIntegers(const FieldRequest& field, absl::string_view source);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_READING_SAMPLE_TABLE_H_

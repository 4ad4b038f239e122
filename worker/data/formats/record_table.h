#ifndef SYNCLINE_WORKER_DATA_FORMATS_RECORD_TABLE_H_
#define SYNCLINE_WORKER_DATA_FORMATS_RECORD_TABLE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/reading/data_root.h"
#include "worker/data/reading/input_file.h"
#include "worker/data/reading/sample_table.h"

namespace syncline::worker {

// The part that the formats share that keep a field in files of its own, as
// records of equal shape, one per sample: IDX and .npy.

// The content of one file. Elements are as the file has them, little-endian.
struct Records {
  enum class Element {
    kUint8,
    kInt8,
    kUint16,
    kInt16,
    kUint32,
    kInt32,
    kInt64,
    kFloat32,
    kFloat64,
  };

  std::string path;
  Element element = Element::kUint8;
  int64_t count = 0;
  std::vector<int64_t> shape;  // of one record
  int64_t width = 1;           // elements of one record
  std::unique_ptr<char[]> bytes;

  int64_t record_bytes() const;
  bool integers() const {
    return element != Element::kFloat32 && element != Element::kFloat64;
  }
};

// One field over all its files. Immutable.
class RecordField {
 public:
  using Reader = std::function<absl::StatusOr<Records>(const DataFile&)>;
  // Reads the files that `pattern` names, in order. Errors: FindFiles' and the
  // reader's; InvalidArgument: a file whose records differ from the first's in
  // shape or type, or no record at all.
  static absl::StatusOr<std::shared_ptr<const RecordField>> Load(
      const std::string& pattern, const DataRoot& data_root,
      const Reader& read);

  int64_t size() const { return ends_.back(); }
  int64_t width() const { return files_[0].width; }
  Records::Element element() const { return files_[0].element; }
  bool integers() const { return files_[0].integers(); }
  const std::vector<Records>& files() const { return files_; }

  const char* Row(int64_t sample) const {
    const size_t file = FileOf(sample);
    return &files_[file]
                .bytes[(sample - Begin(file)) * files_[file].record_bytes()];
  }
  // "FILE: record N", from 0.
  std::string Where(int64_t sample) const;

 private:
  RecordField() = default;
  absl::Status Append(Records records);
  int64_t Begin(size_t file) const { return file == 0 ? 0 : ends_[file - 1]; }
  size_t FileOf(int64_t sample) const;

  std::vector<Records> files_;
  std::vector<int64_t> ends_;  // samples in files [0, i]
};

// The k-th files of both hold as many records. Errors: InvalidArgument.
absl::Status CheckSameFiles(const RecordField& a, const RecordField& b);

// `fields` by requested field; two requests may share one. All have as many
// records.
std::unique_ptr<SampleTable> MakeRecordTable(
    std::vector<std::shared_ptr<const RecordField>> fields);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_FORMATS_RECORD_TABLE_H_

#include "worker/data/idx_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/data/input_file.h"

namespace syncline {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr int kDimsMax = 8;

// One file's content.
struct Records {
  std::string path;
  int64_t count = 0;
  std::vector<int64_t> shape;  // of one record
  int64_t width = 1;           // bytes of one record
  std::unique_ptr<uint8_t[]> bytes;
};

absl::Status ReadExactly(InputFile* file, uint8_t* out, uint64_t count) {
  SYNCLINE_ASSIGN_OR_RETURN(const uint64_t got,
                            file->Read(reinterpret_cast<char*>(out), count));
  if (got == count) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      file->path(), ": truncated: ", count - got, " bytes are missing"));
}

uint32_t BigEndian32(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 |
         uint32_t{bytes[2]} << 8 | bytes[3];
}

absl::Status CheckMagic(const uint8_t* magic, const std::string& path) {
  if (magic[0] == 0 && magic[1] == 0 && magic[2] == kUnsignedByte &&
      magic[3] >= 1 && magic[3] <= kDimsMax) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: not an IDX file of unsigned bytes: it starts with %02x %02x %02x "
      "%02x, expected 00 00 08 and the number of dimensions",
      path, magic[0], magic[1], magic[2], magic[3]));
}

absl::StatusOr<Records> ReadHeader(InputFile* file) {
  Records records;
  records.path = file->path();
  uint8_t word[4];
  SYNCLINE_RETURN_IF_ERROR(ReadExactly(file, word, sizeof(word)));
  SYNCLINE_RETURN_IF_ERROR(CheckMagic(word, file->path()));
  const int rank = word[3];
  // Sizes are from the file, so the product is bounded before it is used.
  uint64_t total = 1;
  for (int i = 0; i < rank; ++i) {
    SYNCLINE_RETURN_IF_ERROR(ReadExactly(file, word, sizeof(word)));
    const uint64_t size = BigEndian32(word);
    if (size == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(file->path(), ": dimension ", i, " is 0"));
    }
    if (total > file->size_bound() / size) {
      return absl::DataLossError(
          absl::StrCat(file->path(),
                       ": truncated: the header promises more values than a "
                       "file of this size can hold"));
    }
    total *= size;
    if (i == 0) {
      records.count = size;
    } else {
      records.shape.push_back(size);
      records.width *= size;
    }
  }
  return records;
}

absl::StatusOr<Records> ReadRecords(const std::string& path) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto file, InputFile::Open(path));
  SYNCLINE_ASSIGN_OR_RETURN(Records records, ReadHeader(file.get()));
  const int64_t bytes = records.count * records.width;
  records.bytes = std::make_unique_for_overwrite<uint8_t[]>(bytes);
  SYNCLINE_RETURN_IF_ERROR(ReadExactly(file.get(), records.bytes.get(), bytes));
  char more;
  SYNCLINE_ASSIGN_OR_RETURN(const size_t got, file->Read(&more, 1));
  if (got != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": bytes after the last of ", records.count, " records"));
  }
  return records;
}

// One field over all its files.
class ByteField {
 public:
  static absl::StatusOr<ByteField> Load(const std::string& pattern,
                                        absl::string_view data_root) {
    SYNCLINE_ASSIGN_OR_RETURN(const auto paths, FindFiles(pattern, data_root));
    ByteField field;
    for (const std::string& path : paths) {
      SYNCLINE_ASSIGN_OR_RETURN(Records records, ReadRecords(path));
      SYNCLINE_RETURN_IF_ERROR(field.Append(std::move(records)));
    }
    return field;
  }

  int64_t size() const { return ends_.back(); }
  int64_t width() const { return files_[0].width; }
  const std::vector<Records>& files() const { return files_; }

  const uint8_t* Row(int64_t sample) const {
    const size_t file = FileOf(sample);
    return &files_[file].bytes[(sample - Begin(file)) * width()];
  }
  std::string Where(int64_t sample) const {
    const size_t file = FileOf(sample);
    return absl::StrCat(files_[file].path, ": record ", sample - Begin(file));
  }

 private:
  absl::Status Append(Records records) {
    if (!files_.empty() && files_[0].shape != records.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          records.path, ": records are [", absl::StrJoin(records.shape, ","),
          "], those of ", files_[0].path, " are [",
          absl::StrJoin(files_[0].shape, ","), "]"));
    }
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + records.count);
    files_.push_back(std::move(records));
    return absl::OkStatus();
  }
  int64_t Begin(size_t file) const { return file == 0 ? 0 : ends_[file - 1]; }
  size_t FileOf(int64_t sample) const {
    return std::upper_bound(ends_.begin(), ends_.end(), sample) - ends_.begin();
  }

  std::vector<Records> files_;
  std::vector<int64_t> ends_;  // samples in files [0, i]
};

class IdxTable : public SampleTable {
 public:
  explicit IdxTable(std::vector<std::shared_ptr<const ByteField>> fields)
      : fields_(std::move(fields)) {}

  int64_t size() const override { return fields_[0]->size(); }
  int64_t width(int field) const override { return fields_[field]->width(); }
  void Read(int field, absl::Span<const int64_t> samples, float scale,
            float offset, float* out) const override {
    const int64_t width = fields_[field]->width();
    for (const int64_t sample : samples) {
      const uint8_t* row = fields_[field]->Row(sample);
      for (int64_t i = 0; i < width; ++i) out[i] = row[i] * scale + offset;
      out += width;
    }
  }
  void ReadInts(int field, absl::Span<const int64_t> samples,
                int64_t* out) const override {
    const int64_t width = fields_[field]->width();
    for (const int64_t sample : samples) {
      out = std::copy_n(fields_[field]->Row(sample), width, out);
    }
  }
  std::string Where(int field, int64_t sample) const override {
    return fields_[field]->Where(sample);
  }

 private:
  // By requested field; two requests may share one.
  const std::vector<std::shared_ptr<const ByteField>> fields_;
};

absl::Status CheckLabels(const ByteField& labels) {
  if (labels.files()[0].shape.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      labels.files()[0].path, ": labels must have one dimension, not ",
      labels.files()[0].shape.size() + 1));
}

absl::Status CheckPairs(const ByteField& images, const ByteField& labels) {
  if (images.files().size() != labels.files().size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        images.files().size(), " image files (", images.files()[0].path,
        " ...), but ", labels.files().size(), " label files (",
        labels.files()[0].path, " ...)"));
  }
  for (size_t i = 0; i < images.files().size(); ++i) {
    const Records& image = images.files()[i];
    const Records& label = labels.files()[i];
    if (image.count == label.count) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(image.path, " holds ", image.count, " images, but ",
                     label.path, " holds ", label.count, " labels"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SampleTable>> LoadIdx(
    const IdxSource& source, absl::Span<const FieldRequest> fields,
    absl::string_view data_root) {
  SYNCLINE_CHECK(!fields.empty());
  std::shared_ptr<const ByteField> images;
  std::shared_ptr<const ByteField> labels;
  std::vector<std::shared_ptr<const ByteField>> table;
  for (const FieldRequest& request : fields) {
    const bool is_image = request.name == "image";
    if (!is_image && request.name != "label") {
      return NoSuchField(request, "an IDX source", "\"image\" and \"label\"");
    }
    auto& field = is_image ? images : labels;
    if (field == nullptr) {
      SYNCLINE_ASSIGN_OR_RETURN(
          ByteField loaded,
          ByteField::Load(is_image ? source.images() : source.labels(),
                          data_root));
      field = std::make_shared<const ByteField>(std::move(loaded));
    }
    table.push_back(field);
  }
  if (labels != nullptr) SYNCLINE_RETURN_IF_ERROR(CheckLabels(*labels));
  if (images != nullptr && labels != nullptr) {
    SYNCLINE_RETURN_IF_ERROR(CheckPairs(*images, *labels));
  }
  return std::make_unique<IdxTable>(std::move(table));
}

}  // namespace syncline

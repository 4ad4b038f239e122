#include "worker/data/formats/idx_table.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/data/formats/record_table.h"
#include "worker/data/reading/input_file.h"

namespace syncline::worker {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr int kDimsMax = 8;

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
  SYNCLINE_RETURN_IF_ERROR(
      ReadExactly(file, reinterpret_cast<char*>(word), sizeof(word)));
  SYNCLINE_RETURN_IF_ERROR(CheckMagic(word, file->path()));
  const int rank = word[3];
  // Sizes are from the file, so the product is bounded before it is used.
  uint64_t total = 1;
  for (int i = 0; i < rank; ++i) {
    SYNCLINE_RETURN_IF_ERROR(
        ReadExactly(file, reinterpret_cast<char*>(word), sizeof(word)));
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

absl::StatusOr<Records> ReadRecords(const DataFile& data_file,
                                    const MemoryBudget& memory) {
  const std::string& path = data_file.path;
  SYNCLINE_ASSIGN_OR_RETURN(const auto file, InputFile::Open(data_file));
  SYNCLINE_ASSIGN_OR_RETURN(Records records, ReadHeader(file.get()));
  const int64_t bytes = records.count * records.width;
  SYNCLINE_RETURN_IF_ERROR(memory.Check(bytes, [&] { return path; }));
  records.bytes = std::make_unique_for_overwrite<char[]>(bytes);
  SYNCLINE_RETURN_IF_ERROR(ReadExactly(file.get(), records.bytes.get(), bytes));
  char more;
  SYNCLINE_ASSIGN_OR_RETURN(const size_t got, file->Read(&more, 1));
  if (got != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": bytes after the last of ", records.count, " records"));
  }
  return records;
}

absl::Status CheckLabels(const RecordField& labels) {
  if (labels.files()[0].shape.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      labels.files()[0].path, ": labels must have one dimension, not ",
      labels.files()[0].shape.size() + 1));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SampleTable>> LoadIdx(
    const IdxSource& source, absl::Span<const FieldRequest> fields,
    const DataRoot& data_root, const MemoryBudget& memory) {
  SYNCLINE_CHECK(!fields.empty());
  std::shared_ptr<const RecordField> images;
  std::shared_ptr<const RecordField> labels;
  std::vector<std::shared_ptr<const RecordField>> table;
  for (const FieldRequest& request : fields) {
    const bool is_image = request.name == "image";
    if (!is_image && request.name != "label") {
      return NoSuchField(request, "an IDX source", "\"image\" and \"label\"");
    }
    auto& field = is_image ? images : labels;
    if (field == nullptr) {
      SYNCLINE_ASSIGN_OR_RETURN(
          field, RecordField::Load(is_image ? source.images() : source.labels(),
                                   data_root, [&memory](const DataFile& file) {
                                     return ReadRecords(file, memory);
                                   }));
    }
    table.push_back(field);
  }
  if (labels != nullptr) SYNCLINE_RETURN_IF_ERROR(CheckLabels(*labels));
  if (images != nullptr && labels != nullptr) {
    SYNCLINE_RETURN_IF_ERROR(CheckSameFiles(*images, *labels));
  }
  return MakeRecordTable(std::move(table));
}

}  // namespace syncline::worker

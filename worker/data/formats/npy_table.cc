#include "worker/data/formats/npy_table.h"

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/data/formats/npy_header.h"
#include "worker/data/formats/record_table.h"
#include "worker/data/reading/input_file.h"

namespace syncline::worker {
namespace {

using Element = Records::Element;

absl::StatusOr<Element> ElementOf(const NpyHeader& header,
                                  const std::string& path) {
  const bool is_signed = header.kind == NpyHeader::Kind::kSigned;
  if (header.kind == NpyHeader::Kind::kFloat) {
    return header.width == 4 ? Element::kFloat32 : Element::kFloat64;
  }
  switch (header.width) {
    case 1:
      return is_signed ? Element::kInt8 : Element::kUint8;
    case 2:
      return is_signed ? Element::kInt16 : Element::kUint16;
    case 4:
      return is_signed ? Element::kInt32 : Element::kUint32;
    default:
      if (is_signed) return Element::kInt64;
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": elements are uint64; save x.astype(numpy.int64) instead"));
  }
}

absl::StatusOr<Records> ReadHeader(InputFile* file) {
  SYNCLINE_ASSIGN_OR_RETURN(const NpyHeader header, ReadNpyHeader(file));
  Records records;
  records.path = file->path();
  SYNCLINE_ASSIGN_OR_RETURN(records.element, ElementOf(header, records.path));
  if (header.shape.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        records.path, ": one number; the first dimension must be the samples"));
  }
  // Sizes are from the file, so the product is bounded before it is used.
  uint64_t total = header.width;
  for (size_t i = 0; i < header.shape.size(); ++i) {
    const uint64_t size = header.shape[i];
    if (size == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(records.path, ": dimension ", i, " is 0"));
    }
    if (total > file->size_bound() / size) {
      return absl::DataLossError(
          absl::StrCat(records.path,
                       ": truncated: the header promises more values than a "
                       "file of this size can hold: ",
                       DimsText(header.shape)));
    }
    total *= size;
    if (i > 0) {
      records.shape.push_back(size);
      records.width *= static_cast<int64_t>(size);
    }
  }
  records.count = header.shape[0];
  return records;
}

template <typename T>
absl::Status CheckFinite(const Records& records) {
  const auto* const values = reinterpret_cast<const T*>(records.bytes.get());
  for (int64_t i = 0; i < records.count * records.width; ++i) {
    if (std::isfinite(static_cast<float>(values[i]))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(records.path, ": record ", i / records.width, ": value ",
                     i % records.width, " is ", values[i],
                     ", not a finite number in float32"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Records> ReadRecords(const DataFile& data_file,
                                    const MemoryBudget& memory) {
  const std::string& path = data_file.path;
  SYNCLINE_ASSIGN_OR_RETURN(const auto file, InputFile::Open(data_file));
  SYNCLINE_ASSIGN_OR_RETURN(Records records, ReadHeader(file.get()));
  const int64_t bytes = records.count * records.record_bytes();
  SYNCLINE_RETURN_IF_ERROR(memory.Check(bytes, [&] { return path; }));
  records.bytes = std::make_unique_for_overwrite<char[]>(bytes);
  SYNCLINE_RETURN_IF_ERROR(ReadExactly(file.get(), records.bytes.get(), bytes));
  char more;
  SYNCLINE_ASSIGN_OR_RETURN(const size_t got, file->Read(&more, 1));
  if (got != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": bytes after the last of ", records.count, " records"));
  }
  if (records.element == Element::kFloat32) {
    SYNCLINE_RETURN_IF_ERROR(CheckFinite<float>(records));
  } else if (records.element == Element::kFloat64) {
    SYNCLINE_RETURN_IF_ERROR(CheckFinite<double>(records));
  }
  return records;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SampleTable>> LoadNpy(
    const NpySource& source, absl::Span<const FieldRequest> fields,
    const DataRoot& data_root, const MemoryBudget& memory) {
  SYNCLINE_CHECK(!fields.empty());
  std::map<std::string, std::string> paths;
  for (const NpySource::Array& array : source.arrays()) {
    paths[array.field()] = array.path();
  }
  std::map<std::string, std::shared_ptr<const RecordField>> loaded;
  std::vector<std::shared_ptr<const RecordField>> table;
  for (const FieldRequest& request : fields) {
    const auto path = paths.find(request.name);
    if (path == paths.end()) {
      return NoSuchField(
          request, "the npy source",
          absl::StrJoin(paths, ", ", [](std::string* out, const auto& entry) {
            absl::StrAppend(out, "\"", entry.first, "\"");
          }));
    }
    std::shared_ptr<const RecordField>& field = loaded[request.name];
    if (field == nullptr) {
      SYNCLINE_ASSIGN_OR_RETURN(
          field, RecordField::Load(path->second, data_root,
                                   [&memory](const DataFile& file) {
                                     return ReadRecords(file, memory);
                                   }));
    }
    if (request.integers && !field->integers()) {
      return NotIntegers(request, "the npy source");
    }
    table.push_back(field);
    SYNCLINE_RETURN_IF_ERROR(CheckSameFiles(*table[0], *field));
  }
  return MakeRecordTable(std::move(table));
}

}  // namespace syncline::worker

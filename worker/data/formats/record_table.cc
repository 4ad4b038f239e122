#include "worker/data/formats/record_table.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/data/reading/input_file.h"

namespace syncline::worker {
namespace {

// Calls visit(T()) with the type of the elements.
template <typename Visit>
auto WithElement(Records::Element element, Visit visit) {
  switch (element) {
    case Records::Element::kUint8:
      return visit(uint8_t());
    case Records::Element::kInt8:
      return visit(int8_t());
    case Records::Element::kUint16:
      return visit(uint16_t());
    case Records::Element::kInt16:
      return visit(int16_t());
    case Records::Element::kUint32:
      return visit(uint32_t());
    case Records::Element::kInt32:
      return visit(int32_t());
    case Records::Element::kInt64:
      return visit(int64_t());
    case Records::Element::kFloat32:
      return visit(float());
    case Records::Element::kFloat64:
      return visit(double());
  }
  SYNCLINE_CHECK(false);
}

class RecordTable : public SampleTable {
 public:
  explicit RecordTable(std::vector<std::shared_ptr<const RecordField>> fields)
      : fields_(std::move(fields)) {}

  int64_t size() const override { return fields_[0]->size(); }
  int64_t width(int field) const override { return fields_[field]->width(); }
  std::optional<SampleDims> dims(int field) const override {
    return fields_[field]->files()[0].shape;
  }
  void Read(int field, absl::Span<const int64_t> samples, float scale,
            float offset, float* out) const override {
    Visit(field, samples, [&](auto value) {
      if constexpr (sizeof(value) < sizeof(int32_t) ||
                    std::is_same_v<decltype(value), float>) {
        *out++ = static_cast<float>(value) * scale + offset;
      } else {
        // Values that float32 does not have may come to such that it has.
        *out++ = static_cast<float>(static_cast<double>(value) * double{scale} +
                                    double{offset});
      }
    });
  }
  void ReadInts(int field, absl::Span<const int64_t> samples,
                int64_t* out) const override {
    Visit(field, samples,
          [&](auto value) { *out++ = static_cast<int64_t>(value); });
  }
  std::string Where(int field, int64_t sample) const override {
    return fields_[field]->Where(sample);
  }

 private:
  template <typename Take>
  void Visit(int field, absl::Span<const int64_t> samples, Take take) const {
    const RecordField& records = *fields_[field];
    WithElement(records.element(), [&](auto type) {
      using T = decltype(type);
      for (const int64_t sample : samples) {
        const auto* row = reinterpret_cast<const T*>(records.Row(sample));
        for (int64_t i = 0; i < records.width(); ++i) take(row[i]);
      }
    });
  }

  const std::vector<std::shared_ptr<const RecordField>> fields_;
};

}  // namespace

int64_t Records::record_bytes() const {
  return width * WithElement(element, [](auto type) {
           return static_cast<int64_t>(sizeof(type));
         });
}

absl::StatusOr<std::shared_ptr<const RecordField>> RecordField::Load(
    const std::string& pattern, const DataRoot& data_root, const Reader& read) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto files, FindFiles(pattern, data_root));
  auto field = std::shared_ptr<RecordField>(new RecordField);
  for (const DataFile& file : files) {
    SYNCLINE_ASSIGN_OR_RETURN(Records records, read(file));
    SYNCLINE_RETURN_IF_ERROR(field->Append(std::move(records)));
  }
  if (field->size() > 0) return field;
  return absl::InvalidArgumentError(
      absl::StrCat(files[0].path, ": no records"));
}

absl::Status RecordField::Append(Records records) {
  if (!files_.empty() && files_[0].shape != records.shape) {
    return absl::InvalidArgumentError(absl::StrCat(
        records.path, ": records are [", absl::StrJoin(records.shape, ","),
        "], those of ", files_[0].path, " are [",
        absl::StrJoin(files_[0].shape, ","), "]"));
  }
  if (!files_.empty() && files_[0].element != records.element) {
    return absl::InvalidArgumentError(
        absl::StrCat(records.path, ": elements are of another type than those ",
                     "of ", files_[0].path));
  }
  ends_.push_back((ends_.empty() ? 0 : ends_.back()) + records.count);
  files_.push_back(std::move(records));
  return absl::OkStatus();
}

std::string RecordField::Where(int64_t sample) const {
  const size_t file = FileOf(sample);
  return absl::StrCat(files_[file].path, ": record ", sample - Begin(file));
}

size_t RecordField::FileOf(int64_t sample) const {
  return std::upper_bound(ends_.begin(), ends_.end(), sample) - ends_.begin();
}

absl::Status CheckSameFiles(const RecordField& a, const RecordField& b) {
  if (a.files().size() != b.files().size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        a.files().size(), " files (", a.files()[0].path, " ...), but ",
        b.files().size(), " files (", b.files()[0].path, " ...)"));
  }
  for (size_t i = 0; i < a.files().size(); ++i) {
    const Records& of_a = a.files()[i];
    const Records& of_b = b.files()[i];
    if (of_a.count == of_b.count) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(of_a.path, " holds ", of_a.count, " records, but ",
                     of_b.path, " holds ", of_b.count));
  }
  return absl::OkStatus();
}

std::unique_ptr<SampleTable> MakeRecordTable(
    std::vector<std::shared_ptr<const RecordField>> fields) {
  SYNCLINE_CHECK(!fields.empty());
  return std::make_unique<RecordTable>(std::move(fields));
}

}  // namespace syncline::worker

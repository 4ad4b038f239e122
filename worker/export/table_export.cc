#include "worker/export/table_export.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/export/rows_file.h"

namespace syncline::worker {
namespace {

constexpr size_t kNameBytesMax = 96;

// Reads the rows that no scan has shown.
absl::Status FillUntouched(const std::vector<bool>& seen, int64_t dim,
                           const TableReader& reader, float* values) {
  std::vector<int64_t> keys;
  std::vector<float> rows;
  const auto read = [&]() -> absl::Status {
    rows.resize(keys.size() * static_cast<size_t>(dim));
    SYNCLINE_RETURN_IF_ERROR(reader.read(keys, rows.data()));
    for (size_t i = 0; i < keys.size(); ++i) {
      std::copy_n(rows.data() + i * dim, dim, values + keys[i] * dim);
    }
    keys.clear();
    return absl::OkStatus();
  };
  for (size_t key = 0; key < seen.size(); ++key) {
    if (!seen[key]) keys.push_back(static_cast<int64_t>(key));
    if (keys.size() == reader.keys_max) SYNCLINE_RETURN_IF_ERROR(read());
  }
  return keys.empty() ? absl::OkStatus() : read();
}

}  // namespace

TableReader Counted(TableReader reader,
                    std::function<void(uint64_t rows)> on_rows) {
  const auto count = [rows = std::make_shared<uint64_t>(0),
                      on_rows = std::move(on_rows)](size_t more) {
    on_rows(*rows += more);
  };
  return {.scan =
              [scan = std::move(reader.scan), count](TableReader::Sink sink) {
                return scan([&](absl::Span<const int64_t> keys,
                                absl::Span<const float> values) {
                  count(keys.size());
                  return sink(keys, values);
                });
              },
          .keys_max = reader.keys_max,
          .read =
              [read = std::move(reader.read), count](
                  absl::Span<const int64_t> keys, float* values) {
                SYNCLINE_RETURN_IF_ERROR(read(keys, values));
                count(keys.size());
                return absl::OkStatus();
              }};
}

absl::StatusOr<std::optional<std::vector<float>>> ReadDenseTable(
    int64_t rows, int64_t dim, uint64_t bytes_max, const TableReader& reader,
    absl::Span<const int64_t> padding) {
  const uint64_t row_bytes = static_cast<uint64_t>(dim) * sizeof(float);
  if (rows == 0 || static_cast<uint64_t>(rows) > bytes_max / row_bytes) {
    return std::nullopt;
  }
  std::vector<float> values(static_cast<size_t>(rows * dim));
  std::vector<bool> seen(static_cast<size_t>(rows));
  bool fits = true;
  const auto store = [&](absl::Span<const int64_t> keys,
                         absl::Span<const float> found) {
    for (size_t i = 0; i < keys.size(); ++i) {
      fits = keys[i] >= 0 && keys[i] < rows;
      if (!fits) return absl::CancelledError("a key outside the tensor");
      seen[keys[i]] = true;
      std::copy_n(found.data() + i * dim, dim, values.data() + keys[i] * dim);
    }
    return absl::OkStatus();
  };
  const absl::Status scanned = reader.scan(store);
  if (!fits) return std::nullopt;
  SYNCLINE_RETURN_IF_ERROR(scanned);
  for (const int64_t row : padding) seen[row] = true;
  SYNCLINE_RETURN_IF_ERROR(FillUntouched(seen, dim, reader, values.data()));
  return values;
}

absl::Status WriteTableRows(const std::string& path, const std::string& name,
                            int64_t dim, const TableReader& reader) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::unique_ptr<RowsFile> file,
                            RowsFile::Create(path, name, dim));
  SYNCLINE_RETURN_IF_ERROR(reader.scan(
      [&](absl::Span<const int64_t> keys, absl::Span<const float> values) {
        return file->Add(keys, values);
      }));
  return file->Finish();
}

std::string TableArtifact(const std::string& name, size_t index) {
  std::string safe = name.substr(0, kNameBytesMax);
  for (char& c : safe) {
    if (!absl::ascii_isalnum(c) && c != '.' && c != '_' && c != '-') c = '_';
  }
  if (safe != name) absl::StrAppend(&safe, ".", index);
  return absl::StrCat("tables/", safe, ".safetensors");
}

}  // namespace syncline::worker

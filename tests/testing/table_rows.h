#ifndef SYNCLINE_TESTS_TESTING_TABLE_ROWS_H_
#define SYNCLINE_TESTS_TESTING_TABLE_ROWS_H_

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace syncline {

// The rows of a table's safetensors file (worker/export/rows_file.h), by key;
// `bytes` is its content.
inline std::map<int64_t, std::vector<float>> TableRowsOf(
    const std::string& bytes, size_t dim) {
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  const size_t row_bytes = dim * sizeof(float);
  const size_t n = (bytes.size() - 8 - header) / (8 + row_bytes);
  const char* const values = bytes.data() + 8 + header;
  const char* const keys = values + n * row_bytes;
  std::map<int64_t, std::vector<float>> rows;
  for (size_t i = 0; i < n; ++i) {
    int64_t key = 0;
    std::memcpy(&key, keys + 8 * i, 8);
    rows[key].resize(dim);
    std::memcpy(rows[key].data(), values + row_bytes * i, row_bytes);
  }
  return rows;
}

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_TABLE_ROWS_H_

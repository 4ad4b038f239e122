#ifndef SYNCLINE_KERNELS_DEVICE_PRODUCT_TABLE_H_
#define SYNCLINE_KERNELS_DEVICE_PRODUCT_TABLE_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace syncline {

// A library on a GPU. Its algorithms mean nothing on another GPU or to another
// version. Both are words for people, in one line each.
struct ProductLibrary {
  std::string gpu;   // "NVIDIA H200"
  std::string name;  // "cuBLASLt 13.0.2"

  bool operator==(const ProductLibrary&) const = default;
};

// Algorithms of a library of matrix products, by what they compute. A plain
// value. Its text travels with a job and is kept in files:
//
//   syncline product algorithms 1
//   gpu NVIDIA H200
//   library cuBLASLt 13.0.2
//   <algorithm, in hexadecimal> <key>      by key, ascending
//   crc32c 89abcdef                        of all lines before
class ProductTable {
 public:
  static constexpr size_t kEntriesMax = 4096;
  static constexpr size_t kKeyBytesMax = 256;
  static constexpr size_t kAlgorithmBytesMax = 256;
  static constexpr size_t kTextBytesMax = size_t{4} << 20;

  ProductTable() = default;
  explicit ProductTable(ProductLibrary library);

  const ProductLibrary& library() const { return library_; }
  // By key.
  const std::map<std::string, std::string, std::less<>>& algorithms() const {
    return algorithms_;
  }
  // Replaces the algorithm of a key. False: the table is full. `key`: one line
  // that begins and ends with no space; `algorithm`: opaque bytes, one at
  // least. REQUIRES: both within their limits.
  bool Set(absl::string_view key, absl::string_view algorithm);
  // Null: there is none. Until the next Set.
  const std::string* Find(absl::string_view key) const;

  std::string ToText() const;
  // Errors: DataLoss: the text is no table, or is damaged; Unimplemented: it is
  // of another version of the format.
  static absl::StatusOr<ProductTable> FromText(absl::string_view text);

  bool operator==(const ProductTable&) const = default;

 private:
  ProductLibrary library_;
  std::map<std::string, std::string, std::less<>> algorithms_;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_PRODUCT_TABLE_H_

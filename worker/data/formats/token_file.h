#ifndef SYNCLINE_WORKER_DATA_FORMATS_TOKEN_FILE_H_
#define SYNCLINE_WORKER_DATA_FORMATS_TOKEN_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/data/reading/input_file.h"
#include "worker/data/reading/memory_budget.h"

namespace syncline::worker {

// The tokens of one file, as narrow as in the file. Immutable.
class TokenFile {
 public:
  // Reads [begin, end) of the file's tokens, as fractions of their number.
  // FORMAT_UNSPECIFIED is told from the name. Errors name the file, and the
  // offset of what is wrong: as InputFile's; InvalidArgument (no whole number
  // of tokens, no .npy header, a type or order that is not read, a token that
  // is negative or not below 2^32), DataLoss (shorter than its header says),
  // ResourceExhausted (more than fits into memory).
  static absl::StatusOr<TokenFile> Load(
      const DataFile& file, TokenSource::Format format, double begin,
      double end, const MemoryBudget& memory = MemoryBudget());

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  // Number of token 0 in the file.
  int64_t first() const { return first_; }
  uint32_t at(int64_t i) const;
  // out[i] = token begin + i. REQUIRES: begin + count <= size().
  template <typename T>
  void Copy(int64_t begin, int64_t count, T* out) const;
  // "FILE: token N at byte B", B as in the (decompressed) file.
  std::string Where(int64_t i) const;
  // The first token that is not below `vocabulary`; -1: none.
  int64_t FindAtLeast(uint32_t vocabulary) const;

 private:
  template <typename Visit>
  auto WithTokens(Visit visit) const;

  std::string path_;
  std::vector<char> bytes_;
  int width_ = 1;  // bytes per token: 1, 2 or 4
  int file_width_ = 1;
  int64_t header_bytes_ = 0;
  int64_t first_ = 0;
  int64_t size_ = 0;

  friend class TokenFileReader;
};

template <typename Visit>
auto TokenFile::WithTokens(Visit visit) const {
  switch (width_) {
    case 1:
      return visit(reinterpret_cast<const uint8_t*>(bytes_.data()));
    case 2:
      return visit(reinterpret_cast<const uint16_t*>(bytes_.data()));
    default:
      return visit(reinterpret_cast<const uint32_t*>(bytes_.data()));
  }
}

template <typename T>
void TokenFile::Copy(int64_t begin, int64_t count, T* out) const {
  WithTokens([=](const auto* tokens) {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = static_cast<T>(tokens[begin + i]);
    }
  });
}

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_FORMATS_TOKEN_FILE_H_

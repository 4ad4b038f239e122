// Goal: no bytes, whoever wrote them, break who reads a safetensors file; what
// is accepted lies within the file, one tensor behind the other.
// Method: the first byte chooses. Even: the rest is a file. Odd: it is a header
// and what follows, and gets its length here.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "common/base/check.h"
#include "common/model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view rest(reinterpret_cast<const char*>(data) + 1,
                               size - 1);
  std::string file(rest);
  if (data[0] % 2 == 1) {
    const uint64_t end = rest.find('\0');
    const uint64_t length = end < rest.size() ? end : rest.size();
    std::string frame(sizeof(length), '\0');
    std::memcpy(frame.data(), &length, sizeof(length));
    file = frame + file;
  }
  const auto tensors = syncline::ParseSafetensors(file, file.size());
  if (!tensors.ok()) return 0;
  uint64_t at = tensors->empty() ? file.size() : tensors->front().begin;
  for (const syncline::FileTensor& tensor : *tensors) {
    SYNCLINE_CHECK(tensor.begin == at);
    at += tensor.bytes;
  }
  SYNCLINE_CHECK(at == file.size());
  return 0;
}

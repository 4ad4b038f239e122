#ifndef SYNCLINE_TESTS_UNIT_WORKER_DATA_NPY_FILES_H_
#define SYNCLINE_TESTS_UNIT_WORKER_DATA_NPY_FILES_H_

#include <string>
#include <vector>

namespace syncline::worker {

// Little-endian elements, as they lie in a file.
template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(T));
}

// A .npy file of version 1 with this text as its header.
inline std::string Npy(const std::string& header, const std::string& content) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size());
  file += '\0';
  return file + header + content;
}

inline std::string NpyText(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr +
         "', 'fortran_order': False, 'shape': " + shape + ", }\n";
}

}  // namespace syncline::worker

#endif  // SYNCLINE_TESTS_UNIT_WORKER_DATA_NPY_FILES_H_

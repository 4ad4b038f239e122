#ifndef SYNCLINE_WORKER_DATA_FORMATS_NPY_HEADER_H_
#define SYNCLINE_WORKER_DATA_FORMATS_NPY_HEADER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/reading/input_file.h"

namespace syncline::worker {

// The header of a .npy file: type and shape of its array.
struct NpyHeader {
  enum class Kind { kUnsigned, kSigned, kFloat, kBool };
  Kind kind = Kind::kUnsigned;
  int width = 1;               // bytes of an element: 1, 2, 4 or 8
  std::vector<int64_t> shape;  // each >= 0; empty: a scalar
  int64_t bytes = 0;           // of the header: the first element follows
  std::string text;            // as the file has it, for messages
};

// Reads the header off the start of `file`. Errors name the file and the byte:
// InvalidArgument (no .npy file of version 1 to 3; elements that are not
// little-endian integers, floats or bools; Fortran's order of more than one
// dimension), DataLoss (truncated).
// Source: NumPy Enhancement Proposal 1.
absl::StatusOr<NpyHeader> ReadNpyHeader(InputFile* file);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_FORMATS_NPY_HEADER_H_

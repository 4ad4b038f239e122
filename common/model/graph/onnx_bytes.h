#ifndef SYNCLINE_COMMON_MODEL_GRAPH_ONNX_BYTES_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_ONNX_BYTES_H_

// The kind of a file that is not an ONNX model, for the error message.

#include <string>

#include "absl/strings/string_view.h"

namespace syncline {

// "not ONNX: a PNG picture", with what to do instead where there is something.
// Empty: not one of the formats that are known by how they begin.
std::string DescribeOtherFormat(absl::string_view bytes);

// Why `bytes`, which are neither ONNX text nor ONNX binary, are not: where
// binary ends too early or goes on as none does, in bytes from the beginning;
// for text, what it begins with.
std::string DescribeBrokenBytes(absl::string_view bytes);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_ONNX_BYTES_H_

#ifndef SYNCLINE_COMMON_MODEL_GRAPH_ONNX_FILE_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_ONNX_FILE_H_

// Between bytes and protobuf messages of ONNX. Only sources of this folder
// include it, and ONNX's own headers.

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/graph/tensor.h"

namespace google::protobuf::io {
class ZeroCopyOutputStream;
}  // namespace google::protobuf::io

namespace onnx {
class ModelProto;
class TensorProto;
class TypeProto_Tensor;
}  // namespace onnx

namespace syncline {

// Reads ONNX binary, or ONNX text syntax if the first character that is neither
// space nor comment is '<'. Errors: InvalidArgument: text that is wrong, with
// line and column; binary that is cut off or broken, with the byte
// (onnx_bytes.h); something else, by name where it is known (a zip archive, a
// picture).
absl::Status ReadOnnxFile(absl::string_view bytes, onnx::ModelProto* model);

// Writes `model`, whose initializers, without content there, get it by name:
// so that large weights need not be in a message as well. REQUIRES: each has
// one. Takes the graph out of `model`. Errors: OutOfRange: more than an ONNX
// file can be (2 GiB); Unavailable: `out` does not take it.
absl::Status WriteOnnxFile(
    const absl::flat_hash_map<std::string, absl::string_view>& contents,
    onnx::ModelProto* model, google::protobuf::io::ZeroCopyOutputStream* out);

// The element type of ONNX's number for it. Errors: InvalidArgument: a type
// that is not built, by name.
absl::StatusOr<DType> DTypeFromOnnx(int onnx_type);
int DTypeToOnnx(DType dtype);

// True if a declared type allows this one; open dimensions (symbols and values
// below 1) and an absent shape allow any.
bool Allows(const onnx::TypeProto_Tensor& declared, DType dtype,
            absl::Span<const int64_t> dims);

// False: its values are in another file, which is not read.
bool HasValuesInside(const onnx::TensorProto& tensor);
// The file of external data that `tensor` names.
std::string ExternalLocation(const onnx::TensorProto& tensor);

// A copy without the content, which *tensor keeps; it is not copied on the way.
onnx::TensorProto WithoutContent(onnx::TensorProto* tensor);

// Moves the content of `tensor` out of it: name, dims and type stay, so that
// large weights are not held twice. Errors: InvalidArgument: type not built,
// values outside the file, more or fewer values than the dims say.
absl::StatusOr<ConstantTensor> TakeTensor(onnx::TensorProto* tensor);

// Writes type, dims and content; `bytes` as in ConstantTensor.
void WriteTensor(DType dtype, absl::Span<const int64_t> dims,
                 absl::string_view bytes, onnx::TensorProto* out);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_ONNX_FILE_H_

#include "common/model/graph/onnx_file.h"

#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/model/graph/describe.h"
#include "common/model/graph/onnx_bytes.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "onnx/defs/parser.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

// The text parser and protobuf recurse as deep as the text nests.
constexpr int kNestingMax = 64;
// Of a protobuf message.
constexpr size_t kFileBytesMax = std::numeric_limits<int>::max();

using google::protobuf::io::CodedOutputStream;
using WireFormat = google::protobuf::internal::WireFormatLite;

bool IsText(absl::string_view bytes) {
  while (!bytes.empty()) {
    if (absl::ascii_isspace(static_cast<unsigned char>(bytes[0]))) {
      bytes.remove_prefix(1);
    } else if (bytes[0] == '#') {
      const size_t end = bytes.find('\n');
      if (end == absl::string_view::npos) return false;
      bytes.remove_prefix(end);
    } else {
      return bytes[0] == '<';
    }
  }
  return false;
}

// True if brackets nest deeper than the limit, strings and comments aside.
bool NestsTooDeep(absl::string_view text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '(':
      case '[':
      case '{':
      case '<':
        if (++depth > kNestingMax) return true;
        break;
      case ')':
      case ']':
      case '}':
      case '>':
        if (depth > 0) --depth;
        break;
      case '"':
        i = text.find('"', i + 1);
        break;
      case '#':
        i = text.find('\n', i);
        break;
    }
    if (i == absl::string_view::npos) return false;
  }
  return false;
}

// "[ParseError at position (line: 3 column: 7)]\nError context: ...\nmessage"
// becomes "3:7: message".
absl::Status TextError(absl::string_view position, absl::string_view message) {
  const std::string place = absl::StrReplaceAll(
      position, {{"(line: ", ""}, {" column: ", ":"}, {")", ""}});
  std::string printable(message);
  for (char& c : printable) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = ' ';
  }
  absl::StripAsciiWhitespace(&printable);
  return absl::InvalidArgumentError(
      absl::StrCat(place, ": not ONNX text: ", printable));
}

absl::Status ReadText(absl::string_view bytes, onnx::ModelProto* model) {
  const std::string text(bytes);  // the parser wants a final NUL
  if (absl::StrContains(bytes, '\0')) {
    return absl::InvalidArgumentError("not ONNX text: it has NUL bytes");
  }
  if (NestsTooDeep(bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("not ONNX text: brackets nest deeper than ", kNestingMax));
  }
  onnx::OnnxParser parser(text.c_str());
  try {
    const auto status = parser.Parse(*model);
    if (!status.IsOK()) {
      const std::string& message = status.ErrorMessage();
      return TextError(
          parser.GetCurrentPos(),
          message.substr(message.rfind('\n', message.size() - 2) + 1));
    }
  } catch (const std::exception& e) {  // std::stoll and its like
    return TextError(
        parser.GetCurrentPos(),
        absl::StrCat("a number is malformed or out of range (", e.what(), ")"));
  }
  return absl::OkStatus();
}

template <typename T, typename Field>
std::string Packed(const Field& field) {
  std::string bytes(field.size() * sizeof(T), '\0');
  for (int i = 0; i < field.size(); ++i) {
    const T value = static_cast<T>(field.Get(i));
    std::memcpy(&bytes[i * sizeof(T)], &value, sizeof(T));
  }
  return bytes;
}

// The content from raw_data, or from the typed field that belongs to `dtype`.
std::string TakeBytes(DType dtype, onnx::TensorProto* tensor) {
  if (tensor->has_raw_data()) return std::move(*tensor->mutable_raw_data());
  switch (dtype) {
    case DType::kFloat32:
      return Packed<float>(tensor->float_data());
    case DType::kFloat64:
      return Packed<double>(tensor->double_data());
    case DType::kInt32:
      return Packed<int32_t>(tensor->int32_data());
    case DType::kInt64:
      return Packed<int64_t>(tensor->int64_data());
    case DType::kBool:
    case DType::kUint8:
      return Packed<uint8_t>(tensor->int32_data());
    case DType::kBfloat16:
    case DType::kFloat16:
      break;  // refused when the type is read
  }
  return "";
}

// A field that has as many bytes as its length says.
uint32_t TagOf(int field) {
  return WireFormat::MakeTag(field, WireFormat::WIRETYPE_LENGTH_DELIMITED);
}
size_t FieldBytes(size_t length) {
  return 1 + CodedOutputStream::VarintSize64(length) + length;
}
void BeginField(int field, size_t length, CodedOutputStream* out) {
  out->WriteTag(TagOf(field));
  out->WriteVarint64(length);
}

void ClearContent(onnx::TensorProto* tensor) {
  tensor->clear_raw_data();
  tensor->clear_float_data();
  tensor->clear_double_data();
  tensor->clear_int32_data();
  tensor->clear_int64_data();
}

}  // namespace

absl::Status ReadOnnxFile(absl::string_view bytes, onnx::ModelProto* model) {
  if (bytes.empty()) return absl::InvalidArgumentError("the file is empty");
  if (bytes.size() > kFileBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        bytes.size(), " bytes is more than an ONNX file can have (2 GiB)"));
  }
  const std::string other = DescribeOtherFormat(bytes);
  if (!other.empty()) return absl::InvalidArgumentError(other);
  if (IsText(bytes)) return ReadText(bytes, model);
  const bool parsed =
      model->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  const bool has_any = model->has_graph() || model->has_ir_version() ||
                       model->opset_import_size() > 0;
  if (parsed && has_any) return absl::OkStatus();
  return absl::InvalidArgumentError(DescribeBrokenBytes(bytes));
}

absl::Status WriteOnnxFile(
    const absl::flat_hash_map<std::string, absl::string_view>& contents,
    onnx::ModelProto* model, google::protobuf::io::ZeroCopyOutputStream* out) {
  const std::unique_ptr<onnx::GraphProto> graph(model->release_graph());
  google::protobuf::RepeatedPtrField<onnx::TensorProto> tensors;
  tensors.Swap(graph->mutable_initializer());
  const auto tensor_bytes = [&](const onnx::TensorProto& tensor) {
    return tensor.ByteSizeLong() +
           FieldBytes(contents.at(tensor.name()).size());
  };
  size_t graph_bytes = graph->ByteSizeLong();
  for (const onnx::TensorProto& tensor : tensors) {
    graph_bytes += FieldBytes(tensor_bytes(tensor));
  }
  if (model->ByteSizeLong() + FieldBytes(graph_bytes) > kFileBytesMax) {
    return absl::OutOfRangeError("larger than an ONNX file can be (2 GiB)");
  }
  CodedOutputStream coded(out);
  model->SerializeToCodedStream(&coded);
  BeginField(onnx::ModelProto::kGraphFieldNumber, graph_bytes, &coded);
  graph->SerializeToCodedStream(&coded);
  for (const onnx::TensorProto& tensor : tensors) {
    const absl::string_view content = contents.at(tensor.name());
    BeginField(onnx::GraphProto::kInitializerFieldNumber, tensor_bytes(tensor),
               &coded);
    tensor.SerializeToCodedStream(&coded);
    BeginField(onnx::TensorProto::kRawDataFieldNumber, content.size(), &coded);
    coded.WriteRaw(content.data(), static_cast<int>(content.size()));
  }
  coded.Trim();
  return coded.HadError() ? absl::UnavailableError("cannot write the model")
                          : absl::OkStatus();
}

absl::StatusOr<DType> DTypeFromOnnx(int onnx_type) {
  switch (onnx_type) {
    case onnx::TensorProto::FLOAT:
      return DType::kFloat32;
    case onnx::TensorProto::DOUBLE:
      return DType::kFloat64;
    case onnx::TensorProto::INT32:
      return DType::kInt32;
    case onnx::TensorProto::INT64:
      return DType::kInt64;
    case onnx::TensorProto::BOOL:
      return DType::kBool;
    case onnx::TensorProto::UINT8:
      return DType::kUint8;
  }
  const std::string name =
      onnx::TensorProto::DataType_IsValid(onnx_type)
          ? onnx::TensorProto::DataType_Name(
                static_cast<onnx::TensorProto::DataType>(onnx_type))
          : absl::StrCat("number ", onnx_type);
  const bool is_half = onnx_type == onnx::TensorProto::FLOAT16 ||
                       onnx_type == onnx::TensorProto::BFLOAT16;
  return absl::InvalidArgumentError(absl::StrCat(
      "element type ", name, " is not built yet; ",
      is_half ? "export the model in float32: in PyTorch, call model.float() "
                "before torch.onnx.export, and give it float32 inputs"
              : "use FLOAT, DOUBLE, INT32, INT64, BOOL or UINT8"));
}

int DTypeToOnnx(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return onnx::TensorProto::FLOAT;
    case DType::kFloat64:
      return onnx::TensorProto::DOUBLE;
    case DType::kInt32:
      return onnx::TensorProto::INT32;
    case DType::kInt64:
      return onnx::TensorProto::INT64;
    case DType::kBool:
      return onnx::TensorProto::BOOL;
    case DType::kUint8:
      return onnx::TensorProto::UINT8;
    case DType::kBfloat16:
      return onnx::TensorProto::BFLOAT16;
    case DType::kFloat16:
      return onnx::TensorProto::FLOAT16;
  }
  return onnx::TensorProto::UNDEFINED;
}

bool Allows(const onnx::TypeProto_Tensor& declared, DType dtype,
            absl::Span<const int64_t> dims) {
  if (declared.elem_type() != DTypeToOnnx(dtype)) return false;
  if (!declared.has_shape()) return true;
  const auto& shape = declared.shape();
  if (shape.dim_size() != static_cast<int>(dims.size())) return false;
  for (int i = 0; i < shape.dim_size(); ++i) {
    const int64_t dim = shape.dim(i).dim_value();  // 0 where there is none
    if (dim > 0 && dim != dims[i]) return false;
  }
  return true;
}

bool HasValuesInside(const onnx::TensorProto& tensor) {
  return tensor.data_location() != onnx::TensorProto::EXTERNAL &&
         tensor.external_data_size() == 0;
}

std::string ExternalLocation(const onnx::TensorProto& tensor) {
  std::string location;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") location = entry.value();
  }
  return location;
}

onnx::TensorProto WithoutContent(onnx::TensorProto* tensor) {
  const bool has_raw = tensor->has_raw_data();
  std::string raw;
  if (has_raw) raw.swap(*tensor->mutable_raw_data());
  onnx::TensorProto copy = *tensor;
  ClearContent(&copy);
  if (has_raw) tensor->mutable_raw_data()->swap(raw);
  return copy;
}

absl::StatusOr<ConstantTensor> TakeTensor(onnx::TensorProto* tensor) {
  if (!HasValuesInside(*tensor)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its values are in another file, ", Quote(ExternalLocation(*tensor)),
        "; save the model with all weights inside"));
  }
  if (tensor->has_segment()) {
    return absl::InvalidArgumentError("segments are not supported");
  }
  ConstantTensor out;
  SYNCLINE_ASSIGN_OR_RETURN(out.dtype, DTypeFromOnnx(tensor->data_type()));
  out.dims.assign(tensor->dims().begin(), tensor->dims().end());
  for (int64_t dim : out.dims) {
    if (dim < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("dimension ", dim, " is negative"));
    }
  }
  if (!WithinLimits(out.dims)) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape ", DimsToString(out.dims), " is too large"));
  }
  out.bytes = TakeBytes(out.dtype, tensor);
  ClearContent(tensor);
  const size_t expected = ElementCount(out.dims) * DTypeBytes(out.dtype);
  if (out.bytes.size() != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(DescribeTensor(out.dtype, out.dims), " needs ", expected,
                     " bytes, but the file has ", out.bytes.size()));
  }
  return out;
}

void WriteTensor(DType dtype, absl::Span<const int64_t> dims,
                 absl::string_view bytes, onnx::TensorProto* out) {
  out->set_data_type(DTypeToOnnx(dtype));
  out->clear_dims();
  for (int64_t dim : dims) out->add_dims(dim);
  ClearContent(out);
  out->set_raw_data(bytes.data(), bytes.size());
}

}  // namespace syncline

#include "common/model/graph/graph_input_reader.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/model/graph/describe.h"
#include "common/model/graph/onnx_file.h"
#include "onnx/onnx_pb.h"

namespace syncline {

GraphInputReader::GraphInputReader(absl::Span<const std::string> initialize,
                                   absl::Span<const std::string> tables,
                                   const LengthDimension& length,
                                   const onnx::GraphProto& graph,
                                   std::vector<std::string>* problems)
    : initialize_(initialize),
      tables_(tables),
      length_(length),
      problems_(problems) {
  // An input before the one that names the batch may have its symbol too.
  for (const auto& input : graph.input()) {
    const auto& shape = input.type().tensor_type().shape();
    if (batch_symbol_.empty() && shape.dim_size() > 0 &&
        !IsLength(shape.dim(0)) &&
        !absl::c_linear_search(tables_, input.name())) {
      batch_symbol_ = shape.dim(0).dim_param();
    }
  }
}

template <typename... Parts>
void GraphInputReader::Problem(const Parts&... parts) {
  absl::StrAppend(&problems_->emplace_back(), parts...);
}

GraphInput GraphInputReader::Read(const onnx::ValueInfoProto& input) {
  const std::string label = absl::StrCat("graph input ", Quote(input.name()));
  Value value;
  value.name = input.name();
  value.kind = Value::Kind::kInput;
  value.known = false;
  if (!input.type().has_tensor_type()) {
    Problem(label, " is not a tensor");
  } else if (const auto dtype =
                 DTypeFromOnnx(input.type().tensor_type().elem_type());
             !dtype.ok()) {
    Problem(label, ": ", dtype.status().message());
  } else {
    value.dtype = *dtype;
    value.known = ReadDims(input, &value);
  }
  // The open first dimension of a table is its number of rows, not a batch.
  const bool is_table = value.known && IsTable(value);
  if (is_table && value.dims[0] == kBatchDim) value.dims[0] = 0;
  const bool is_declared = is_table || (value.known && IsFilledByRule(value));
  return {std::move(value), is_declared};
}

bool GraphInputReader::ReadDims(const onnx::ValueInfoProto& input,
                                Value* value) {
  Dims* const dims = &value->dims;
  const std::string label = absl::StrCat("graph input ", Quote(input.name()));
  if (!input.type().tensor_type().has_shape()) {
    Problem(label, " has no shape");
    return false;
  }
  for (const auto& dim : input.type().tensor_type().shape().dim()) {
    if (dim.has_dim_value() && dim.dim_value() > 0) {
      dims->push_back(dim.dim_value());
      continue;
    }
    if (IsLength(dim)) {
      if (dims->empty()) {
        Problem(label, ": its first dimension is the batch, but ",
                Quote(length_.symbol), " is the length of samples");
        return false;
      }
      // A shorter sample is padded at its end, whatever its shape.
      if (std::any_of(dims->begin() + 1, dims->end(),
                      [](int64_t dim) { return dim != 1; })) {
        Problem(label, ": ", Quote(length_.symbol),
                ", the length of samples, "
                "is its dimension ",
                dims->size(),
                ", and must be the first behind the batch: samples are padded "
                "at their end. Transpose inside the model");
        return false;
      }
      value->length_mask |= 1u << std::min<size_t>(dims->size(), 31);
      dims->push_back(length_.longest);
      continue;
    }
    const bool is_batch = dims->empty() || (!dim.dim_param().empty() &&
                                            dim.dim_param() == batch_symbol_);
    if (!is_batch) {
      Problem(label, ": dimension ", dims->size(), " is open (",
              Quote(dim.has_dim_value() ? absl::StrCat(dim.dim_value())
                                        : dim.dim_param()),
              "); only the first, the batch, may be",
              length_.symbol.empty()
                  ? ", and one that data.buckets names"
                  : absl::StrCat(", and ", Quote(length_.symbol),
                                 ", the length of samples"));
      return false;
    }
    dims->push_back(kBatchDim);
  }
  if (!WithinLimits(*dims)) {
    Problem(label, ": shape ", DimsToString(*dims), " is too large");
    return false;
  }
  return true;
}

bool GraphInputReader::IsTable(const Value& value) const {
  return value.dtype == DType::kFloat32 && value.dims.size() == 2 &&
         value.length_mask == 0 && value.dims[1] != kBatchDim &&
         absl::c_linear_search(tables_, value.name);
}

bool GraphInputReader::IsFilledByRule(const Value& value) const {
  if (value.dtype != DType::kFloat32 || value.length_mask != 0 ||
      absl::c_linear_search(value.dims, kBatchDim)) {
    return false;
  }
  return std::any_of(initialize_.begin(), initialize_.end(),
                     [&](const std::string& pattern) {
                       return MatchesPattern(pattern, value.name);
                     });
}

bool GraphInputReader::IsLength(
    const onnx::TensorShapeProto::Dimension& dim) const {
  return !length_.symbol.empty() && dim.dim_param() == length_.symbol;
}

}  // namespace syncline

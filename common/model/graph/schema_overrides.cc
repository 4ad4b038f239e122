#include "common/model/graph/schema_overrides.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/model/graph/einsum.h"
#include "common/model/graph/graph.h"
#include "common/model/graph/resize.h"
#include "onnx/defs/schema.h"
#include "onnx/defs/tensor_proto_util.h"

namespace syncline {
namespace {

using onnx::AttributeProto;
using onnx::InferenceContext;
using onnx::OpSchema;

constexpr auto kOptional = OpSchema::Optional;

std::vector<std::string> Floats() {
  return {"tensor(float16)", "tensor(float)", "tensor(double)"};
}

OpSchema Named(const char* name, int version) {
  OpSchema schema(name, __FILE__, __LINE__);
  schema.SinceVersion(version);
  return schema;
}

// Element by element, from X to Y.
OpSchema Activation(const char* name, int version) {
  return Named(name, version)
      .Input(0, "X", "", "T")
      .Output(0, "Y", "", "T")
      .TypeConstraint("T", Floats(), "")
      .TypeAndShapeInferenceFunction(onnx::propagateShapeAndTypeFromFirstInput);
}

OpSchema Gelu() {
  return Activation("Gelu", 20)
      .Attr("approximate", "", AttributeProto::STRING, std::string("none"));
}

OpSchema Swish() {
  return Activation("Swish", 24).Attr("alpha", "", AttributeProto::FLOAT, 1.0f);
}

// The attributes say how float8 is reached, which no value is.
OpSchema Cast(int version) {
  OpSchema schema = Named("Cast", version);
  schema.Attr("to", "", AttributeProto::INT)
      .Attr("saturate", "", AttributeProto::INT, int64_t{1})
      .Input(0, "input", "", "T1")
      .Output(0, "output", "", "T2")
      .TypeConstraint("T1", OpSchema::all_tensor_types_with_bfloat(), "")
      .TypeConstraint("T2", OpSchema::all_tensor_types_with_bfloat(), "")
      .TypeAndShapeInferenceFunction([](InferenceContext& context) {
        onnx::propagateElemTypeFromAttributeToOutput(context, "to", 0);
        if (onnx::hasInputShape(context, 0)) {
          onnx::propagateShapeFromInputToOutput(context, 0, 0);
        }
      });
  if (version >= 24) {
    schema.Attr("round_mode", "", AttributeProto::STRING, std::string("up"));
  }
  return schema;
}

// As Cast: newer attributes say how float8 is reached.
OpSchema CastLike(int version) {
  OpSchema schema = Named("CastLike", version);
  schema.Attr("saturate", "", AttributeProto::INT, int64_t{1})
      .Input(0, "input", "", "T1")
      .Input(1, "target_type", "", "T2")
      .Output(0, "output", "", "T2")
      .TypeConstraint("T1", OpSchema::all_tensor_types_with_bfloat(), "")
      .TypeConstraint("T2", OpSchema::all_tensor_types_with_bfloat(), "")
      .TypeAndShapeInferenceFunction([](InferenceContext& context) {
        onnx::propagateElemTypeFromInputToOutput(context, 1, 0);
        if (onnx::hasInputShape(context, 0)) {
          onnx::propagateShapeFromInputToOutput(context, 0, 0);
        }
      });
  if (version >= 24) {
    schema.Attr("round_mode", "", AttributeProto::STRING, std::string("up"));
  }
  return schema;
}

// libonnx tells the output's type only.
OpSchema Ordering(const char* name, int version) {
  return Named(name, version)
      .Input(0, "A", "", "T")
      .Input(1, "B", "", "T")
      .Output(0, "C", "", "T1")
      .TypeConstraint("T", OpSchema::all_numeric_types_with_bfloat(), "")
      .TypeConstraint("T1", {"tensor(bool)"}, "")
      .TypeAndShapeInferenceFunction([](InferenceContext& context) {
        onnx::updateOutputElemType(context, 0, onnx::TensorProto::BOOL);
        if (!onnx::hasNInputShapes(context, 2)) return;
        onnx::bidirectionalBroadcastShapeInference(
            onnx::getInputShape(context, 0), onnx::getInputShape(context, 1),
            *context.getOutputType(0)->mutable_tensor_type()->mutable_shape());
      });
}

// An input that rules read by value, of int32 or int64; nothing if it is not
// known.
std::optional<std::vector<int64_t>> Whole(InferenceContext& context, size_t i) {
  const onnx::TensorProto* const values =
      i < context.getNumInputs() ? context.getInputData(i) : nullptr;
  if (values == nullptr) return std::nullopt;
  if (values->data_type() == onnx::TensorProto::INT64) {
    return onnx::ParseData<int64_t>(values);
  }
  const std::vector<int32_t> narrow = onnx::ParseData<int32_t>(values);
  return std::vector<int64_t>(narrow.begin(), narrow.end());
}

void InferPad(InferenceContext& context) {
  onnx::propagateElemTypeFromInputToOutput(context, 0, 0);
  if (!onnx::hasInputShape(context, 0)) return;
  const auto& shape = onnx::getInputShape(context, 0);
  const int rank = shape.dim_size();
  const auto pads = Whole(context, 1);
  auto given_axes = Whole(context, 3);
  if (context.getNumInputs() <= 3 || context.getInputType(3) == nullptr) {
    given_axes.emplace(rank);
    std::iota(given_axes->begin(), given_axes->end(), 0);
  }
  if (!pads.has_value() || !given_axes.has_value()) return;
  const std::vector<int64_t>& axes = *given_axes;
  if (pads->size() != 2 * axes.size()) {
    fail_shape_inference("there are ", pads->size(), " pads, but ", axes.size(),
                         " axes, which have two each");
  }
  auto* out = context.getOutputType(0)->mutable_tensor_type()->mutable_shape();
  *out = shape;
  constexpr int64_t kPadMax = int64_t{1} << 46;
  std::vector<bool> named(rank, false);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
    if (axis < 0 || axis >= rank) {
      fail_shape_inference("axis ", axes[i], " is outside the input's ", rank,
                           " dimensions");
    }
    if (named[axis]) {
      fail_shape_inference("axes name dimension ", axis, " twice");
    }
    named[axis] = true;
    auto* dim = out->mutable_dim(static_cast<int>(axis));
    for (const int64_t pad : {(*pads)[i], (*pads)[axes.size() + i]}) {
      if (pad < -kPadMax || pad > kPadMax) {
        fail_shape_inference("a pad of ", pad, " is too large");
      }
      dim->set_dim_value(dim->dim_value() + pad);
    }
  }
}

// libonnx adds pads up without a look at overflow. From 18 on axes may be
// named.
OpSchema Pad(int version) {
  OpSchema schema = Named("Pad", version);
  schema.Attr("mode", "", AttributeProto::STRING, std::string("constant"))
      .Input(0, "data", "", "T")
      .Input(1, "pads", "", "tensor(int64)")
      .Input(2, "constant_value", "", "T", kOptional)
      .Output(0, "output", "", "T")
      .TypeConstraint("T", OpSchema::all_tensor_types_with_bfloat(), "")
      .TypeAndShapeInferenceFunction(InferPad);
  if (version >= 18) {
    schema.Input(3, "axes", "", "Tind", kOptional)
        .TypeConstraint("Tind", {"tensor(int32)", "tensor(int64)"}, "");
  }
  return schema;
}

OpSchema RmsNormalization() {
  return Named("RMSNormalization", 23)
      .Attr("axis", "", AttributeProto::INT, int64_t{-1})
      .Attr("epsilon", "", AttributeProto::FLOAT, 1e-5f)
      .Attr("stash_type", "", AttributeProto::INT, int64_t{1})
      .Input(0, "X", "", "T")
      .Input(1, "scale", "", "V")
      .Output(0, "Y", "", "V")
      .TypeConstraint("T", Floats(), "")
      .TypeConstraint("V", Floats(), "")
      .TypeAndShapeInferenceFunction([](InferenceContext& context) {
        onnx::propagateElemTypeFromInputToOutput(context, 1, 0);
        onnx::propagateShapeFromInputToOutput(context, 0, 0);
      });
}

// Sizes of the parts: as the second input says, else equal ones of which the
// last may be smaller. Empty: cannot be told.
std::vector<int64_t> SplitSizes(InferenceContext& context, int64_t whole) {
  if (context.getNumInputs() > 1 && context.getInputType(1) != nullptr) {
    const onnx::TensorProto* sizes = context.getInputData(1);
    return sizes == nullptr ? std::vector<int64_t>()
                            : onnx::ParseData<int64_t>(sizes);
  }
  const auto* attribute = context.getAttribute("num_outputs");
  const int64_t count = attribute != nullptr
                            ? attribute->i()
                            : static_cast<int64_t>(context.getNumOutputs());
  if (count < 1 || count > static_cast<int64_t>(context.getNumOutputs())) {
    fail_shape_inference("num_outputs is ", count, ", but there are ",
                         context.getNumOutputs(), " outputs");
  }
  const int64_t each = whole / count + (whole % count != 0);
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < count; ++i) {
    sizes.push_back(std::min(each, whole - std::min(whole, i * each)));
  }
  return sizes;
}

void InferSplit(InferenceContext& context) {
  for (size_t i = 0; i < context.getNumOutputs(); ++i) {
    onnx::propagateElemTypeFromInputToOutput(context, 0, i);
  }
  if (!onnx::hasInputShape(context, 0)) return;
  const auto& shape = onnx::getInputShape(context, 0);
  int64_t axis = onnx::getAttribute(context, "axis", 0);
  const int rank = shape.dim_size();
  if (axis < -rank || axis >= rank) {
    fail_shape_inference("axis ", axis, " is outside the input's ", rank,
                         " dimensions");
  }
  if (axis < 0) axis += rank;
  const int64_t whole = shape.dim(static_cast<int>(axis)).dim_value();
  const std::vector<int64_t> sizes = SplitSizes(context, whole);
  if (sizes.empty()) return;
  if (sizes.size() != context.getNumOutputs()) {
    fail_shape_inference("there are ", sizes.size(), " parts, but ",
                         context.getNumOutputs(), " outputs");
  }
  int64_t left = whole;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || sizes[i] > left) {
      fail_shape_inference("the parts do not add up to ", whole);
    }
    left -= sizes[i];
    auto* out = context.getOutputType(i)->mutable_tensor_type();
    *out->mutable_shape() = shape;
    out->mutable_shape()
        ->mutable_dim(static_cast<int>(axis))
        ->set_dim_value(sizes[i]);
  }
  if (left != 0) fail_shape_inference("the parts do not add up to ", whole);
}

OpSchema Split() {
  return Named("Split", 18)
      .Attr("axis", "", AttributeProto::INT, int64_t{0})
      .Attr("num_outputs", "", AttributeProto::INT, false)
      .Input(0, "input", "", "T")
      .Input(1, "split", "", "tensor(int64)", kOptional)
      .Output(0, "outputs", "", "T", OpSchema::Variadic)
      .TypeConstraint("T", OpSchema::all_tensor_types_with_bfloat(), "")
      .TypeAndShapeInferenceFunction(InferSplit);
}

OpSchema RotaryEmbedding() {
  return Named("RotaryEmbedding", 23)
      .Attr("interleaved", "", AttributeProto::INT, int64_t{0})
      .Attr("num_heads", "", AttributeProto::INT, false)
      .Attr("rotary_embedding_dim", "", AttributeProto::INT, int64_t{0})
      .Input(0, "X", "", "T")
      .Input(1, "cos_cache", "", "T")
      .Input(2, "sin_cache", "", "T")
      .Input(3, "position_ids", "", "M", kOptional)
      .Output(0, "Y", "", "T")
      .TypeConstraint("T", Floats(), "")
      .TypeConstraint("M", {"tensor(int64)"}, "")
      .TypeAndShapeInferenceFunction(onnx::propagateShapeAndTypeFromFirstInput);
}

// An array as [batch, heads, rows, width].
struct HeadsShape {
  int64_t batch, heads, rows, width;
};
HeadsShape ReadHeads(InferenceContext& context, size_t input,
                     const char* attribute) {
  const auto& shape = onnx::getInputShape(context, input);
  const auto dim = [&](int i) { return shape.dim(i).dim_value(); };
  if (shape.dim_size() == 4) return {dim(0), dim(1), dim(2), dim(3)};
  const int64_t heads = onnx::getAttribute(context, attribute, 0);
  if (shape.dim_size() != 3 || heads <= 0 || dim(2) % heads != 0) {
    fail_shape_inference("input ", input, " must have 4 dimensions, or 3 and ",
                         attribute, ", which divides the last");
  }
  return {dim(0), heads, dim(1), dim(2) / heads};
}

void SetShape(InferenceContext& context, size_t output,
              std::initializer_list<int64_t> dims) {
  if (output >= context.getNumOutputs()) return;
  onnx::propagateElemTypeFromInputToOutput(context, 0, output);
  auto* const shape =
      context.getOutputType(output)->mutable_tensor_type()->mutable_shape();
  for (const int64_t dim : dims) shape->add_dim()->set_dim_value(dim);
}

// Y is as Q, with the width of V's heads.
void InferAttention(InferenceContext& context) {
  for (size_t i = 0; i < 3; ++i) {
    if (!onnx::hasInputShape(context, i)) return;
  }
  const HeadsShape q = ReadHeads(context, 0, "q_num_heads");
  const HeadsShape k = ReadHeads(context, 1, "kv_num_heads");
  const HeadsShape v = ReadHeads(context, 2, "kv_num_heads");
  int64_t keys = k.rows;
  if (onnx::hasInputShape(context, 4)) {
    const auto& past = onnx::getInputShape(context, 4);
    if (past.dim_size() != 4) {
      fail_shape_inference("past_key must have 4 dimensions");
    }
    keys += past.dim(2).dim_value();
  }
  constexpr int64_t kWidthMax = int64_t{1} << 46;
  if (q.heads > kWidthMax / std::max<int64_t>(1, v.width)) {
    fail_shape_inference("q_num_heads ", q.heads, " is too large");
  }
  if (onnx::getInputShape(context, 0).dim_size() == 3) {
    SetShape(context, 0, {q.batch, q.rows, q.heads * v.width});
  } else {
    SetShape(context, 0, {q.batch, q.heads, q.rows, v.width});
  }
  SetShape(context, 1, {k.batch, k.heads, keys, k.width});
  SetShape(context, 2, {v.batch, v.heads, keys, v.width});
  SetShape(context, 3, {q.batch, q.heads, q.rows, keys});
}

OpSchema Attention(int version) {
  OpSchema schema = Named("Attention", version);
  schema.Attr("is_causal", "", AttributeProto::INT, int64_t{0})
      .Attr("kv_num_heads", "", AttributeProto::INT, false)
      .Attr("q_num_heads", "", AttributeProto::INT, false)
      .Attr("qk_matmul_output_mode", "", AttributeProto::INT, int64_t{0})
      .Attr("scale", "", AttributeProto::FLOAT, false)
      .Attr("softcap", "", AttributeProto::FLOAT, 0.0f)
      .Attr("softmax_precision", "", AttributeProto::INT, false)
      .Input(0, "Q", "", "T1")
      .Input(1, "K", "", "T1")
      .Input(2, "V", "", "T2")
      .Input(3, "attn_mask", "", "U", kOptional)
      .Input(4, "past_key", "", "T1", kOptional)
      .Input(5, "past_value", "", "T2", kOptional);
  if (version >= 24) {
    schema.Input(6, "nonpad_kv_seqlen", "", "tensor(int64)", kOptional);
  }
  return schema.Output(0, "Y", "", "T1")
      .Output(1, "present_key", "", "T1", kOptional)
      .Output(2, "present_value", "", "T2", kOptional)
      .Output(3, "qk_matmul_output", "", "T1", kOptional)
      .TypeConstraint("T1", Floats(), "")
      .TypeConstraint("T2", Floats(), "")
      .TypeConstraint("U", OpSchema::all_tensor_types_with_bfloat(), "")
      .TypeAndShapeInferenceFunction(InferAttention);
}

void InferEinsum(InferenceContext& context) {
  onnx::propagateElemTypeFromInputToOutput(context, 0, 0);
  std::vector<Dims> operands;
  for (size_t i = 0; i < context.getNumInputs(); ++i) {
    if (!onnx::hasInputShape(context, i)) return;
    operands.emplace_back();
    for (const auto& dim : onnx::getInputShape(context, i).dim()) {
      operands.back().push_back(dim.dim_value());
    }
  }
  const auto* equation = context.getAttribute("equation");
  const auto labels =
      ParseEinsum(equation == nullptr ? "" : equation->s(), operands);
  if (!labels.ok()) {
    fail_shape_inference(std::string(labels.status().message()));
  }
  auto* shape =
      context.getOutputType(0)->mutable_tensor_type()->mutable_shape();
  for (const int64_t dim : labels->DimsOf(labels->output)) {
    shape->add_dim()->set_dim_value(dim);
  }
}

// libonnx tells the output's rank only.
OpSchema Einsum() {
  return Named("Einsum", 12)
      .Attr("equation", "", AttributeProto::STRING)
      .Input(0, "Inputs", "", "T", OpSchema::Variadic)
      .Output(0, "Output", "", "T")
      .TypeConstraint("T", OpSchema::all_numeric_types(), "")
      .TypeAndShapeInferenceFunction(InferEinsum);
}

// Resize's inputs, as far as they are known; an empty one is absent or not
// known.
ResizeGiven GivenTo(InferenceContext& context) {
  ResizeGiven given;
  const onnx::TensorProto* const scales =
      context.getNumInputs() > 2 ? context.getInputData(2) : nullptr;
  if (scales != nullptr) given.scales = onnx::ParseData<float>(scales);
  const auto sizes = Whole(context, 3);
  if (sizes.has_value()) given.sizes = *sizes;
  onnx::getRepeatedAttribute(context, "axes", given.axes);
  const auto* policy = context.getAttribute("keep_aspect_ratio_policy");
  if (policy != nullptr) given.aspect_ratio = policy->s();
  return given;
}

void InferResize(InferenceContext& context) {
  onnx::propagateElemTypeFromInputToOutput(context, 0, 0);
  if (!onnx::hasInputShape(context, 0)) return;
  const ResizeGiven given = GivenTo(context);
  if (given.scales.empty() && given.sizes.empty()) return;  // not known
  const auto& shape = onnx::getInputShape(context, 0);
  Dims dims;
  for (const auto& dim : shape.dim()) dims.push_back(dim.dim_value());
  const auto axes = ResizedAxes(given, dims);
  if (!axes.ok()) fail_shape_inference(std::string(axes.status().message()));
  auto* out = context.getOutputType(0)->mutable_tensor_type()->mutable_shape();
  *out = shape;
  for (const ResizedAxis& axis : *axes) {
    out->mutable_dim(static_cast<int>(axis.axis))->set_dim_value(axis.size);
  }
}

// libonnx knows neither axes nor policies, which came with 18.
OpSchema Resize(int version) {
  OpSchema schema = Named("Resize", version);
  schema
      .Attr("coordinate_transformation_mode", "", AttributeProto::STRING,
            std::string("half_pixel"))
      .Attr("cubic_coeff_a", "", AttributeProto::FLOAT, -0.75f)
      .Attr("exclude_outside", "", AttributeProto::INT, int64_t{0})
      .Attr("extrapolation_value", "", AttributeProto::FLOAT, 0.0f)
      .Attr("mode", "", AttributeProto::STRING, std::string("nearest"))
      .Attr("nearest_mode", "", AttributeProto::STRING,
            std::string("round_prefer_floor"))
      .Input(0, "X", "", "T1")
      .Input(1, "roi", "", "T2", kOptional)
      .Input(2, "scales", "", "tensor(float)", kOptional)
      .Input(3, "sizes", "", "tensor(int64)", kOptional)
      .Output(0, "Y", "", "T1")
      .TypeConstraint("T1", OpSchema::all_tensor_types_with_bfloat(), "")
      .TypeConstraint("T2", Floats(), "")
      .TypeAndShapeInferenceFunction(InferResize);
  if (version >= 18) {
    schema.Attr("antialias", "", AttributeProto::INT, int64_t{0})
        .Attr("axes", "", AttributeProto::INTS, false)
        .Attr("keep_aspect_ratio_policy", "", AttributeProto::STRING,
              std::string("stretch"));
  }
  return schema;
}

// Scale and bias are per group in 18, per channel from 21 on.
OpSchema GroupNormalization(int version) {
  OpSchema schema = Named("GroupNormalization", version);
  schema.Attr("epsilon", "", AttributeProto::FLOAT, 1e-5f)
      .Attr("num_groups", "", AttributeProto::INT)
      .Input(0, "X", "", "T")
      .Input(1, "scale", "", "T")
      .Input(2, "bias", "", "T")
      .Output(0, "Y", "", "T")
      .TypeConstraint("T", Floats(), "")
      .TypeAndShapeInferenceFunction(onnx::propagateShapeAndTypeFromFirstInput);
  if (version >= 21) {
    schema.Attr("stash_type", "", AttributeProto::INT, int64_t{1});
  }
  return schema;
}

}  // namespace

const onnx::OpSchema* FindSchemaOverride(absl::string_view op_type,
                                         int since_version) {
  static const auto* const schemas = [] {
    auto* all = new std::vector<OpSchema>{Attention(23),
                                          Attention(24),
                                          Cast(19),
                                          Cast(24),
                                          CastLike(19),
                                          CastLike(24),
                                          Einsum(),
                                          Gelu(),
                                          Ordering("GreaterOrEqual", 12),
                                          Ordering("GreaterOrEqual", 16),
                                          Ordering("LessOrEqual", 12),
                                          Ordering("LessOrEqual", 16),
                                          GroupNormalization(18),
                                          GroupNormalization(21),
                                          Activation("Mish", 18),
                                          Activation("Mish", 22),
                                          Pad(11),
                                          Pad(13),
                                          Pad(18),
                                          Resize(11),
                                          Resize(13),
                                          Resize(18),
                                          RmsNormalization(),
                                          RotaryEmbedding(),
                                          Split(),
                                          Swish()};
    for (OpSchema& schema : *all) schema.Finalize();
    return all;
  }();
  const OpSchema* newest = nullptr;
  for (const OpSchema& schema : *schemas) {
    const bool fits =
        schema.Name() == op_type && schema.SinceVersion() <= since_version;
    if (fits &&
        (newest == nullptr || newest->SinceVersion() < schema.SinceVersion())) {
      newest = &schema;
    }
  }
  return newest;
}

}  // namespace syncline

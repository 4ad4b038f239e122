#include "kernels/convolution.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/aligned_buffer.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/loop.h"

namespace syncline {
namespace {

using dnnl::memory;
using Dims = memory::dims;
constexpr auto kDirect = dnnl::algorithm::convolution_direct;

// Samples are computed in parts whose arrays, rewritten, are about as large:
// they stay in a core's cache, and scratch memory small.
constexpr int64_t kPartBytes = 8 << 20;
// Fewer at a time leave threads without work.
constexpr int64_t kPartSamplesMin = 4;

memory::desc RowMajor(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return memory::desc(dims, memory::data_type::f32, strides);
}

// [batch, channels / block, spatial..., block]
memory::desc InBlocks(const Dims& dims, int64_t block) {
  if (block == 1) return RowMajor(dims);
  using Tag = memory::format_tag;
  const Tag tag = dims.size() == 3 ? block == 16 ? Tag::nCw16c : Tag::nCw8c
                  : block == 16    ? Tag::nChw16c
                                   : Tag::nChw8c;
  return memory::desc(dims, memory::data_type::f32, tag);
}

memory::desc AnyLayout(const Dims& dims) {
  return memory::desc(dims, memory::data_type::f32, memory::format_tag::any);
}

absl::Status Failed(absl::string_view what) {
  return absl::InternalError(absl::StrCat("convolution: oneDNN ", what));
}

// A convolution as oneDNN sees it.
struct Geometry {
  explicit Geometry(const Convolution::Shape& s)
      : x({s.batch, s.channels}),
        y({s.batch, s.filters}),
        bias({s.filters}),
        x_block(s.x_block),
        y_block(s.y_block) {
    if (s.groups > 1) {
      w = {s.groups, s.filters / s.groups, s.channels / s.groups};
    } else {
      w = {s.filters, s.channels};
    }
    for (const Window::Axis& axis : s.window.axes) {
      x.push_back(axis.in);
      y.push_back(axis.out);
      w.push_back(axis.kernel);
      strides.push_back(axis.stride);
      dilations.push_back(axis.dilation - 1);
      pads_begin.push_back(axis.pad_begin);
      pads_end.push_back(axis.pad_end);
    }
  }
  // As the caller has them.
  memory::desc X() const { return InBlocks(x, x_block); }
  memory::desc Y() const { return InBlocks(y, y_block); }
  memory::desc W() const { return RowMajor(w); }
  memory::desc Bias() const { return RowMajor(bias); }

  Dims x, y, w, bias, strides, dilations, pads_begin, pads_end;
  int64_t x_block, y_block;
};

// One of the caller's arrays, and its copy in scratch memory in the primitive's
// layout, where that is another.
struct Operand {
  int id = 0;  // DNNL_ARG_...
  memory given;
  memory staged;
  bool same_layout = false;
  int64_t scratch_offset = 0;
  int64_t count = 0;
  dnnl::reorder copy;  // in, or of a result out
  dnnl::reorder add;   // of a result
};

int64_t ElementsOf(const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1},
                         std::multiplies<>());
}

// How many parts of equal size a batch is computed in where its arrays are
// rewritten. Each costs its share of adding up the gradient of the weights.
int64_t PartsOf(const Convolution::Shape& shape) {
  const Geometry g(shape);
  const int64_t floats = ElementsOf(g.x) + ElementsOf(g.y);
  const int64_t most = std::min(shape.batch / kPartSamplesMin,
                                floats / (2 * ElementsOf(g.w) + 1));
  const int64_t bytes = floats * int64_t{sizeof(float)};
  const int64_t wanted = std::min((bytes + kPartBytes - 1) / kPartBytes, most);
  for (int64_t parts = wanted; parts <= most && parts > 1; ++parts) {
    if (shape.batch % parts == 0) return parts;
  }
  return 1;
}

struct Result {
  float* data = nullptr;  // null: not wanted
  bool accumulate = false;
};

// Inputs that are in scratch memory already, for Operation::Run.
constexpr uint32_t kFirst = 1 << 0;
constexpr uint32_t kWeights = 1 << 1;  // of Forward and BackwardData

// A primitive with its operands and what surrounds it.
class Operation {
 public:
  explicit Operation(const dnnl::engine& engine) : engine_(engine) {}

  void SetPrimitive(dnnl::primitive primitive, const memory::desc& scratchpad) {
    primitive_ = std::move(primitive);
    scratchpad_ = memory(scratchpad, engine_, nullptr);
    scratchpad_offset_ = Reserve(scratchpad.get_size());
  }
  void AddInput(int id, const memory::desc& given, const memory::desc& layout) {
    Operand& in = inputs_.emplace_back(MakeOperand(id, given, layout));
    if (in.same_layout) return;
    in.scratch_offset = Reserve(layout.get_size());
    in.copy = dnnl::reorder(in.given, in.staged);
  }
  // A result may have to be added: then it is computed in scratch memory.
  void AddResult(int id, const memory::desc& given,
                 const memory::desc& layout) {
    Operand& out = results_.emplace_back(MakeOperand(id, given, layout));
    out.scratch_offset = Reserve(layout.get_size());
    if (out.same_layout) return;
    out.copy = dnnl::reorder(out.staged, out.given);
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(sum);
    out.add = dnnl::reorder(dnnl::reorder::primitive_desc(
        engine_, layout, engine_, out.given.get_desc(), attributes));
  }

  int64_t scratch_bytes() const { return scratch_bytes_; }
  // True if arrays of samples are rewritten; weights always may be.
  bool RewritesSamples() const {
    const auto rewritten = [](const Operand& o) {
      const bool of_samples = o.id == DNNL_ARG_SRC || o.id == DNNL_ARG_DST ||
                              o.id == DNNL_ARG_DIFF_SRC ||
                              o.id == DNNL_ARG_DIFF_DST;
      return of_samples && !o.same_layout;
    };
    return absl::c_any_of(inputs_, rewritten) ||
           absl::c_any_of(results_, rewritten);
  }

  // True if `other` leaves its first input in scratch memory in the place and
  // layout in which this operation wants its own.
  bool StagesFirstInputLike(const Operation& other) const {
    const Operand& a = inputs_.front();
    const Operand& b = other.inputs_.front();
    return !a.same_layout && a.scratch_offset == b.scratch_offset &&
           a.staged.get_desc() == b.staged.get_desc();
  }

  // In the order in which they were added. Bit i of `staged`: input i is in
  // scratch memory already, if it is rewritten at all.
  absl::Status Run(const dnnl::stream& stream,
                   std::initializer_list<const float*> inputs,
                   std::initializer_list<Result> results, char* scratch,
                   uint32_t staged = 0) {
    std::vector<dnnl_exec_arg_t>& args = args_;
    args.clear();
    auto in = inputs.begin();
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Operand& operand = inputs_[i];
      if (!operand.same_layout && (staged >> i & 1) != 0) {
        operand.staged.set_data_handle(scratch + operand.scratch_offset);
        ++in;
      } else {
        SYNCLINE_RETURN_IF_ERROR(Stage(stream, operand, *in++, scratch));
      }
      args.push_back(
          {operand.id,
           (operand.same_layout ? operand.given : operand.staged).get()});
    }
    auto out = results.begin();
    for (Operand& operand : results_) {
      operand.given.set_data_handle(out->data);
      operand.staged.set_data_handle(scratch + operand.scratch_offset);
      const bool direct =
          operand.same_layout && out->data != nullptr && !out->accumulate;
      args.push_back(
          {operand.id, (direct ? operand.given : operand.staged).get()});
      ++out;
    }
    scratchpad_.set_data_handle(scratch + scratchpad_offset_);
    args.push_back({DNNL_ARG_SCRATCHPAD, scratchpad_.get()});
    SYNCLINE_RETURN_IF_ERROR(Execute(stream, primitive_, args));
    out = results.begin();
    for (Operand& operand : results_) {
      SYNCLINE_RETURN_IF_ERROR(HandOver(stream, operand, *out++));
    }
    return absl::OkStatus();
  }

 private:
  Operand MakeOperand(int id, const memory::desc& given,
                      const memory::desc& layout) {
    Operand operand;
    operand.id = id;
    operand.given = memory(given, engine_, nullptr);
    operand.staged = memory(layout, engine_, nullptr);
    operand.same_layout = given == layout;
    operand.count = static_cast<int64_t>(given.get_size() / sizeof(float));
    return operand;
  }

  int64_t Reserve(size_t bytes) {
    const int64_t at = scratch_bytes_;
    scratch_bytes_ += static_cast<int64_t>((bytes + kCacheLineBytes - 1) /
                                           kCacheLineBytes * kCacheLineBytes);
    return at;
  }

  // Through the C interface: the C++ one builds a hash map on every call.
  static absl::Status Execute(const dnnl::stream& stream,
                              const dnnl::primitive& primitive,
                              absl::Span<const dnnl_exec_arg_t> args) {
    const dnnl_status_t status =
        dnnl_primitive_execute(primitive.get(), stream.get(),
                               static_cast<int>(args.size()), args.data());
    if (status == dnnl_success) return absl::OkStatus();
    return Failed(absl::StrCat("failed with status ", status));
  }

  static absl::Status Reorder(const dnnl::stream& stream,
                              const dnnl::reorder& reorder, const memory& from,
                              const memory& to) {
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from.get()},
                                    {DNNL_ARG_TO, to.get()}};
    return Execute(stream, reorder, args);
  }

  static absl::Status Stage(const dnnl::stream& stream, Operand& operand,
                            const float* data, char* scratch) {
    operand.given.set_data_handle(const_cast<float*>(data));
    if (operand.same_layout) return absl::OkStatus();
    operand.staged.set_data_handle(scratch + operand.scratch_offset);
    return Reorder(stream, operand.copy, operand.given, operand.staged);
  }

  static absl::Status HandOver(const dnnl::stream& stream, Operand& operand,
                               const Result& result) {
    if (result.data == nullptr) return absl::OkStatus();
    if (!operand.same_layout) {
      return Reorder(stream, result.accumulate ? operand.add : operand.copy,
                     operand.staged, operand.given);
    }
    if (!result.accumulate) return absl::OkStatus();
    const auto* computed =
        static_cast<const float*>(operand.staged.get_data_handle());
    Emit(operand.count, /*accumulate=*/true, result.data,
         [=](int64_t i) { return computed[i]; });
    return absl::OkStatus();
  }

  dnnl::engine engine_;
  dnnl::primitive primitive_;
  memory scratchpad_;
  int64_t scratchpad_offset_ = 0;
  std::vector<Operand> inputs_;
  std::vector<Operand> results_;
  int64_t scratch_bytes_ = 0;
  std::vector<dnnl_exec_arg_t> args_;  // kept for its memory
};

}  // namespace

struct Convolution::Compiled {
  // `parts` of the shape's batch, one after another, are the caller's.
  Compiled(const Shape& shape, int64_t parts, const Uses& uses)
      : parts(parts),
        has_bias(shape.has_bias),
        engine(dnnl::engine::kind::cpu, 0),
        stream(engine),
        geometry(shape),
        x_count(ElementsOf(geometry.x)),
        y_count(ElementsOf(geometry.y)) {
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const auto hint = ForwardDesc();
    if (uses.forward) CompileForward(hint);
    if (uses.backward_data) CompileBackwardData(hint);
    if (uses.backward_weights) CompileBackwardWeights(hint);
    shares_dy = parts == 1 && backward_data && backward_weights &&
                backward_data->StagesFirstInputLike(*backward_weights);
  }

  bool RewritesSamples() const {
    for (const auto* operation :
         {&forward, &backward_data, &backward_weights}) {
      if (operation->has_value() && (*operation)->RewritesSamples())
        return true;
    }
    return false;
  }

  dnnl::convolution_forward::primitive_desc ForwardDesc() const {
    const Geometry& g = geometry;
    const auto kind = dnnl::prop_kind::forward_training;
    const auto desc =
        has_bias
            ? dnnl::convolution_forward::desc(
                  kind, kDirect, AnyLayout(g.x), AnyLayout(g.w),
                  RowMajor(g.bias), AnyLayout(g.y), g.strides, g.dilations,
                  g.pads_begin, g.pads_end)
            : dnnl::convolution_forward::desc(
                  kind, kDirect, AnyLayout(g.x), AnyLayout(g.w), AnyLayout(g.y),
                  g.strides, g.dilations, g.pads_begin, g.pads_end);
    return {desc, attributes, engine};
  }

  void CompileForward(
      const dnnl::convolution_forward::primitive_desc& primitive) {
    const Geometry& g = geometry;
    forward.emplace(engine);
    forward->AddInput(DNNL_ARG_SRC, g.X(), primitive.src_desc());
    forward->AddInput(DNNL_ARG_WEIGHTS, g.W(), primitive.weights_desc());
    if (has_bias) {
      forward->AddInput(DNNL_ARG_BIAS, g.Bias(), primitive.bias_desc());
    }
    forward->AddResult(DNNL_ARG_DST, g.Y(), primitive.dst_desc());
    forward->SetPrimitive(dnnl::convolution_forward(primitive),
                          primitive.scratchpad_desc());
  }

  void CompileBackwardData(
      const dnnl::convolution_forward::primitive_desc& hint) {
    const Geometry& g = geometry;
    const dnnl::convolution_backward_data::desc desc(
        kDirect, AnyLayout(g.x), AnyLayout(g.w), AnyLayout(g.y), g.strides,
        g.dilations, g.pads_begin, g.pads_end);
    const dnnl::convolution_backward_data::primitive_desc primitive(
        desc, attributes, engine, hint);
    backward_data.emplace(engine);
    backward_data->AddInput(DNNL_ARG_DIFF_DST, g.Y(),
                            primitive.diff_dst_desc());
    backward_data->AddInput(DNNL_ARG_WEIGHTS, g.W(), primitive.weights_desc());
    backward_data->AddResult(DNNL_ARG_DIFF_SRC, g.X(),
                             primitive.diff_src_desc());
    backward_data->SetPrimitive(dnnl::convolution_backward_data(primitive),
                                primitive.scratchpad_desc());
  }

  void CompileBackwardWeights(
      const dnnl::convolution_forward::primitive_desc& hint) {
    const Geometry& g = geometry;
    const dnnl::convolution_backward_weights::desc desc(
        kDirect, AnyLayout(g.x), AnyLayout(g.w), AnyLayout(g.y), g.strides,
        g.dilations, g.pads_begin, g.pads_end);
    const dnnl::convolution_backward_weights::primitive_desc primitive(
        desc, attributes, engine, hint);
    backward_weights.emplace(engine);
    backward_weights->AddInput(DNNL_ARG_DIFF_DST, g.Y(),
                               primitive.diff_dst_desc());
    backward_weights->AddInput(DNNL_ARG_SRC, g.X(), primitive.src_desc());
    backward_weights->AddResult(DNNL_ARG_DIFF_WEIGHTS, g.W(),
                                primitive.diff_weights_desc());
    backward_weights->SetPrimitive(
        dnnl::convolution_backward_weights(primitive),
        primitive.scratchpad_desc());
  }

  const int64_t parts;
  const bool has_bias;
  dnnl::engine engine;
  dnnl::stream stream;
  dnnl::primitive_attr attributes;
  const Geometry geometry;         // of a part
  const int64_t x_count, y_count;  // likewise
  std::optional<Operation> forward, backward_data, backward_weights;
  bool shares_dy = false;  // in scratch memory, from weights to data
};

// Asks for the layout that oneDNN chooses for a usual convolution.
int64_t Convolution::FindBlockOfChannels() {
  const Shape shape = {
      .batch = 1,
      .channels = 64,
      .filters = 64,
      .window = {{{16, 16, 3, 1, 1, 1, 1}, {16, 16, 3, 1, 1, 1, 1}}}};
  const Compiled compiled(shape, /*parts=*/1, Uses());
  const memory::desc preferred = compiled.ForwardDesc().dst_desc();
  for (const int64_t size : {16, 8}) {
    if (preferred == InBlocks(compiled.geometry.y, size)) return size;
  }
  return 1;
}

int64_t Convolution::BlockOfChannels() {
  static const int64_t block = [] {
    try {
      return FindBlockOfChannels();
    } catch (const dnnl::error&) {
      return int64_t{1};
    }
  }();
  return block;
}

absl::StatusOr<Convolution> Convolution::Create(const Shape& shape,
                                                const Uses& uses) {
  try {
    auto whole = std::make_unique<Compiled>(shape, /*parts=*/1, uses);
    const int64_t parts = PartsOf(shape);
    if (parts == 1 || !whole->RewritesSamples()) {
      return Convolution(std::move(whole));
    }
    Shape part = shape;
    part.batch /= parts;
    return Convolution(std::make_unique<Compiled>(part, parts, uses));
  } catch (const dnnl::error& error) {
    return Failed(absl::StrCat("refused: ", error.what()));
  }
}

Convolution::Convolution(std::unique_ptr<Compiled> compiled)
    : compiled_(std::move(compiled)) {}
Convolution::Convolution(Convolution&&) noexcept = default;
Convolution& Convolution::operator=(Convolution&&) noexcept = default;
Convolution::~Convolution() = default;

int64_t Convolution::forward_scratch_bytes() const {
  return compiled_->forward ? compiled_->forward->scratch_bytes() : 0;
}
int64_t Convolution::backward_data_scratch_bytes() const {
  return compiled_->backward_data ? compiled_->backward_data->scratch_bytes()
                                  : 0;
}
int64_t Convolution::backward_weights_scratch_bytes() const {
  return compiled_->backward_weights
             ? compiled_->backward_weights->scratch_bytes()
             : 0;
}

absl::Status Convolution::Forward(const float* x, const float* w,
                                  const float* bias, bool accumulate, float* y,
                                  void* scratch) {
  Compiled& c = *compiled_;
  for (int64_t p = 0; p < c.parts; ++p) {
    SYNCLINE_RETURN_IF_ERROR(
        c.forward->Run(c.stream, {x + p * c.x_count, w, bias},
                       {{y + p * c.y_count, accumulate}},
                       static_cast<char*>(scratch), p > 0 ? kWeights : 0));
  }
  return absl::OkStatus();
}

absl::Status Convolution::BackwardData(const float* dy, const float* w,
                                       bool accumulate, float* dx,
                                       void* scratch, bool after_weights) {
  Compiled& c = *compiled_;
  for (int64_t p = 0; p < c.parts; ++p) {
    const uint32_t staged =
        (after_weights && c.shares_dy ? kFirst : 0) | (p > 0 ? kWeights : 0);
    SYNCLINE_RETURN_IF_ERROR(c.backward_data->Run(
        c.stream, {dy + p * c.y_count, w}, {{dx + p * c.x_count, accumulate}},
        static_cast<char*>(scratch), staged));
  }
  return absl::OkStatus();
}

absl::Status Convolution::BackwardWeights(const float* x, const float* dy,
                                          bool accumulate, float* dw,
                                          void* scratch) {
  Compiled& c = *compiled_;
  for (int64_t p = 0; p < c.parts; ++p) {
    SYNCLINE_RETURN_IF_ERROR(c.backward_weights->Run(
        c.stream, {dy + p * c.y_count, x + p * c.x_count},
        {{dw, accumulate || p > 0}}, static_cast<char*>(scratch)));
  }
  return absl::OkStatus();
}

}  // namespace syncline

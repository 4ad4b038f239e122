#include "worker/compute/operator_fusion.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/device/matrix_product_kernels.h"
#include "worker/ops/fused_op.h"

namespace syncline::worker {
namespace {

constexpr int kNone = -1;

// A product with what may follow it: positions of the flow.
struct Product {
  int product = kNone;
  int add = kNone;       // of a bias
  int function = kNone;  // Relu or Gelu
  // The product that alone reads the function's result; kNone: no gradient is
  // wanted of it.
  int reader = kNone;
  // The value that its input's function keeps, if its producer has that.
  // kNoValue: there is none.
  ValueId kept_input = kNoValue;
  std::string input_function;
};

class Fuser {
 public:
  Fuser(const FusionSpec& spec, CanCompute can_compute)
      : spec_(spec),
        can_compute_(can_compute),
        readers_(spec.graph->values.size()),
        is_output_(spec.graph->values.size(), false),
        products_(spec.flow->nodes.size()),
        fused_(spec.flow->nodes.size()),
        is_part_(spec.flow->nodes.size(), false) {
    result_.graph.name = spec.graph->name;
    result_.graph.opset_version = spec.graph->opset_version;
    result_.graph.values = spec.graph->values;
    result_.graph.nodes = spec.graph->nodes;
    result_.graph.inputs = spec.graph->inputs;
    result_.graph.outputs = spec.graph->outputs;
    result_.shapes.assign(spec.shapes.begin(), spec.shapes.end());
    result_.sources.assign(spec.sources.begin(), spec.sources.end());
    if (spec.sources.empty()) {
      result_.sources.resize(spec.graph->values.size());
      std::iota(result_.sources.begin(), result_.sources.end(), 0);
    }
  }

  FusedGraph Fuse() {
    FindReaders();
    for (int p = 0; p < positions(); ++p) FindProduct(p);
    for (int p = 0; p < positions(); ++p) FindFunction(p);
    for (int p = 0; p < positions(); ++p) FuseProduct(p);
    for (int p = 0; p < positions(); ++p) FuseSum(p);
    Build();
    return std::move(result_);
  }

 private:
  struct Reader {
    int position = 0;
    size_t input = 0;
  };
  // A node that stands for several, at the place of the last of them.
  struct Fused {
    Node node;
    std::vector<bool> wants;
    std::vector<int> parts;  // ascending; empty: there is none
  };

  int positions() const { return static_cast<int>(spec_.flow->nodes.size()); }
  const Node& node(int p) const {
    return spec_.graph->nodes[spec_.flow->nodes[p]];
  }
  const Dims& dims(ValueId v) const { return spec_.shapes[v]; }
  const Value& value(ValueId v) const { return spec_.graph->values[v]; }
  bool IsOf(int p, absl::string_view op_type) const {
    return node(p).domain.empty() && node(p).op_type == op_type;
  }
  bool Wants(int p, size_t input) const {
    const std::vector<bool>& wants = spec_.flow->wants_gradient[p];
    return input < wants.size() && wants[input];
  }

  void FindReaders() {
    for (int p = 0; p < positions(); ++p) {
      const std::vector<ValueId>& inputs = node(p).inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i] != kNoValue) readers_[inputs[i]].push_back({p, i});
      }
    }
    for (const ValueId v : spec_.graph->outputs) is_output_[v] = true;
    is_output_[spec_.loss_output] = true;
  }

  // The only reader of a value that is between two nodes; null: there are
  // several, or it is a result.
  const Reader* OnlyReader(ValueId v) const {
    if (is_output_[v] || readers_[v].size() != 1) return nullptr;
    return &readers_[v][0];
  }

  // A parameter or a constant, that is added to each row of n elements.
  bool IsBias(ValueId v, int64_t n) const {
    return value(v).initializer >= 0 && !dims(v).empty() &&
           dims(v).back() == n && ElementCount(dims(v)) == n;
  }

  // All inputs that there are have gradients of their own.
  bool AreDistinct(const std::vector<ValueId>& inputs) const {
    std::vector<ValueId> seen;
    for (const ValueId v : inputs) {
      if (v == kNoValue) continue;
      const ValueId source = result_.sources[v];
      if (absl::c_linear_search(seen, source)) return false;
      seen.push_back(source);
    }
    return true;
  }

  // A product of two matrices at this position, and the bias after it.
  void FindProduct(int p) {
    const bool is_gemm = IsOf(p, "Gemm");
    if (!is_gemm && !IsOf(p, "MatMul")) return;
    const Node& product = node(p);
    const ValueId y = product.outputs[0];
    if (dims(product.inputs[0]).size() < 2 ||
        dims(product.inputs[1]).size() != 2 || !AreDistinct(product.inputs)) {
      return;
    }
    const bool has_bias =
        product.inputs.size() > 2 && product.inputs[2] != kNoValue;
    if (has_bias) {
      const bool is_sum =
          product.Float("alpha", 1) == 1 && product.Float("beta", 1) == 1;
      if (!is_sum || !IsBias(product.inputs[2], dims(y).back())) return;
    }
    products_[p].product = p;
    if (has_bias) return;
    const Reader* const reader = OnlyReader(y);
    if (reader == nullptr || !IsOf(reader->position, "Add")) return;
    const Node& add = node(reader->position);
    const ValueId other = add.inputs[1 - reader->input];
    if (IsBias(other, dims(y).back()) && dims(add.outputs[0]) == dims(y) &&
        AreDistinct({product.inputs[0], product.inputs[1], other})) {
      products_[p].add = reader->position;
    }
  }

  // Of the nodes that the product is fused with.
  ValueId Result(const Product& product, bool with_function) const {
    if (with_function) return node(product.function).outputs[0];
    const int last = product.add != kNone ? product.add : product.product;
    return node(last).outputs[0];
  }

  // The function after a product, and who reads it.
  void FindFunction(int p) {
    Product& product = products_[p];
    if (product.product == kNone) return;
    const Reader* const reader = OnlyReader(Result(product, false));
    if (reader == nullptr) return;
    const int at = reader->position;
    const bool is_gelu =
        IsOf(at, "Gelu") && node(at).String("approximate", "none") == "tanh";
    if (!is_gelu && !IsOf(at, "Relu")) return;
    if (!spec_.flow->RunsBackward(at)) {
      product.function = at;
      return;
    }
    const Reader* const next = OnlyReader(node(at).outputs[0]);
    if (next == nullptr || next->input != 0 ||
        products_[next->position].product == kNone ||
        node(next->position).Int("transA", 0) != 0 ||
        !Wants(next->position, 0)) {
      return;
    }
    product.function = at;
    product.reader = next->position;
  }

  static std::string FunctionName(const Node& function) {
    return function.op_type == "Relu" ? kReluFunction : kGeluTanhFunction;
  }

  // The node of a product and these of its chain.
  Fused Make(const Product& product, bool with_add, bool with_function,
             ValueId kept) const {
    Fused fused;
    const Node& first = node(product.product);
    Node& made = fused.node;
    made.name = first.name;
    made.op_type = first.op_type;
    made.domain = kFusedDomain;
    made.attributes = first.attributes;
    made.attributes[kFusedKind] = std::string(kFusedProduct);
    made.inputs = first.inputs;
    made.inputs.resize(3, kNoValue);
    fused.wants = spec_.flow->wants_gradient[product.product];
    fused.wants.resize(made.inputs.size(), false);
    made.outputs = first.outputs;
    fused.parts = {product.product};
    if (with_add) {
      const Node& add = node(product.add);
      const size_t bias = add.inputs[0] == first.outputs[0] ? 1 : 0;
      made.inputs[2] = add.inputs[bias];
      fused.wants[2] = Wants(product.add, bias);
      Join(product.add, &fused);
    }
    if (product.kept_input != kNoValue) {
      made.inputs.push_back(product.kept_input);
      fused.wants.push_back(false);
      made.attributes[kFusedInputFunction] = product.input_function;
    }
    if (with_function) {
      made.attributes[kFusedFunction] = FunctionName(node(product.function));
      Join(product.function, &fused);
      if (kept != kNoValue) made.outputs.push_back(kept);
    }
    return fused;
  }

  // Adds the node at a position to the chain, whose result is then its own.
  void Join(int position, Fused* fused) const {
    fused->node.outputs[0] = node(position).outputs[0];
    absl::StrAppend(&fused->node.op_type, " + ", node(position).op_type);
    fused->parts.push_back(position);
  }

  bool IsComputed(const Fused& fused) const {
    return can_compute_(result_, fused.node, fused.wants);
  }

  void FuseProduct(int p) {
    Product& product = products_[p];
    if (product.product == kNone) return;
    if (product.function != kNone && FuseWithFunction(&product)) return;
    const bool has_kept = product.kept_input != kNoValue;
    for (const bool with_add : {true, false}) {
      if (with_add && product.add == kNone) continue;
      Fused fused = Make(product, with_add, false, kNoValue);
      // Of one node alone there is nothing to gain, unless its sum with a bias
      // of another type is in its product then.
      const bool gains = with_add || has_kept ||
                         (fused.node.inputs[2] != kNoValue &&
                          value(fused.node.inputs[2]).dtype !=
                              value(Result(product, false)).dtype);
      if (!gains || !IsComputed(fused)) continue;
      Keep(std::move(fused));
      return;
    }
    // It was computed when the function before it was fused, whose gradient
    // nothing else has. Refused now, it is an error where its Op is made.
    if (has_kept) Keep(Make(product, false, false, kNoValue));
  }

  bool FuseWithFunction(Product* product) {
    const bool has_gradient = product->reader != kNone;
    const bool is_relu = IsOf(product->function, "Relu");
    const size_t values = result_.graph.values.size();
    ValueId kept = kNoValue;
    if (has_gradient) {
      kept = is_relu ? AddReluBits(*product) : Result(*product, false);
    }
    Fused fused = Make(*product, product->add != kNone, true, kept);
    bool can = IsComputed(fused);
    if (can && has_gradient) {
      // The reader without anything else, which may come to it.
      Product& reader = products_[product->reader];
      reader.kept_input = kept;
      reader.input_function = FunctionName(node(product->function));
      can = IsComputed(Make(reader, false, false, kNoValue));
      if (!can) reader.kept_input = kNoValue;
    }
    if (!can) {
      result_.graph.values.resize(values);
      result_.shapes.resize(values);
      result_.sources.resize(values);
      return false;
    }
    if (kept != kNoValue) {
      result_.graph.values[kept].producer =
          spec_.flow->nodes[fused.parts.back()];
    }
    Keep(std::move(fused));
    return true;
  }

  // Makes the value that Relu's gradient is found from.
  ValueId AddReluBits(const Product& product) {
    const Dims& y = dims(Result(product, false));
    const auto v = static_cast<ValueId>(result_.graph.values.size());
    Value bits;
    bits.name = absl::StrCat(node(product.function).name, " kept bits");
    bits.dtype = DType::kUint8;
    bits.dims = {ElementCount({y.data(), y.size() - 1}),
                 KeptReluRowBytes(y.back())};
    result_.shapes.push_back(bits.dims);
    result_.graph.values.push_back(std::move(bits));
    result_.sources.push_back(v);
    return v;
  }

  // A sum of two arrays of one shape, and the normalisation that reads it
  // before all others.
  void FuseSum(int p) {
    if (is_part_[p] || !IsOf(p, "Add")) return;
    const Node& add = node(p);
    const ValueId sum = add.outputs[0];
    if (dims(add.inputs[0]) != dims(sum) || dims(add.inputs[1]) != dims(sum) ||
        readers_[sum].empty()) {
      return;
    }
    const Reader& first = readers_[sum][0];
    const int at = first.position;
    const bool is_layer = IsOf(at, "LayerNormalization");
    if ((!is_layer && !IsOf(at, "RMSNormalization")) || first.input != 0) {
      return;
    }
    const Node& norm = node(at);
    for (size_t i = 1; i < norm.outputs.size(); ++i) {
      if (norm.outputs[i] != kNoValue) return;
    }
    if (spec_.flow->RunsBackward(p) != Wants(at, 0)) return;
    Fused fused;
    fused.node.name = add.name;
    fused.node.op_type = add.op_type;
    fused.node.domain = kFusedDomain;
    fused.node.attributes = norm.attributes;
    fused.node.attributes[kFusedKind] = std::string(kFusedSumNorm);
    fused.node.attributes[kFusedCentred] = int64_t{is_layer ? 1 : 0};
    fused.node.inputs = add.inputs;
    fused.wants = spec_.flow->wants_gradient[p];
    for (size_t i = 1; i < norm.inputs.size(); ++i) {
      fused.node.inputs.push_back(norm.inputs[i]);
      fused.wants.push_back(Wants(at, i));
    }
    if (!AreDistinct(fused.node.inputs)) return;
    fused.parts = {p};
    fused.node.outputs = {sum};
    Join(at, &fused);
    fused.node.outputs.insert(fused.node.outputs.begin(), sum);
    if (!IsComputed(fused)) return;
    result_.graph.values[sum].producer = spec_.flow->nodes[at];
    Keep(std::move(fused));
  }

  void Keep(Fused fused) {
    for (const int p : fused.parts) is_part_[p] = true;
    const int last = fused.parts.back();
    fused_[last] = std::move(fused);
  }

  void Build() {
    BackwardGraph& flow = result_.flow;
    flow.loss_has_gradient = spec_.flow->loss_has_gradient;
    for (int p = 0; p < positions(); ++p) {
      Fused& fused = fused_[p];
      if (fused.parts.empty() && is_part_[p]) continue;
      const int index = spec_.flow->nodes[p];
      flow.nodes.push_back(index);
      if (fused.parts.empty()) {
        flow.wants_gradient.push_back(spec_.flow->wants_gradient[p]);
        result_.parts.push_back({p});
        continue;
      }
      result_.graph.nodes[index] = std::move(fused.node);
      flow.wants_gradient.push_back(std::move(fused.wants));
      result_.parts.push_back(std::move(fused.parts));
    }
  }

  const FusionSpec& spec_;
  const CanCompute can_compute_;
  std::vector<std::vector<Reader>> readers_;  // by ValueId, in order
  std::vector<bool> is_output_;               // by ValueId
  std::vector<Product> products_;             // by position
  std::vector<Fused> fused_;                  // by position of the last node
  std::vector<bool> is_part_;                 // by position
  FusedGraph result_;
};

}  // namespace

FusedGraph FuseOperators(const FusionSpec& spec, CanCompute can_compute) {
  return Fuser(spec, can_compute).Fuse();
}

}  // namespace syncline::worker

#include "worker/initializers.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/random.h"

namespace syncline {
namespace {

constexpr uint64_t kInitializerStream = 0x696e6974;  // "init"
constexpr float kScaleDefault = 0.05f;

// [.., in, out], or [.., out, in] if `transposed`. What stands before is a
// batch of matrices and feeds other outputs.
Fans MatrixFans(absl::Span<const int64_t> dims, bool transposed) {
  Fans fans{dims[dims.size() - 2], dims[dims.size() - 1]};
  if (transposed) std::swap(fans.in, fans.out);
  return fans;
}

Fans PlainFans(absl::Span<const int64_t> dims) {
  if (dims.empty()) return {1, 1};
  if (dims.size() == 1) return {dims[0], dims[0]};
  const int64_t rest = ElementCount(dims.subspan(2));
  return {dims[0] * rest, dims[1] * rest};
}

void FillUniform(double bound, Random* random, absl::Span<float> values) {
  for (float& value : values) {
    value = static_cast<float>((2 * random->Uniform() - 1) * bound);
  }
}

void FillNormal(double deviation, Random* random, absl::Span<float> values) {
  for (float& value : values) {
    value = static_cast<float>(random->Normal() * deviation);
  }
}

}  // namespace

Fans FansOf(const Graph& graph, ValueId value) {
  const Dims& dims = graph.values[value].dims;
  for (const Node& node : graph.nodes) {
    const auto input = std::find(node.inputs.begin(), node.inputs.end(), value);
    if (input == node.inputs.end()) continue;
    const auto position = input - node.inputs.begin();
    if (dims.size() < 2 || position > 1) break;
    if (node.op_type == "MatMul") return MatrixFans(dims, position == 0);
    if (node.op_type == "Gemm" && position == 1) {
      return MatrixFans(dims, node.Int("transB", 0) != 0);
    }
    if (node.op_type == "Gemm") {
      return MatrixFans(dims, node.Int("transA", 0) == 0);
    }
    break;
  }
  return PlainFans(dims);
}

void InitializeParameter(const InitializerRule& rule, const Fans& fans,
                         uint64_t seed, absl::string_view name,
                         absl::Span<float> values) {
  Random random(SeedFor(SeedFor(seed, kInitializerStream), HashName(name)));
  const double in = std::max<int64_t>(fans.in, 1);
  const double out = std::max<int64_t>(fans.out, 1);
  const double bound = rule.scale() > 0 ? rule.scale() : kScaleDefault;
  const double factor = rule.scale() > 0 ? rule.scale() : 1;
  switch (rule.scheme()) {
    case InitializerRule::ZEROS:
      return std::fill(values.begin(), values.end(), 0.0f);
    case InitializerRule::CONSTANT:
      return std::fill(values.begin(), values.end(), rule.value());
    case InitializerRule::UNIFORM:
      return FillUniform(bound, &random, values);
    case InitializerRule::NORMAL:
      return FillNormal(bound, &random, values);
    case InitializerRule::XAVIER_UNIFORM:
      return FillUniform(factor * std::sqrt(6 / (in + out)), &random, values);
    case InitializerRule::XAVIER_NORMAL:
      return FillNormal(factor * std::sqrt(2 / (in + out)), &random, values);
    case InitializerRule::HE_UNIFORM:
      return FillUniform(factor * std::sqrt(6 / in), &random, values);
    case InitializerRule::HE_NORMAL:
      return FillNormal(factor * std::sqrt(2 / in), &random, values);
    default:
      SYNCLINE_CHECK(false && "the job was not validated");
  }
}

}  // namespace syncline

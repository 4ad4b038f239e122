#include "worker/ops/recurrent/rnn_activation.h"

#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline::worker {
namespace {

using Kind = RnnActivation::Kind;

struct NamedFunction {
  absl::string_view name;
  Kind kind;
  std::optional<float> alpha, beta;  // defaults, of those that it has
};
constexpr NamedFunction kFunctions[] = {
    {"Affine", Kind::kAffine, 1.0f, 0.0f},
    {"Elu", Kind::kElu, 1.0f, {}},
    {"HardSigmoid", Kind::kHardSigmoid, 0.2f, 0.5f},
    {"LeakyRelu", Kind::kLeakyRelu, 0.01f, {}},
    {"Relu", Kind::kRelu, {}, {}},
    {"ScaledTanh", Kind::kScaledTanh, 1.0f, 1.0f},
    {"Sigmoid", Kind::kSigmoid, {}, {}},
    {"Softplus", Kind::kSoftplus, {}, {}},
    {"Softsign", Kind::kSoftsign, {}, {}},
    {"Tanh", Kind::kTanh, {}, {}},
    {"ThresholdedRelu", Kind::kThresholdedRelu, 1.0f, {}},
};

absl::StatusOr<NamedFunction> FunctionNamed(absl::string_view name) {
  std::string known;
  for (const NamedFunction& function : kFunctions) {
    if (absl::EqualsIgnoreCase(function.name, name)) return function;
    absl::StrAppend(&known, known.empty() ? "" : ", ", function.name);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "activations have \"", name, "\"; they must be among ", known));
}

// The numbers of activation_alpha or activation_beta, in their order.
class Numbers {
 public:
  Numbers(const Node& node, const std::string& attribute)
      : attribute_(attribute) {
    const auto it = node.attributes.find(attribute);
    if (it == node.attributes.end()) return;
    const auto* const given = std::get_if<std::vector<float>>(&it->second);
    if (given != nullptr) values_ = *given;
  }

  // For a function whose default this is; nothing if it has no such number.
  float Next(std::optional<float> fallback) {
    if (!fallback.has_value()) return 0;
    return taken_ < values_.size() ? values_[taken_++] : *fallback;
  }

  absl::Status CheckAllAreTaken() const {
    if (taken_ == values_.size()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(attribute_, " has ", values_.size(), " numbers, but only ",
                     taken_, " of the activations have one"));
  }

 private:
  const std::string attribute_;
  std::vector<float> values_;
  size_t taken_ = 0;
};

std::vector<RnnActivation> UsualFunctions(int64_t directions,
                                          absl::Span<const Kind> usual) {
  std::vector<RnnActivation> functions;
  for (int64_t d = 0; d < directions; ++d) {
    for (const Kind kind : usual) functions.push_back({.kind = kind});
  }
  return functions;
}

absl::StatusOr<std::vector<RnnActivation>> NamedFunctions(
    const Node& node, const std::vector<std::string>& names, size_t count) {
  if (names.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", names.size(), " activations; there must be ",
                     count, ", those of each direction"));
  }
  Numbers alphas(node, "activation_alpha");
  Numbers betas(node, "activation_beta");
  std::vector<RnnActivation> functions;
  for (const std::string& name : names) {
    SYNCLINE_ASSIGN_OR_RETURN(const NamedFunction named, FunctionNamed(name));
    functions.push_back({.kind = named.kind,
                         .alpha = alphas.Next(named.alpha),
                         .beta = betas.Next(named.beta)});
  }
  SYNCLINE_RETURN_IF_ERROR(alphas.CheckAllAreTaken());
  SYNCLINE_RETURN_IF_ERROR(betas.CheckAllAreTaken());
  return functions;
}

}  // namespace

absl::StatusOr<std::vector<RnnActivation>> RnnActivationsOf(
    const Node& node, int64_t directions, absl::Span<const Kind> usual) {
  std::vector<RnnActivation> functions = UsualFunctions(directions, usual);
  const auto it = node.attributes.find("activations");
  const auto* const names =
      it == node.attributes.end()
          ? nullptr
          : std::get_if<std::vector<std::string>>(&it->second);
  if (names != nullptr && !names->empty()) {
    SYNCLINE_ASSIGN_OR_RETURN(functions,
                              NamedFunctions(node, *names, functions.size()));
  }
  if (!node.Has("clip")) return functions;
  const float clip = node.Float("clip", 0);
  if (!(clip > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("clip is ", clip, "; it must be above 0"));
  }
  for (RnnActivation& function : functions) function.clip = clip;
  return functions;
}

}  // namespace syncline::worker

#include "common/model/graph/einsum.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

// Labels of an ellipsis, the last dimension first; a tensor has at most eight.
constexpr absl::string_view kEllipsisLabels = "01234567";
constexpr absl::string_view kEllipsis = "...";

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("the equation ", parts...));
}

std::string Ellipsis(size_t rank) {
  std::string labels(kEllipsisLabels.substr(0, rank));
  std::reverse(labels.begin(), labels.end());
  return labels;
}

absl::Status CheckLetters(absl::string_view term) {
  for (const char c : term) {
    if (!absl::ascii_isalpha(c)) {
      return Bad("has '", std::string(1, c), "', which is no label");
    }
  }
  return absl::OkStatus();
}

// One operand's labels, with those of its ellipsis.
absl::StatusOr<std::string> Expand(absl::string_view term, size_t rank,
                                   size_t* ellipsis_rank) {
  const size_t at = term.find(kEllipsis);
  if (at == absl::string_view::npos) {
    SYNCLINE_RETURN_IF_ERROR(CheckLetters(term));
    if (term.size() == rank) return std::string(term);
    return Bad("has ", term.size(), " labels for an operand of ", rank,
               " dimensions");
  }
  const absl::string_view before = term.substr(0, at);
  const absl::string_view after = term.substr(at + kEllipsis.size());
  SYNCLINE_RETURN_IF_ERROR(CheckLetters(before));
  SYNCLINE_RETURN_IF_ERROR(CheckLetters(after));
  const size_t named = before.size() + after.size();
  if (named > rank || rank - named > kEllipsisLabels.size()) {
    return Bad("has ", named, " labels beside '...' for an operand of ", rank,
               " dimensions");
  }
  *ellipsis_rank = std::max(*ellipsis_rank, rank - named);
  return absl::StrCat(before, Ellipsis(rank - named), after);
}

std::string ImplicitOutput(const std::vector<std::string>& inputs,
                           size_t ellipsis_rank) {
  std::map<char, int> seen;
  for (const std::string& labels : inputs) {
    for (const char c : labels) ++seen[c];
  }
  std::string output = Ellipsis(ellipsis_rank);
  for (const auto& [label, count] : seen) {
    if (count == 1 && absl::ascii_isalpha(label)) output += label;
  }
  return output;
}

absl::Status CheckOutput(const EinsumLabels& e) {
  for (size_t i = 0; i < e.output.size(); ++i) {
    const char c = e.output[i];
    if (e.sizes.count(c) == 0) {
      return Bad("has '", std::string(1, c), "' in its output alone");
    }
    if (e.output.find(c, i + 1) != std::string::npos) {
      return Bad("has '", std::string(1, c), "' twice in its output");
    }
  }
  return absl::OkStatus();
}

}  // namespace

Dims EinsumLabels::DimsOf(const std::string& labels) const {
  Dims dims;
  for (const char c : labels) dims.push_back(sizes.at(c));
  return dims;
}

absl::StatusOr<EinsumLabels> ParseEinsum(absl::string_view equation,
                                         absl::Span<const Dims> operands) {
  const std::string dense = absl::StrReplaceAll(equation, {{" ", ""}});
  const std::vector<std::string> sides = absl::StrSplit(dense, "->");
  const std::vector<std::string> terms = absl::StrSplit(sides[0], ',');
  if (sides.size() > 2 || terms.size() != operands.size()) {
    return Bad("\"", equation, "\" does not fit ", operands.size(),
               " operands");
  }
  EinsumLabels e;
  size_t ellipsis_rank = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(
        std::string labels,
        Expand(terms[i], operands[i].size(), &ellipsis_rank));
    for (size_t d = 0; d < labels.size(); ++d) {
      const auto [it, added] = e.sizes.emplace(labels[d], operands[i][d]);
      if (added || it->second == operands[i][d]) continue;
      return Bad("has one label for dimensions of ", it->second, " and ",
                 operands[i][d]);
    }
    e.inputs.push_back(std::move(labels));
  }
  if (sides.size() == 1) {
    e.output = ImplicitOutput(e.inputs, ellipsis_rank);
  } else {
    SYNCLINE_RETURN_IF_ERROR(
        CheckLetters(absl::StrReplaceAll(sides[1], {{kEllipsis, ""}})));
    e.output =
        absl::StrReplaceAll(sides[1], {{kEllipsis, Ellipsis(ellipsis_rank)}});
  }
  SYNCLINE_RETURN_IF_ERROR(CheckOutput(e));
  return e;
}

}  // namespace syncline

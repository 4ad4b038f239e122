#include "common/model/graph/describe.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/graph/graph.h"

namespace syncline {
namespace {

constexpr size_t kNameBytesShown = 120;
constexpr size_t kNamesShown = 8;

}  // namespace

std::string Quote(absl::string_view name) {
  const bool cut = name.size() > kNameBytesShown;
  return absl::StrCat("'", absl::CHexEscape(name.substr(0, kNameBytesShown)),
                      cut ? "..." : "", "'");
}

std::string DescribeNode(absl::string_view name, absl::string_view op_type,
                         int opset_version) {
  const std::string op = Quote(op_type);
  return absl::StrCat("node ", Quote(name), " (", op.substr(1, op.size() - 2),
                      ", opset ", opset_version, ")");
}

std::string DescribeNames(const Graph& graph,
                          absl::Span<const ValueId> values) {
  std::vector<std::string> names;
  for (const ValueId v : values) {
    if (names.size() == kNamesShown) {
      names.push_back("...");
      break;
    }
    names.push_back(Quote(graph.values[v].name));
  }
  return names.empty() ? "(none)"
                       : absl::StrCat("(", absl::StrJoin(names, ", "), ")");
}

std::string DescribeTensor(DType dtype, absl::Span<const int64_t> dims) {
  return absl::StrCat(DTypeName(dtype), DimsToString(dims));
}

bool MatchesPattern(absl::string_view pattern, absl::string_view name) {
  size_t p = 0;
  size_t n = 0;
  size_t star = absl::string_view::npos;  // last "*" passed
  size_t resume = 0;                      // where its text may end next
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() &&
               (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool WithinLimits(absl::Span<const int64_t> dims) {
  if (dims.size() > static_cast<size_t>(kRankMax)) return false;
  int64_t product = 1;
  for (int64_t dim : dims) {
    if (dim <= 1) continue;
    if (dim > kElementsMax / product) return false;
    product *= dim;
  }
  return true;
}

}  // namespace syncline

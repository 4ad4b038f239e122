#include "worker/data/reading/value_order.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace syncline::worker {
namespace {

int64_t Elements(absl::Span<const int64_t> dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

SampleDims WithoutOnes(absl::Span<const int64_t> dims) {
  SampleDims kept;
  for (const int64_t dim : dims) {
    if (dim != 1) kept.push_back(dim);
  }
  return kept;
}

SampleDims Permuted(const SampleDims& dims, absl::Span<const uint32_t> order) {
  SampleDims permuted;
  for (const uint32_t d : order) permuted.push_back(dims[d]);
  return permuted;
}

bool IsPermutation(absl::Span<const uint32_t> order, size_t rank) {
  std::vector<bool> seen(rank, false);
  for (const uint32_t d : order) {
    if (d >= rank || seen[d]) return false;
    seen[d] = true;
  }
  return order.size() == rank;
}

// Advice to a user whose values of shape `from` do not lie as `input`.
std::string Advice(const SampleDims& from, const SampleDims& input) {
  // More dimensions have too many orders to try.
  constexpr size_t kRankMax = 8;
  if (WithoutOnes(from).size() <= 1) {
    return absl::StrCat("its feed must say how they lie: reshape: ",
                        DimsText(input), ", or another shape and transpose");
  }
  std::vector<uint32_t> order(from.size());
  std::iota(order.begin(), order.end(), 0);
  while (from.size() <= kRankMax &&
         std::next_permutation(order.begin(), order.end())) {
    if (!SameOrder(Permuted(from, order), input)) continue;
    return absl::StrCat("transpose: [", absl::StrJoin(order, ", "),
                        "] in its feed would make that of it");
  }
  return "its feed must say how they lie, with reshape and transpose";
}

// Of the element of `dims`, permuted by `order`, where it is in `dims`.
std::vector<int32_t> Places(const SampleDims& dims,
                            absl::Span<const uint32_t> order) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * dims[d];
  }
  std::vector<int32_t> places(Elements(dims));
  for (size_t i = 0; i < places.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i);
    int64_t place = 0;
    for (size_t k = order.size(); k-- > 0;) {
      place += rest % dims[order[k]] * strides[order[k]];
      rest /= dims[order[k]];
    }
    places[i] = static_cast<int32_t>(place);
  }
  return places;
}

}  // namespace

bool SameOrder(absl::Span<const int64_t> from, absl::Span<const int64_t> to) {
  const SampleDims wanted = WithoutOnes(to);
  if (Elements(from) != Elements(to)) return false;
  return wanted.size() <= 1 || WithoutOnes(from) == wanted;
}

std::string DimsText(absl::Span<const int64_t> dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
}

absl::StatusOr<std::vector<int32_t>> FindValueOrder(
    const Feed& feed, const std::optional<SampleDims>& field,
    const SampleDims& input) {
  std::optional<SampleDims> from = field;
  if (!feed.reshape().empty()) {
    from.emplace(feed.reshape().begin(), feed.reshape().end());
  }
  const auto error = [&](const auto&... problem) {
    return absl::InvalidArgumentError(absl::StrCat(
        "field \"", feed.field(), "\", graph input \"", feed.input(),
        "\", which takes ", DimsText(input), " a sample: ", problem...));
  };
  if (!from.has_value()) {
    if (feed.transpose().empty()) return std::vector<int32_t>();
    return error("transpose needs reshape, because the field has no shape");
  }
  if (Elements(*from) != Elements(input)) {
    return error("reshape: ", DimsText(*from), " has ", Elements(*from),
                 " values, not ", Elements(input));
  }
  SampleDims arranged = *from;
  if (!feed.transpose().empty()) {
    if (!IsPermutation(feed.transpose(), from->size())) {
      return error("transpose: [", absl::StrJoin(feed.transpose(), ", "),
                   "] is no order of the dimensions of ", DimsText(*from));
    }
    arranged = Permuted(*from, feed.transpose());
  }
  if (!SameOrder(arranged, input)) {
    return error("the field's values are ", DimsText(*from),
                 feed.transpose().empty()
                     ? ""
                     : absl::StrCat(", transposed ", DimsText(arranged)),
                 "; ", Advice(*from, input));
  }
  if (feed.transpose().empty()) return std::vector<int32_t>();
  std::vector<int32_t> places = Places(*from, feed.transpose());
  if (std::is_sorted(places.begin(), places.end())) places.clear();
  return places;
}

}  // namespace syncline::worker

// Rows of op_table_test for what moves elements without computing with them:
// views, Gather, Concat and Transpose; and ScatterND, which adds them.

#include <map>
#include <string>
#include <vector>

#include "tests/testing/op_case.h"

namespace syncline::testing {
namespace {

using reference::Dims;

OpCase GatherCase(Dims data, int64_t axis, Dims index_dims,
                  std::vector<int64_t> indices, bool narrow = false) {
  const size_t at = axis < 0 ? axis + data.size() : axis;
  return LinearCase(
      "Gather", 13, {{"axis", axis}}, {data},
      {{1, index_dims, indices, narrow ? DType::kInt32 : DType::kInt64}},
      reference::GatherTerms(data, at, index_dims, indices),
      reference::Replaced(data, at, index_dims));
}

OpCase ConcatCase(int64_t axis, std::vector<Dims> inputs, Dims out) {
  const size_t at = axis < 0 ? axis + out.size() : axis;
  return LinearCase("Concat", 13, {{"axis", axis}}, inputs, {},
                    reference::ConcatTerms(inputs, at, out), out);
}

OpCase TransposeCase(Dims data, std::vector<int64_t> permutation,
                     bool given = true) {
  Dims out;
  for (int64_t d : permutation) out.push_back(data[d]);
  std::map<std::string, Attribute> attributes;
  if (given) attributes["perm"] = permutation;
  return LinearCase("Transpose", 13, attributes, {data}, {},
                    reference::TransposeTerms(data, permutation, out), out);
}

OpCase ScatterAddCase(Dims data, Dims index_dims, std::vector<int64_t> indices,
                      Dims updates) {
  return LinearCase(
      "ScatterND", 16, {{"reduction", std::string("add")}}, {data, updates},
      {{1, index_dims, indices}},
      reference::ScatterAddTerms(data, index_dims.back(), indices), data);
}

}  // namespace

std::vector<OpCase> LayoutCases() {
  return {
      ViewCase("Flatten", {2, 3, 4}, {2, 12}),
      ViewCase("Flatten", {2, 3, 4}, {6, 4}, {{"axis", int64_t{2}}}),
      ViewCase("Reshape", {2, 3, 4}, {4, 6}),
      ViewCase("Squeeze", {2, 1, 3}, {2, 3}),
      ViewCase("Unsqueeze", {2, 3}, {2, 1, 3, 1}),
      ViewCase("Cast", {2, 3}, {2, 3}),  // to the same type
      ViewCase("Identity", {2, 3}, {2, 3}),
      ViewCase("Dropout", {2, 3}, {2, 3}),  // in inference
      GatherCase({5, 3}, 0, {4}, {0, 4, 4, 2}),
      GatherCase({5, 3}, 0, {2, 3}, {-1, 0, -5, 4, 4, 1}),
      GatherCase({2, 4, 3}, 1, {3}, {3, -4, 3}),
      GatherCase({2, 4, 3}, -1, {2, 2}, {0, 2, 1, 2}),
      GatherCase({4}, 0, {}, {2}),
      GatherCase({5, 3}, 0, {3}, {1, -1, 1}, /*narrow=*/true),
      ScatterAddCase({4, 3}, {3, 1}, {2, 0, 2}, {3, 3}),
      ScatterAddCase({4, 3}, {2, 2, 1}, {3, -1, 0, 3}, {2, 2, 3}),
      ScatterAddCase({2, 3, 2}, {3, 2}, {1, 2, 0, 0, 1, -1}, {3, 2}),
      ScatterAddCase({5}, {0, 1}, {}, {0}),
      ConcatCase(0, {{2, 3}, {1, 3}}, {3, 3}),
      ConcatCase(-1, {{2, 3}, {2, 1}, {2, 2}}, {2, 6}),
      ConcatCase(1, {{2, 3, 2}, {2, 0, 2}}, {2, 3, 2}),
      ConcatCase(1, std::vector<Dims>(70, {2, 1}), {2, 70}),
      TransposeCase({3, 4}, {1, 0}, /*given=*/false),
      TransposeCase({2, 3, 4}, {0, 2, 1}),
      TransposeCase({2, 3, 4, 2}, {3, 1, 0, 2}),
      TransposeCase({2, 3, 4}, {0, 1, 2}),
  };
}

}  // namespace syncline::testing

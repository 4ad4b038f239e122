// Rows of op_table_test for what computes along axes: Softmax, LogSoftmax, sums
// and means.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/op_case.h"

namespace syncline::testing {
namespace {

using reference::Dims;

// Axes as an attribute, or from a version on as an input.
OpCase ReduceCase(std::string op_type, Dims data, std::vector<int64_t> axes,
                  bool keep, bool as_input) {
  Dims kept = data;
  for (size_t d = 0; d < data.size(); ++d) {
    for (int64_t axis : axes) {
      if (axis == static_cast<int64_t>(d) ||
          axis + data.size() == static_cast<size_t>(d)) {
        kept[d] = 1;
      }
    }
    if (axes.empty()) kept[d] = 1;
  }
  Dims out = kept;
  if (!keep) {
    out.clear();
    for (size_t d = 0; d < data.size(); ++d) {
      if (kept[d] == data[d] && data[d] != 1) out.push_back(data[d]);
    }
  }
  const double count = reference::Product(data) / reference::Product(kept);
  const double weight = op_type == "ReduceMean" ? 1 / count : 1;
  std::map<std::string, Attribute> attributes = {{"keepdims", int64_t{keep}}};
  std::vector<IntegerInput> integers;
  if (as_input) {
    integers.push_back({1, {static_cast<int64_t>(axes.size())}, axes});
  } else if (!axes.empty()) {
    attributes["axes"] = axes;
  }
  return LinearCase(std::move(op_type), as_input ? 18 : 11, attributes, {data},
                    integers, reference::ReduceTerms(data, kept, weight), out);
}

// Normalised over dimensions [begin, end) of [2, 3, 4].
OpCase SoftmaxCase(int version, std::map<std::string, Attribute> attributes,
                   int64_t begin, int64_t end) {
  return {
      "Softmax",
      version,
      std::move(attributes),
      {{2, 3, 4}},
      [=](const Inputs& in) { return reference::Softmax(in[0], begin, end); },
      [=](const Inputs& in, const DoubleArray& dy) {
        return reference::SoftmaxGradient(in[0], begin, end, dy);
      }};
}
OpCase LogSoftmaxCase(int version, std::map<std::string, Attribute> attributes,
                      int64_t begin, int64_t end) {
  return {"LogSoftmax",
          version,
          std::move(attributes),
          {{2, 3, 4}},
          [=](const Inputs& in) {
            return reference::LogSoftmax(in[0], begin, end);
          },
          [=](const Inputs& in, const DoubleArray& dy) {
            return reference::LogSoftmaxGradient(in[0], begin, end, dy);
          }};
}

}  // namespace

std::vector<OpCase> AxisCases() {
  std::vector<OpCase> cases = {
      SoftmaxCase(13, {}, 2, 3),
      SoftmaxCase(13, {{"axis", int64_t{0}}}, 0, 1),
      SoftmaxCase(13, {{"axis", int64_t{-2}}}, 1, 2),
      SoftmaxCase(11, {}, 1, 3),
      SoftmaxCase(11, {{"axis", int64_t{0}}}, 0, 3),
      SoftmaxCase(11, {{"axis", int64_t{-1}}}, 2, 3),
      LogSoftmaxCase(13, {}, 2, 3),
      LogSoftmaxCase(13, {{"axis", int64_t{1}}}, 1, 2),
      LogSoftmaxCase(11, {}, 1, 3),
  };
  for (const std::string op : {"ReduceSum", "ReduceMean"}) {
    for (const bool keep : {false, true}) {
      for (const bool as_input : {false, true}) {
        const auto reduce = [&](Dims data, std::vector<int64_t> axes) {
          cases.push_back(ReduceCase(op, data, axes, keep, as_input));
        };
        reduce({4, 5}, {1});
        reduce({4, 5}, {0});
        reduce({2, 3, 4}, {1});
        reduce({2, 3, 4}, {0, -1});
        reduce({2, 3, 4, 5}, {1, 3});
        reduce({2, 3}, {});
      }
    }
  }
  return cases;
}

}  // namespace syncline::testing

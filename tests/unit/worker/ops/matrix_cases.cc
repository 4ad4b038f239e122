// Rows of op_table_test for matrix products: MatMul and Gemm.

#include <utility>
#include <vector>

#include "tests/testing/op_case.h"

namespace syncline::testing {
namespace {

using reference::Dims;

OpCase GemmCase(const reference::GemmAttributes& g, std::vector<Dims> inputs) {
  return {"Gemm",
          13,
          {{"transA", int64_t{g.transpose_a}},
           {"transB", int64_t{g.transpose_b}},
           {"alpha", static_cast<float>(g.alpha)},
           {"beta", static_cast<float>(g.beta)}},
          std::move(inputs),
          [=](const Inputs& in) {
            return reference::Gemm(g, in[0], in[1],
                                   in.size() > 2 ? &in[2] : nullptr);
          },
          [=](const Inputs& in, const DoubleArray& dy) {
            return reference::GemmGradient(
                g, in[0], in[1], in.size() > 2 ? &in[2] : nullptr, dy);
          }};
}

OpCase MatMulCase(Dims a, Dims b) {
  return {"MatMul",
          13,
          {},
          {std::move(a), std::move(b)},
          [](const Inputs& in) { return reference::MatMul(in[0], in[1]); },
          [](const Inputs& in, const DoubleArray& dy) {
            return reference::MatMulGradient(in[0], in[1], dy);
          }};
}

}  // namespace

std::vector<OpCase> MatrixCases() {
  std::vector<OpCase> cases = {
      MatMulCase({3, 4}, {4, 2}),
      MatMulCase({4}, {4}),
      MatMulCase({4}, {4, 2}),
      MatMulCase({3, 4}, {4}),
      MatMulCase({2, 3, 4}, {4, 2}),
      MatMulCase({2, 3, 4}, {2, 4, 5}),
      MatMulCase({3, 4}, {2, 4, 5}),
      MatMulCase({2, 1, 3, 4}, {3, 4, 2}),
      MatMulCase({2, 1, 2, 3}, {1, 2, 3, 2}),
      MatMulCase({2, 3, 4}, {4}),
  };
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const Dims a = ta ? Dims{4, 3} : Dims{3, 4};
      const Dims b = tb ? Dims{2, 4} : Dims{4, 2};
      const auto gemm = [&](double alpha, double beta, std::vector<Dims> c) {
        std::vector<Dims> inputs = {a, b};
        inputs.insert(inputs.end(), c.begin(), c.end());
        cases.push_back(GemmCase({ta, tb, alpha, beta}, inputs));
      };
      gemm(1, 1, {{2}});  // the fused bias
      gemm(1, 1, {});
      gemm(0.5, 1, {{2}});
      gemm(0.5, -2, {{3, 2}});
      gemm(1, 1, {{3, 1}});
      gemm(1, 1, {{}});
      gemm(1, 0, {{2}});
    }
  }
  return cases;
}

}  // namespace syncline::testing

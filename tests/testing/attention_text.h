#ifndef SYNCLINE_TESTS_TESTING_ATTENTION_TEXT_H_
#define SYNCLINE_TESTS_TESTING_ATTENTION_TEXT_H_

// Attention of a value with itself in ONNX's text, as PyTorch's exporter writes
// it: the nodes of kHeads, kProduct, nodes that make `ready` of `scores`, and
// kRest. x and y are [batch, rows, heads, width].

namespace syncline::testing {

inline constexpr char kHeads[] = R"(
    q = Transpose <perm = [0, 2, 1, 3]> (x)
    k = Transpose <perm = [0, 2, 3, 1]> (x)
    v = Transpose <perm = [0, 2, 1, 3]> (x)
)";
inline constexpr char kProduct[] = "    scores = MatMul (q, k)\n";
inline constexpr char kRest[] = R"(
    weights = Softmax <axis = -1> (ready)
    mixed = MatMul (weights, v)
    y = Transpose <perm = [0, 2, 1, 3]> (mixed)
)";

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_ATTENTION_TEXT_H_

#ifndef SYNCLINE_WORKER_COMPUTE_FANS_H_
#define SYNCLINE_WORKER_COMPUTE_FANS_H_

#include <cstdint>
#include <string>

#include "common/model/graph/node.h"

namespace syncline {
struct Graph;
}  // namespace syncline

namespace syncline::worker {

// How many values feed one output of a parameter's operator, and how many
// outputs there are: what Xavier and He scale by.
struct Fans {
  int64_t in = 1;
  int64_t out = 1;
};

struct FansOfUse {
  Fans fans;
  // For people, when the graph does not settle the fans: no node is known to
  // multiply by the initializer, or nodes differ in its fans. Else empty.
  std::string doubt;
};

// Fans of the initializer `value`, by the nodes that read it, also through
// Identity, Cast, Transpose, and Reshape and its like where they only add or
// remove dimensions of 1:
//   Gemm           B [in, out], with transB [out, in]; A [out, in], with
//                  transA [in, out]
//   MatMul         second input [.., in, out], first input [.., out, in]
//   Conv           [out, in / group, window...]: in / group x window, and
//                  out x window
//   ConvTranspose  [in, out / group, window...]: in / group x window, and
//                  out x window. (PyTorch's nn.init takes a transposed
//                  convolution's fans the other way round.)
//   LSTM, GRU, RNN  W and R [directions, out, in], where out is the gates of
//                  all units; biases [directions, n]: n and n
//   Einsum         dimensions that are summed over are in, those that the
//                  result keeps are out, but those that another operand
//                  shares with the result too
//   Gather         a table [rows, in...] with axis 0: in, and rows for out, as
//                  PyTorch's nn.init has it for an embedding
// The first node in the graph's order counts; a Gather only where no other
// does. Where none does: by the shape, as PyTorch's nn.init has it: [out, in,
// window...]; [n] has n and n; a scalar 1 and 1.
FansOfUse FansOf(const Graph& graph, ValueId value);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_FANS_H_

// Goal: a gradient flows from each output of LayerNormalization, also where the
// others have none. Method: central differences of the reference, in double,
// for every choice of outputs. (worker_op_table_test has the first by itself.)

#include "absl/strings/str_cat.h"
#include "kernels/reference/reference_layer_norm.h"
#include "tests/testing/op_run.h"

namespace syncline::worker {
namespace {

using testing::Dot;
using testing::DoubleArray;
using testing::ExpectNear;
using testing::FiniteDifferences;
using testing::OpRun;
using testing::RandomArray;

constexpr int64_t kRows = 3;
constexpr int64_t kWidth = 5;

// Y, Mean and InvStdDev.
std::vector<DoubleArray> Outputs(const std::vector<DoubleArray>& in) {
  const reference::LayerNormAttributes a = {.axis = 1,
                                            .epsilon = double{1e-5f}};
  std::vector<DoubleArray> out = {reference::LayerNorm(a, in),
                                  DoubleArray({kRows, 1}),
                                  DoubleArray({kRows, 1})};
  for (int64_t r = 0; r < kRows; ++r) {
    const auto row =
        reference::NormalizeRow(a, in[0].values.data() + r * kWidth, kWidth);
    out[1].values[r] = row.mean;
    out[2].values[r] = row.inverse;
  }
  return out;
}

TEST(LayerNormalizationTest, EveryOutputHasAGradient) {
  std::vector<DoubleArray> in = {RandomArray({kRows, kWidth}, 1),
                                 RandomArray({kWidth}, 2),
                                 RandomArray({kWidth}, 3)};
  const std::vector<DoubleArray> all = {RandomArray({kRows, kWidth}, 4),
                                        RandomArray({kRows, 1}, 5),
                                        RandomArray({kRows, 1}, 6)};
  OpRun run("LayerNormalization", 17);
  for (const DoubleArray& x : in) run.Input(x);
  for (const DoubleArray& d : all) run.Output(d.dims);
  ASSERT_TRUE(run.Forward().ok());
  for (size_t i = 0; i < 3; ++i) {
    ExpectNear(run.output(i), Outputs(in)[i].values, 1e-5);
  }
  for (uint32_t chosen = 1; chosen < 8; ++chosen) {
    SCOPED_TRACE(absl::StrCat("outputs ", chosen));
    std::vector<DoubleArray> dy(3);
    for (size_t o = 0; o < 3; ++o) {
      if (chosen >> o & 1) dy[o] = all[o];
    }
    const auto written = run.Backward(dy);
    const auto added = run.Backward(dy, 1.0f);
    for (size_t i = 0; i < 3; ++i) {
      std::vector<double> want = FiniteDifferences(in[i].values, [&] {
        const std::vector<DoubleArray> out = Outputs(in);
        double sum = 0;
        for (size_t o = 0; o < 3; ++o) {
          if (chosen >> o & 1) sum += Dot(out[o].values, dy[o].values);
        }
        return sum;
      });
      ExpectNear(written[i], want, 1e-4);
      for (double& v : want) v += 1;
      ExpectNear(added[i], want, 1e-4);
    }
  }
}

}  // namespace
}  // namespace syncline::worker

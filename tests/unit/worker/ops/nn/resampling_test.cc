// Goal: Resize finds its places as ONNX says, and refuses names that it does
// not compute. Method: weights of one axis by hand, for each coordinate
// transformation and rounding. (worker_op_table_test has gradients,
// onnx_node_test ONNX's own cases.)

#include "worker/ops/nn/resampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Where each place of the result is, in the input.
std::vector<int64_t> Nearest(const std::string& coordinates,
                             const std::string& nearest, int64_t in,
                             int64_t out) {
  Interpolation how;
  how.coordinates = coordinates;
  how.nearest = nearest;
  return MakeResampling(how, in, out,
                        static_cast<double>(out) / static_cast<double>(in))
      .places;
}

TEST(ResamplingTest, TheNearestPlace) {
  EXPECT_THAT(Nearest("asymmetric", "floor", 3, 6),
              ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_THAT(Nearest("asymmetric", "ceil", 3, 6),
              ElementsAre(0, 1, 1, 2, 2, 2));
  EXPECT_THAT(Nearest("asymmetric", "round_prefer_floor", 3, 6),
              ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_THAT(Nearest("asymmetric", "round_prefer_ceil", 3, 6),
              ElementsAre(0, 1, 1, 2, 2, 2));
  EXPECT_THAT(Nearest("half_pixel", "round_prefer_floor", 4, 2),
              ElementsAre(0, 2));
  EXPECT_THAT(Nearest("half_pixel", "round_prefer_ceil", 4, 2),
              ElementsAre(1, 3));
  EXPECT_THAT(Nearest("align_corners", "floor", 2, 5),
              ElementsAre(0, 0, 0, 0, 1));
  // A third of a third is whole: 4 / (4 / 3) is not rounded below 3.
  EXPECT_THAT(Nearest("asymmetric", "floor", 3, 4), ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(Nearest("asymmetric", "floor", 9, 21),
              ElementsAre(0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 6, 6, 7,
                          7, 8, 8));
}

// What PyTorch and ONNX Runtime find, in float32.
TEST(ResamplingTest, AScaleStandsForItsDecimalNumber) {
  Interpolation how;
  how.coordinates = "asymmetric";
  how.nearest = "floor";
  EXPECT_THAT(MakeResampling(how, 20, 4, 0.2f).places,
              ElementsAre(0, 5, 10, 15));
  EXPECT_THAT(MakeResampling(how, 6, 8, 4.0f / 3).places,
              ElementsAre(0, 0, 1, 2, 3, 3, 4, 5));
  EXPECT_THAT(MakeResampling(how, 25, 7, 0.3f).places,
              ElementsAre(0, 3, 6, 10, 13, 16, 20));
  how.coordinates = "half_pixel";
  how.nearest = "round_prefer_ceil";
  EXPECT_THAT(MakeResampling(how, 20, 2, 0.1f).places, ElementsAre(5, 15));
}

// 7 places of 5: ONNX's last one is at 6 * 4 / 6.5.
TEST(ResamplingTest, PyTorchsCornersAreAligned) {
  Interpolation how;
  how.mode = "linear";
  how.coordinates = "align_corners";
  EXPECT_LT(MakeResampling(how, 5, 7, 1.5).weights.back(), 0.7f);
  how.whole_sizes = true;
  const Resampling r = MakeResampling(how, 5, 7, 1.5);
  EXPECT_EQ(r.places.back(), 4);
  EXPECT_EQ(r.weights.back(), 1);
}

TEST(ResamplingTest, BetweenTwoPlaces) {
  Interpolation how;
  how.mode = "linear";
  const Resampling r = MakeResampling(how, 2, 4, 2);
  EXPECT_EQ(r.taps, 2);
  // -0.25, 0.25, 0.75 and 1.25: what is outside repeats the border.
  EXPECT_THAT(r.places, ElementsAre(0, 0, 0, 1, 0, 1, 1, 1));
  EXPECT_THAT(r.weights, ElementsAre(0.25f, 0.75f, 0.75f, 0.25f, 0.25f, 0.75f,
                                     0.75f, 0.25f));
  how.coordinates = "pytorch_half_pixel";
  EXPECT_THAT(MakeResampling(how, 5, 1, 0.2).weights, ElementsAre(0, 1));
  EXPECT_THAT(MakeResampling(how, 5, 1, 0.2).places, ElementsAre(0, 0));
  how.coordinates = "align_corners";
  EXPECT_THAT(MakeResampling(how, 5, 1, 0.2).places, ElementsAre(0, 0));
}

TEST(ResamplingTest, OutsideDoesNotCountWhereItIsExcluded) {
  Interpolation how;
  how.mode = "linear";
  how.exclude_outside = true;
  EXPECT_THAT(MakeResampling(how, 2, 4, 2).weights,
              ElementsAre(0, 1, 0.75f, 0.25f, 0.25f, 0.75f, 1, 0));
}

TEST(ResamplingTest, WithoutPlacesThereIsNothing) {
  EXPECT_TRUE(MakeResampling(Interpolation(), 0, 0, 1).places.empty());
  EXPECT_TRUE(MakeResampling(Interpolation(), 3, 0, 0).places.empty());
}

TEST(ResamplingTest, NamesThatAreNotComputedAreRefused) {
  const auto refused = [](const std::string& name, const std::string& value) {
    Node node;
    node.attributes[name] = value;
    const auto how = InterpolationOf(node);
    EXPECT_EQ(how.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(how.status().message());
  };
  EXPECT_EQ(refused("mode", "area"),
            "mode is \"area\"; what is computed is nearest, linear, cubic");
  EXPECT_THAT(
      refused("coordinate_transformation_mode", "tf_crop_and_resize"),
      HasSubstr("\"tf_crop_and_resize\"; what is computed is half_pixel, "));
  EXPECT_THAT(refused("nearest_mode", "simple"), HasSubstr("nearest_mode is"));
  EXPECT_TRUE(InterpolationOf(Node()).ok());
}

}  // namespace
}  // namespace syncline::worker

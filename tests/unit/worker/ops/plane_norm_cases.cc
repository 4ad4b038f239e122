// Rows of op_table_test for what normalises planes.

#include "kernels/reference/reference_window.h"
#include "tests/testing/op_case.h"

namespace syncline::testing {
namespace {

using reference::Dims;

NormalizationShape ShapeOf(const Dims& x, bool across_batch, int64_t group,
                           int64_t channels_per_parameter) {
  NormalizationShape shape;
  shape.batch = x[0];
  shape.channels = x[1];
  shape.plane = reference::Product(x) / (x[0] * x[1]);
  shape.across_batch = across_batch;
  shape.group = group;
  shape.channels_per_parameter = channels_per_parameter;
  return shape;
}

// By the moments of x.
OpCase NormCase(std::string op_type, int version,
                std::map<std::string, Attribute> attributes, const Dims& x,
                const NormalizationShape& shape, double epsilon) {
  attributes["epsilon"] = static_cast<float>(epsilon);
  const double e = static_cast<float>(epsilon);
  const Dims parameter = {shape.parameter_count()};
  return {std::move(op_type),
          version,
          std::move(attributes),
          {x, parameter, parameter},
          [=](const Inputs& in) {
            return reference::Normalize(
                shape, reference::MomentsOf(shape, in[0]), e, in);
          },
          [=](const Inputs& in, const DoubleArray& dy) {
            return reference::NormalizeGradient(
                shape, reference::MomentsOf(shape, in[0]), e, /*fixed=*/false,
                in, dy);
          }};
}

OpCase InstanceNormCase(const Dims& x) {
  return NormCase("InstanceNormalization", 6, {}, x, ShapeOf(x, false, 1, 1),
                  1e-3);
}

// Scale and bias are per group before opset 21.
OpCase GroupNormCase(int version, const Dims& x, int64_t groups) {
  const int64_t group = x[1] / groups;
  return NormCase("GroupNormalization", version, {{"num_groups", groups}}, x,
                  ShapeOf(x, false, group, version < 21 ? group : 1), 1e-3);
}

// By moments that are stored; the batch's are batch_normalization_test's.
OpCase BatchNormCase(const Dims& x) {
  const NormalizationShape shape = ShapeOf(x, true, 1, 1);
  reference::Moments<double> moments;
  std::vector<float> mean, variance;
  for (int64_t c = 0; c < shape.channels; ++c) {
    moments.mean.push_back(mean.emplace_back(0.5f * c - 1));
    moments.variance.push_back(variance.emplace_back(0.25f + c));
  }
  OpCase row = NormCase("BatchNormalization", 15, {}, x, shape, 1e-3);
  const double e = 1e-3f;
  row.forward = [=](const Inputs& in) {
    return reference::Normalize(shape, moments, e, in);
  };
  row.gradient = [=](const Inputs& in, const DoubleArray& dy) {
    return reference::NormalizeGradient(shape, moments, e, /*fixed=*/true, in,
                                        dy);
  };
  row.fixed = {{3, {shape.channels}, mean}, {4, {shape.channels}, variance}};
  return row;
}

}  // namespace

std::vector<OpCase> PlaneNormCases() {
  return {
      BatchNormCase({2, 3, 4, 5}),
      BatchNormCase({3, 2}),
      InstanceNormCase({2, 3, 4, 5}),
      InstanceNormCase({3, 2, 9}),
      GroupNormCase(18, {2, 4, 5}, 2),
      GroupNormCase(21, {2, 4, 3, 3}, 2),
      GroupNormCase(21, {3, 6, 4}, 1),
      InBlocks(BatchNormCase({2, 32, 3, 3}), 16, 16),
      InBlocks(BatchNormCase({3, 8, 5}), 8, 8),
  };
}

}  // namespace syncline::testing

// Goal: BatchNormalization normalises by the batch in training and by what is
// stored otherwise, and hands out the batch's statistics. Method: one node,
// forward and backward, against the reference in double, which is held against
// central differences here; in place and accumulating.

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <list>
#include <thread>

#include "common/base/aligned_buffer.h"
#include "common/base/status_macros.h"
#include "common/model/graph/operator_list.h"
#include "kernels/reference/reference_window.h"
#include "tests/testing/arrays.h"
#include "tests/testing/op_device.h"
#include "tests/testing/poisoned_device.h"
#include "tests/testing/thread_folds.h"
#include "worker/ops/op_table.h"

namespace syncline::worker {
namespace {

using testing::Dot;
using testing::DoubleArray;
using testing::ExpectNear;
using testing::FiniteDifferences;
using testing::RandomArray;
using testing::ToFloats;

constexpr double kEpsilon = 1e-3;
constexpr float kMomentum = 0.75f;
constexpr int64_t kSamples = 6;  // more than the rows of x: a job's, per batch
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

enum class Mode { kTraining, kFrozen, kEvaluation };

NormalizationShape ShapeOf(const Dims& x) {
  return {.batch = x[0],
          .channels = x[1],
          .plane = ElementCount(x) / (x[0] * x[1]),
          .across_batch = true};
}

// The node with the numbers that it runs on, and what should come out.
class Bench {
 public:
  Bench(const Dims& x, Mode mode, double offset = 0)
      : shape_(ShapeOf(x)), of_batch_(mode == Mode::kTraining) {
    const Dims channel = {shape_.channels};
    for (const Dims& dims : {x, channel, channel, channel, channel}) {
      in_.push_back(RandomArray(dims, 20 + in_.size()));
      spec_.inputs.push_back({.present = true, .dims = dims});
    }
    for (double& v : in_[0].values) v = static_cast<float>(v + offset);
    for (double& v : in_[4].values) v = std::fabs(v);
    dy_ = RandomArray(x, 30);
    for (const DoubleArray& array : in_)
      floats_.push_back(ToFloats(array.values));
    node_.op_type = "BatchNormalization";
    node_.since_version = 9;
    node_.attributes = {{"epsilon", static_cast<float>(kEpsilon)},
                        {"momentum", kMomentum}};
    spec_.node = &node_;
    spec_.outputs.assign(5, {.present = true, .dims = channel});
    spec_.outputs[0].dims = x;
    spec_.training = mode != Mode::kEvaluation;
    spec_.samples = kSamples;
    if (mode == Mode::kFrozen) {
      for (int i : {3, 4}) spec_.inputs[i].constant = floats_[i].data();
    }
  }

  DoubleArray Forward() const {
    return reference::Normalize(shape_, Moments(), Epsilon(), in_);
  }
  std::vector<DoubleArray> Gradients() const {
    return reference::NormalizeGradient(shape_, Moments(), Epsilon(),
                                        !of_batch_, in_, dy_);
  }
  reference::Moments<double> Moments() const {
    return of_batch_ ? reference::MomentsOf(shape_, in_[0])
                     : reference::Moments<double>{in_[3].values, in_[4].values};
  }
  // The running variance follows the one over n - 1.
  void FollowSampleVariance() {
    node_.attributes[kSampleVariance] = int64_t{1};
  }
  std::vector<double> FollowedVariance() const {
    std::vector<double> variance = Moments().variance;
    const auto n = static_cast<double>(shape_.elements());
    const bool scaled = of_batch_ && node_.Int(kSampleVariance, 0) != 0;
    for (double& v : variance) v *= scaled ? n / (n - 1) : 1;
    return variance;
  }

  // As the operator's second and third output say.
  std::vector<double> Running(size_t input, const std::vector<double>& batch) {
    std::vector<double> running = in_[input].values;
    for (size_t c = 0; c < running.size() && of_batch_; ++c) {
      running[c] = kMomentum * running[c] + (1 - kMomentum) * batch[c];
    }
    return running;
  }

  void ExpectReferenceIsTheDerivative() {
    const std::vector<DoubleArray> gradients = Gradients();
    for (size_t i = 0; i < 3; ++i) {
      ExpectNear(
          gradients[i].values,
          FiniteDifferences(in_[i].values,
                            [&] { return Dot(Forward().values, dy_.values); }),
          1e-7);
    }
  }

  void RunForward(double tolerance = 1e-5) {
    auto op = CreateOp(spec_);
    ASSERT_TRUE(op.ok()) << op.status();
    op_ = *std::move(op);
    workspace_ = AlignedFloats(op_->traits().workspace_bytes / sizeof(float));
    scratch_ =
        AlignedFloats(op_->traits().backward_scratch_bytes / sizeof(float));
    std::vector<void*> out = {floats_[0].data()};  // in place
    for (int i = 1; i < 5; ++i) {
      other_outputs_.emplace_back(shape_.channels, kNan);
      out.push_back(other_outputs_.back().data());
    }
    const std::vector<const void*> in = Inputs();
    ASSERT_TRUE(testing::RunForward(*op_, {.inputs = in,
                                           .outputs = out,
                                           .workspace = workspace_.data()})
                    .ok());
    ExpectNear(floats_[0], Forward().values, tolerance);
    const auto moments = Moments();
    auto at = other_outputs_.begin();
    ExpectNear(*at++, Running(3, moments.mean), tolerance);
    ExpectNear(*at++, Running(4, FollowedVariance()), tolerance);
    ExpectNear(*at++, moments.mean, tolerance);
    ExpectNear(*at++, moments.variance, tolerance);
    floats_[0] = ToFloats(in_[0].values);
  }

  // The gradient of x over dy, unless it is added to something.
  void RunBackward(bool accumulate) {
    const double before = accumulate ? 1 : 0;
    std::vector<float> dy = ToFloats(dy_.values);
    std::vector<std::vector<float>> d;
    for (const auto& x : floats_) d.emplace_back(x.size(), before);
    std::vector<float*> gradients = {accumulate ? d[0].data() : dy.data()};
    for (size_t i = 1; i < 5; ++i) gradients.push_back(d[i].data());
    const std::vector<const float*> of_outputs = {dy.data(), nullptr, nullptr,
                                                  nullptr, nullptr};
    std::array<bool, 5> accumulates;
    accumulates.fill(accumulate);
    // Arrays that are not declared as read may be gone.
    for (size_t i = 0; i < 5; ++i) {
      if (op_->traits().backward_inputs >> i & 1) continue;
      floats_[i].assign(floats_[i].size(), kNan);
    }
    const std::vector<const void*> in = Inputs();
    ASSERT_TRUE(testing::RunBackward(*op_,
                                     {.inputs = in,
                                      .outputs = {},
                                      .workspace = workspace_.data(),
                                      .scratch = scratch_.data()},
                                     {.outputs = of_outputs,
                                      .inputs = gradients,
                                      .accumulates = accumulates})
                    .ok());
    if (!accumulate) d[0] = dy;
    const auto expect = [&](size_t i, std::vector<double> want, double factor) {
      for (double& v : want) v = v * factor + before;
      SCOPED_TRACE(::testing::Message() << "gradient of input " << i);
      ExpectNear(d[i], want, 1e-5);
    };
    const auto gradients_wanted = Gradients();
    for (size_t i = 0; i < 3; ++i) expect(i, gradients_wanted[i].values, 1);
    expect(3, Moments().mean, kSamples);
    expect(4, FollowedVariance(), kSamples);
  }

 private:
  static double Epsilon() { return static_cast<float>(kEpsilon); }
  std::vector<const void*> Inputs() const {
    std::vector<const void*> in;
    for (const auto& x : floats_) in.push_back(x.data());
    return in;
  }

  const NormalizationShape shape_;
  const bool of_batch_;
  Node node_;
  OpSpec spec_ = testing::HostSpec();
  std::vector<DoubleArray> in_;
  DoubleArray dy_;
  std::vector<std::vector<float>> floats_;  // in_, as the Op has them
  std::list<std::vector<float>> other_outputs_;
  std::unique_ptr<Op> op_;
  AlignedFloats workspace_, scratch_;
};

TEST(BatchNormalizationTest, IsItsReferenceAndTheDerivative) {
  for (const Mode mode : {Mode::kTraining, Mode::kFrozen, Mode::kEvaluation}) {
    for (const Dims& x :
         {Dims{2, 3, 4, 5}, {4, 2, 9}, {5, 3}, {6, 35}, {1, 2, 17}}) {
      SCOPED_TRACE(DimsToString(x));
      for (const bool accumulate : {false, true}) {
        Bench bench(x, mode);
        bench.ExpectReferenceIsTheDerivative();
        bench.RunForward();
        bench.RunBackward(accumulate);
      }
    }
  }
}

// Two elements a channel are the least that has a variance.
TEST(BatchNormalizationTest, PyTorchsRunningVarianceIsOverOneLess) {
  for (const Mode mode : {Mode::kTraining, Mode::kFrozen, Mode::kEvaluation}) {
    for (const Dims& x : {Dims{2, 3, 4, 5}, {2, 3}}) {
      for (const bool accumulate : {false, true}) {
        Bench bench(x, mode);
        bench.FollowSampleVariance();
        bench.RunForward();
        bench.RunBackward(accumulate);
      }
    }
  }
}

// A sum of squares less the square of the sum would have no digit left.
TEST(BatchNormalizationTest, AnOffsetCostsNoPrecision) {
  for (const Dims& x : {Dims{16, 2, 8, 8}, {1024, 17}}) {
    Bench bench(x, Mode::kTraining, /*offset=*/4096);
    bench.RunForward(/*tolerance=*/1e-3);
  }
}

// The same node on several workers, each with some of the rows. The
// operator keeps its own state where the host cannot touch it.
class FoldedBench {
 public:
  FoldedBench(const Dims& x, std::vector<int64_t> rows, double offset = 0)
      : whole_(ShapeOf(x)), folds_(rows.size()) {
    const Dims channel = {whole_.channels};
    for (const Dims& dims : {x, channel, channel, channel, channel}) {
      in_.push_back(RandomArray(dims, 40 + in_.size()));
    }
    for (double& v : in_[0].values) v = static_cast<float>(v + offset);
    for (double& v : in_[4].values) v = std::fabs(v);
    dy_ = RandomArray(x, 50);
    node_.op_type = "BatchNormalization";
    node_.since_version = 15;
    node_.attributes = {{"epsilon", static_cast<float>(kEpsilon)},
                        {"momentum", kMomentum}};
    int64_t first = 0;
    for (const int64_t count : rows) {
      workers_.push_back({.first = first, .rows = count});
      first += count;
    }
  }

  void FollowSampleVariance() {
    node_.attributes[kSampleVariance] = int64_t{1};
  }

  // The outputs and gradients of all workers are those of the whole batch.
  void ExpectTheWhole(double tolerance) {
    const auto moments = reference::MomentsOf(whole_, in_[0]);
    const double epsilon = static_cast<float>(kEpsilon);
    const DoubleArray y = reference::Normalize(whole_, moments, epsilon, in_);
    const auto gradients = reference::NormalizeGradient(
        whole_, moments, epsilon, /*fixed=*/false, in_, dy_);
    Run();
    std::vector<double> dscale(whole_.channels), dbias(whole_.channels);
    for (const Worker& w : workers_) {
      ExpectNear(w.y, Rows(y, w), tolerance);
      ExpectNear(w.y_again, Rows(y, w), tolerance);
      ExpectNear(w.d[0], Rows(gradients[0], w), tolerance);
      for (int64_t c = 0; c < whole_.channels; ++c) {
        dscale[c] += w.d[1][c];
        dbias[c] += w.d[2][c];
      }
      const auto times_rows = [&](std::vector<double> values) {
        for (double& v : values) v *= static_cast<double>(w.rows);
        return values;
      };
      ExpectNear(w.d[3], times_rows(moments.mean), tolerance);
      std::vector<double> followed = moments.variance;
      const auto n = static_cast<double>(whole_.elements());
      if (node_.Int(kSampleVariance, 0) != 0) {
        for (double& v : followed) v *= n / (n - 1);
      }
      ExpectNear(w.d[4], times_rows(followed), tolerance);
      for (const size_t i : {3, 4}) {  // the same bits, but for rows
        for (int64_t c = 0; c < whole_.channels; ++c) {
          EXPECT_FLOAT_EQ(
              w.d[i][c] / static_cast<float>(w.rows),
              workers_[0].d[i][c] / static_cast<float>(workers_[0].rows));
        }
      }
    }
    ExpectNear(dscale, gradients[1].values, tolerance);
    ExpectNear(dbias, gradients[2].values, tolerance);
    EXPECT_EQ(folds_.count(), 2) << "forward and backward, not again";
  }

  // All of them at once. The status is Forward's, by worker.
  std::vector<absl::Status> Run() {
    std::vector<absl::Status> statuses(workers_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      threads.emplace_back(
          [this, rank, &statuses] { statuses[rank] = RunWorker(rank); });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }
  void Spoil(int64_t row) {
    in_[0].values[row * whole_.channels * whole_.plane] = kNan;
  }
  const std::vector<float>& gradient(size_t rank, size_t input) const {
    return workers_[rank].d[input];
  }
  const std::vector<double>& input(size_t i) const { return in_[i].values; }

 private:
  struct Worker {
    int64_t first = 0;
    int64_t rows = 0;
    std::vector<float> y = {};
    std::vector<float> y_again = {};
    std::vector<std::vector<float>> d = {};
  };

  std::vector<double> Rows(const DoubleArray& array, const Worker& w) const {
    const int64_t row = whole_.channels * whole_.plane;
    return {array.values.begin() + w.first * row,
            array.values.begin() + (w.first + w.rows) * row};
  }

  absl::Status RunWorker(size_t rank) {
    Worker& w = workers_[rank];
    std::vector<std::vector<float>> in = {ToFloats(Rows(in_[0], w))};
    testing::PoisonedDevice device;
    auto stream = device.MakeStream();
    if (!stream.ok()) return stream.status();
    OpSpec spec;
    spec.device = &device;
    spec.node = &node_;
    Dims x = in_[0].dims;
    x[0] = w.rows;
    spec.inputs.assign(5, {.present = true, .dims = {whole_.channels}});
    spec.inputs[0].dims = x;
    spec.outputs = {{.present = true, .dims = x}};
    spec.training = true;
    spec.folds_statistics = true;
    spec.samples = w.rows;
    for (size_t i = 1; i < 5; ++i) in.push_back(ToFloats(in_[i].values));
    const auto op = CreateOp(spec);
    if (!op.ok()) return op.status();
    EXPECT_EQ((*op)->traits().workspace_bytes, 0);
    w.y.resize(in[0].size());
    w.y_again.resize(in[0].size());
    AlignedFloats scratch(std::max((*op)->traits().forward_scratch_bytes,
                                   (*op)->traits().backward_scratch_bytes) /
                          sizeof(float));
    std::vector<const void*> inputs;
    for (const auto& values : in) inputs.push_back(values.data());
    std::vector<void*> outputs = {w.y.data()};
    Op::Tensors t = {.inputs = inputs,
                     .outputs = outputs,
                     .scratch = scratch.data(),
                     .stream = stream->get(),
                     .statistics = folds_.of(rank)};
    SYNCLINE_RETURN_IF_ERROR((*op)->Forward(t));
    outputs[0] = w.y_again.data();
    t.again = true;
    SYNCLINE_RETURN_IF_ERROR((*op)->Forward(t));
    std::vector<float> dy = ToFloats(Rows(dy_, w));
    w.d.clear();
    for (const auto& values : in) w.d.emplace_back(values.size(), kNan);
    std::vector<float*> gradients;
    for (auto& d : w.d) gradients.push_back(d.data());
    const std::vector<const float*> of_outputs = {dy.data()};
    return (*op)->Backward(
        t, {.outputs = of_outputs, .inputs = gradients, .accumulates = {}});
  }

  const NormalizationShape whole_;
  testing::ThreadFolds folds_;
  Node node_;
  std::vector<DoubleArray> in_;
  DoubleArray dy_;
  std::vector<Worker> workers_;
};

// The reference is held against finite differences above.
TEST(FoldedBatchNormalizationTest, IsThatOfTheWholeBatch) {
  FoldedBench({4, 3, 4, 5}, {2, 2}).ExpectTheWhole(1e-5);
  FoldedBench({9, 2, 9}, {4, 3, 2}).ExpectTheWhole(1e-5);
  FoldedBench({7, 35}, {5, 2}).ExpectTheWhole(1e-5);
  FoldedBench({3, 4}, {1, 1, 1}).ExpectTheWhole(1e-5);  // an element each
  FoldedBench({5, 2, 3}, {5}).ExpectTheWhole(1e-5);
}

TEST(FoldedBatchNormalizationTest, PyTorchsRunningVarianceIsOverAllWorkers) {
  FoldedBench bench({3, 4}, {1, 1, 1});
  bench.FollowSampleVariance();
  bench.ExpectTheWhole(1e-5);
  FoldedBench alone({1, 3}, {1});
  alone.FollowSampleVariance();
  for (const absl::Status& status : alone.Run()) EXPECT_TRUE(status.ok());
  ExpectNear(alone.gradient(0, 4), alone.input(4), 1e-6);
}

TEST(FoldedBatchNormalizationTest, AnOffsetCostsNoPrecision) {
  FoldedBench({32, 2, 8, 8}, {16, 7, 9}, /*offset=*/4096)
      .ExpectTheWhole(/*tolerance=*/4e-3);
}

TEST(FoldedBatchNormalizationTest, ALoneElementIsNormalisedByWhatIsStored) {
  FoldedBench bench({1, 3}, {1});
  for (const absl::Status& status : bench.Run()) EXPECT_TRUE(status.ok());
  ExpectNear(bench.gradient(0, 3), bench.input(3), 1e-6);
  ExpectNear(bench.gradient(0, 4), bench.input(4), 1e-6);
}

TEST(FoldedBatchNormalizationTest, AllLearnWhoseInputIsNotFinite) {
  FoldedBench bench({4, 2, 3}, {2, 2});
  bench.Spoil(3);
  const std::vector<absl::Status> statuses = bench.Run();
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_NE(statuses[0].message().find("another worker's input"),
            std::string::npos);
  EXPECT_NE(statuses[1].message().find("this worker's input"),
            std::string::npos);
}

TEST(BatchNormalizationTest, WhatDoesNotFitIsRefused) {
  const auto status_of = [](const Dims& x, const Dims& variance) {
    Node node;
    node.op_type = "BatchNormalization";
    OpSpec spec = testing::HostSpec();
    spec.node = &node;
    spec.inputs.assign(5, {.present = true, .dims = {3}});
    spec.inputs[0].dims = x;
    spec.inputs[4].dims = variance;
    return std::string(CreateOp(spec).status().message());
  };
  EXPECT_EQ(status_of({2, 3}, {3}), "");
  EXPECT_NE(status_of({3}, {3}).find("input 0 is [3]"), std::string::npos);
  EXPECT_NE(status_of({2, 3}, {2}).find("input 4 is [2]; it must be [3]"),
            std::string::npos);
}

}  // namespace
}  // namespace syncline::worker

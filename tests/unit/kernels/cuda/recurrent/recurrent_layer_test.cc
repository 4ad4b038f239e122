// Goal: layers of each cell and form, and their gradients, are those of this
// machine, with the same bits in any order of threads. Method: drawn arrays on
// an emulated device; unwanted outputs and gradients left out.

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/device/data_error.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/recurrent_kernels.h"
#include "tests/testing/arrays.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using testing::EmulatedDevice;
using testing::RandomArray;
using testing::ToFloats;
using Kind = RnnActivation::Kind;

constexpr int64_t kSteps = 4;
constexpr int64_t kSamples = 3;
constexpr int64_t kWidth = 5;
constexpr int64_t kHidden = 6;

struct Case {
  RecurrentShape shape;
  std::vector<int32_t> lengths;
  bool has_states = false;
  bool wants_all = true;  // outputs and gradients
};

RecurrentShape ShapeOf(RecurrentCell cell) {
  RecurrentShape s;
  s.cell = cell;
  s.gates = cell == RecurrentCell::kRnn   ? 1
            : cell == RecurrentCell::kGru ? 3
                                          : 4;
  s.steps = kSteps;
  s.samples = kSamples;
  s.width = kWidth;
  s.hidden = kHidden;
  s.wants_gradients = s.wants_dx = s.wants_dw = true;
  return s;
}

void SetFunctions(const std::vector<RnnActivation>& cell, RecurrentShape* s) {
  for (int64_t i = 0; i < s->directions; ++i) {
    for (const RnnActivation& f : cell) s->functions.push_back(f);
  }
}

std::vector<RnnActivation> UsualOf(RecurrentCell cell) {
  const RnnActivation sigmoid = {.kind = Kind::kSigmoid};
  const RnnActivation tanh = {.kind = Kind::kTanh};
  if (cell == RecurrentCell::kRnn) return {tanh};
  if (cell == RecurrentCell::kGru) return {sigmoid, tanh};
  return {sigmoid, tanh, tanh};
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto cell :
       {RecurrentCell::kRnn, RecurrentCell::kGru, RecurrentCell::kLstm}) {
    for (int bits = 0; bits < 64; ++bits) {
      Case c;
      c.shape = ShapeOf(cell);
      c.shape.directions = bits & 1 ? 2 : 1;
      c.shape.reversed = (bits & 3) == 2;
      c.shape.batch_first = (bits & 4) != 0;
      if (bits & 8) c.lengths = {2, 4, 0};
      c.has_states = c.shape.has_bias = (bits & 16) != 0;
      if (cell == RecurrentCell::kGru) {
        c.shape.scales_product = (bits & 32) != 0;
      } else if (cell == RecurrentCell::kLstm) {
        c.shape.has_peepholes = (bits & 32) != 0;
        c.shape.couples_gates = (bits & 36) == 36;
      } else {
        c.wants_all = (bits & 32) == 0;
      }
      c.shape.has_lengths = !c.lengths.empty();
      if ((bits & 3) == 3) continue;
      SetFunctions(UsualOf(cell), &c.shape);
      cases.push_back(c);
    }
    // Other functions, clipped.
    for (const auto kind :
         {Kind::kAffine, Kind::kElu, Kind::kHardSigmoid, Kind::kLeakyRelu,
          Kind::kRelu, Kind::kScaledTanh, Kind::kSoftplus, Kind::kSoftsign,
          Kind::kThresholdedRelu}) {
      Case c;
      c.shape = ShapeOf(cell);
      c.shape.has_usual_functions = false;
      std::vector<RnnActivation> functions = UsualOf(cell);
      for (RnnActivation& f : functions) {
        f = {.kind = kind, .alpha = 0.4f, .beta = 0.7f, .clip = 0.9f};
      }
      SetFunctions(functions, &c.shape);
      cases.push_back(c);
    }
  }
  return cases;
}

// One layer and all its memory, on one device.
class LayerRun {
 public:
  LayerRun(const Case& c, Device* device)
      : c_(c), s_(c.shape), device_(*device), stream_(*device->MakeStream()) {
    auto layer = device->kernels().recurrent->make(*device, s_);
    EXPECT_OK(layer.status());
    layer_ = *std::move(layer);
    const int64_t d = s_.directions;
    const int64_t row = s_.gate_row();
    t_.x = Draw(s_.rows() * s_.width, 1);
    t_.w = Draw(d * row * s_.width, 2);
    t_.r = Draw(d * row * s_.hidden, 3);
    if (s_.has_bias) t_.bias = Draw(2 * d * row, 4);
    if (s_.has_lengths) t_.lengths = Put(c.lengths);
    if (c.has_states) t_.h = Draw(d * s_.state(), 5);
    if (c.has_states && is_lstm()) t_.c = Draw(d * s_.state(), 6);
    if (s_.has_peepholes) t_.peepholes = Draw(3 * d * s_.hidden, 7);
    t_.workspace = Scratch(layer_->workspace_bytes());
    t_.errors = {.record = Put(std::vector<DataError>(1)), .node = 3};
  }

  std::vector<std::vector<float>> Run() {
    const int64_t d = s_.directions;
    t_.y = Result(d * s_.rows() * s_.hidden, 0);
    if (c_.wants_all) t_.last_h = Result(d * s_.state(), 0);
    if (c_.wants_all && is_lstm()) t_.last_c = Result(d * s_.state(), 0);
    t_.scratch = Scratch(layer_->forward_scratch_bytes());
    EXPECT_OK(layer_->Forward(*stream_, t_));
    RunBackward();
    std::vector<std::vector<float>> all;
    for (const Array& result : results_) {
      all.emplace_back(result.count);
      stream_->CopyToHost(all.back().data(), result.data,
                          result.count * sizeof(float));
    }
    DataError error;
    stream_->CopyToHost(&error, t_.errors.record, sizeof(error));
    EXPECT_OK(stream_->Synchronize());
    EXPECT_EQ(error.node, DataError::kNone);
    return all;
  }

 private:
  struct Array {
    float* data;
    int64_t count;
  };

  bool is_lstm() const { return s_.cell == RecurrentCell::kLstm; }
  template <typename T>
  T* Put(const std::vector<T>& values) {
    memory_.push_back(*Upload(device_, absl::Span<const T>(values)));
    return memory_.back().template as<T>();
  }
  float* Draw(int64_t count, uint64_t seed) {
    return Put(ToFloats(RandomArray({count}, seed).values));
  }
  void* Scratch(int64_t bytes) {
    memory_.push_back(*device_.Allocate(bytes));
    return memory_.back().data();
  }
  float* Result(int64_t count, float before) {
    results_.push_back({Put(std::vector<float>(count, before)), count});
    return results_.back().data;
  }
  // Half of the gradients are added to what is there.
  RecurrentGradients::Into Wanted(int64_t count) {
    const bool accumulate = results_.size() % 2 == 0;
    return {Result(count, 0.5f), accumulate};
  }
  void RunBackward() {
    const int64_t d = s_.directions;
    const int64_t row = s_.gate_row();
    RecurrentGradients g;
    g.dy = Draw(d * s_.rows() * s_.hidden, 11);
    g.w = Wanted(d * row * s_.width);
    g.r = Wanted(d * row * s_.hidden);
    if (c_.wants_all) {
      g.dlast_h = Draw(d * s_.state(), 12);
      if (is_lstm()) g.dlast_c = Draw(d * s_.state(), 13);
      g.x = Wanted(s_.rows() * s_.width);
    }
    if (s_.has_bias) g.bias = Wanted(2 * d * row);
    if (c_.has_states) g.h = Wanted(d * s_.state());
    if (c_.has_states && is_lstm()) g.c = Wanted(d * s_.state());
    if (s_.has_peepholes) g.peepholes = Wanted(3 * d * s_.hidden);
    t_.scratch = Scratch(layer_->backward_scratch_bytes());
    EXPECT_OK(layer_->Backward(*stream_, t_, g));
  }

  const Case& c_;
  const RecurrentShape& s_;
  Device& device_;
  std::vector<DeviceMemory> memory_;
  const std::unique_ptr<Stream> stream_;
  std::unique_ptr<RecurrentLayer> layer_;
  RecurrentTensors t_;
  std::vector<Array> results_;
};

TEST(CudaRecurrentLayerTest, ComputesAsThisMachineDoes) {
  int number = 0;
  for (const Case& c : Cases()) {
    SCOPED_TRACE(absl::StrCat("case ", number++));
    const auto want = LayerRun(c, &ThisMachine()).Run();
    std::vector<std::vector<float>> first;
    for (const uint64_t seed : {1, 2}) {
      EmulatedDevice device(seed);
      const auto got = LayerRun(c, &device).Run();
      ASSERT_EQ(device.status(), absl::OkStatus());
      if (seed == 1) first = got;
      EXPECT_EQ(got, first);
    }
    ASSERT_EQ(first.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("array ", i));
      testing::ExpectNear(first[i], {want[i].begin(), want[i].end()}, 1e-5);
    }
  }
}

TEST(CudaRecurrentLayerTest, ALengthThatCannotBeIsReported) {
  for (Device* const device :
       std::initializer_list<Device*>{&ThisMachine(), nullptr}) {
    EmulatedDevice emulated;
    Device& on = device != nullptr ? *device : emulated;
    Case c;
    c.shape = ShapeOf(RecurrentCell::kRnn);
    c.shape.has_lengths = true;
    c.shape.wants_gradients = c.shape.wants_dx = c.shape.wants_dw = false;
    SetFunctions(UsualOf(RecurrentCell::kRnn), &c.shape);
    const auto layer = *on.kernels().recurrent->make(on, c.shape);
    const auto stream = *on.MakeStream();
    const auto zeros = [&](int64_t bytes) {
      auto memory = *on.Allocate(bytes);
      stream->Clear(memory.data(), bytes);
      return memory;
    };
    const DeviceMemory x = zeros(kSteps * kSamples * kWidth * sizeof(float));
    const DeviceMemory w = zeros(kHidden * kWidth * sizeof(float));
    const DeviceMemory r = zeros(kHidden * kHidden * sizeof(float));
    const DeviceMemory work = zeros(layer->workspace_bytes());
    const DeviceMemory scratch = zeros(layer->forward_scratch_bytes());
    const std::vector<int32_t> lengths = {4, 5, -1};
    const DeviceMemory on_device =
        *Upload(on, absl::Span<const int32_t>(lengths));
    const std::vector<DataError> none(1);
    const DeviceMemory record = *Upload(on, absl::Span<const DataError>(none));
    RecurrentTensors t;
    t.x = x.as<float>();
    t.w = w.as<float>();
    t.r = r.as<float>();
    t.lengths = on_device.as<int32_t>();
    t.workspace = work.data();
    t.scratch = scratch.data();
    t.errors = {.record = record.as<DataError>(), .node = 3};
    EXPECT_OK(layer->Forward(*stream, t));
    DataError error;
    stream->CopyToHost(&error, record.data(), sizeof(error));
    EXPECT_OK(stream->Synchronize());
    EXPECT_EQ(error.node, 3);
    EXPECT_EQ(error.position, 1);
    EXPECT_EQ(error.value, 5);
  }
}

}  // namespace
}  // namespace syncline

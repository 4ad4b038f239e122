// Goal: RNN, GRU and LSTM compute what ONNX says, and a gradient flows from
// each of their outputs to each of their inputs. Method: the reference, in
// double, and its central differences, over every setting: directions, layouts,
// samples of different length, with and without biases and initial states; and
// with each function that a cell may have, clipped or not, peepholes and
// coupled gates.

#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/reference/reference_recurrent.h"
#include "tests/testing/op_run.h"

namespace syncline::worker {
namespace {

using reference::Cell;
using reference::NamedFunction;
using reference::RecurrentAttributes;
using testing::Dot;
using testing::DoubleArray;
using testing::ExpectNear;
using testing::FiniteDifferences;
using testing::OpRun;
using testing::RandomArray;
using RecurrentInputs = reference::RecurrentInputs<double>;
using RecurrentOutputs = reference::RecurrentOutputs<double>;
using reference::Dims;

constexpr int64_t kSteps = 3;
constexpr int64_t kSamples = 3;
constexpr int64_t kFeatures = 2;
constexpr int64_t kHidden = 2;

struct Setting {
  RecurrentAttributes a;
  bool bias = true;
  bool states = true;
  bool peepholes = false;
  std::string form = "";

  std::string Name() const {
    static constexpr const char* kCells[] = {"Rnn", "Gru", "Lstm"};
    return absl::StrCat(
        kCells[static_cast<int>(a.cell)],
        a.directions == 2 ? "Both" : (a.reversed ? "Backwards" : ""),
        a.linear_before_reset ? "Linear" : "", a.batch_first ? "Batch" : "",
        a.lengths.empty() ? "" : "Ragged", bias ? "" : "NoBias",
        states ? "" : "NoStates", form);
  }
};

// Every function twice or more, in each place; an LSTM has three, a GRU two.
const std::vector<NamedFunction>& SomeFunctions() {
  static const std::vector<NamedFunction> functions = {
      {"HardSigmoid", 0.3, 0.4},
      {"Softsign"},
      {"LeakyRelu", 0.2},
      {"Sigmoid"},
      {"Elu", 0.7},
      {"ScaledTanh", 1.5, 0.6},
      {"Affine", 0.5, 0.1},
      {"Softplus"},
      {"ThresholdedRelu", 0.05},
      {"Tanh"},
      {"Relu"}};
  return functions;
}

// Cells with others than their usual functions, both directions' different.
void AddForms(Cell cell, std::vector<Setting>* settings) {
  const size_t per_direction =
      cell == Cell::kRnn ? 1 : (cell == Cell::kGru ? 2 : 3);
  for (size_t first = 0; first < SomeFunctions().size(); ++first) {
    Setting s;
    s.a.cell = cell;
    s.a.directions = 2;
    s.a.batch_first = first % 2 == 0;
    s.a.linear_before_reset = cell == Cell::kGru && first % 2 == 0;
    if (first % 3 == 0) s.a.lengths = {2, 3, 0};
    for (size_t i = 0; i < 2 * per_direction; ++i) {
      s.a.functions.push_back(
          SomeFunctions()[(first + i) % SomeFunctions().size()]);
    }
    s.form = absl::StrCat(s.a.functions[0].name, "First");
    settings->push_back(s);
  }
  for (const bool linear : {false, true}) {
    Setting s;
    s.a.cell = cell;
    s.a.clip = 0.4;
    s.form = "Clipped";
    s.a.linear_before_reset = linear;
    if (!linear || cell == Cell::kGru) settings->push_back(s);
  }
}

void AddLstmForms(std::vector<Setting>* settings) {
  for (int bits = 1; bits < 16; ++bits) {
    Setting s;
    s.peepholes = (bits & 1) != 0;
    s.a.input_forget = (bits & 2) != 0;
    s.a.directions = bits & 4 ? 2 : 1;
    if (bits & 8) s.a.lengths = {2, 3, 0};
    s.form = absl::StrCat(s.peepholes ? "Peepholes" : "",
                          s.a.input_forget ? "Coupled" : "");
    if (!s.form.empty()) settings->push_back(s);
  }
}

std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  for (const Cell cell : {Cell::kRnn, Cell::kGru, Cell::kLstm}) {
    for (int bits = 0; bits < 64; ++bits) {
      Setting s;
      s.a.cell = cell;
      s.a.directions = bits & 1 ? 2 : 1;
      s.a.reversed = (bits & 2) != 0;
      s.a.linear_before_reset = (bits & 4) != 0;
      s.a.batch_first = (bits & 8) != 0;
      if (bits & 16) s.a.lengths = {2, 3, 0};
      s.bias = s.states = (bits & 32) != 0;
      if (s.a.directions == 2 && s.a.reversed) continue;
      if (cell != Cell::kGru && s.a.linear_before_reset) continue;
      settings.push_back(s);
    }
    AddForms(cell, &settings);
  }
  AddLstmForms(&settings);
  return settings;
}

RecurrentInputs DrawInputs(const Setting& s) {
  const int64_t gates = reference::GateCount(s.a.cell);
  const int64_t d = s.a.directions;
  RecurrentInputs in;
  in.x = RandomArray(s.a.batch_first ? Dims{kSamples, kSteps, kFeatures}
                                     : Dims{kSteps, kSamples, kFeatures},
                     1);
  in.w = RandomArray({d, gates * kHidden, kFeatures}, 2);
  in.r = RandomArray({d, gates * kHidden, kHidden}, 3);
  if (s.bias) in.bias = RandomArray({d, 2 * gates * kHidden}, 4);
  if (s.peepholes) in.peepholes = RandomArray({d, 3 * kHidden}, 10);
  if (!s.states) return in;
  const Dims state =
      s.a.batch_first ? Dims{kSamples, d, kHidden} : Dims{d, kSamples, kHidden};
  in.h = RandomArray(state, 5);
  if (s.a.cell == Cell::kLstm) in.c = RandomArray(state, 6);
  return in;
}

std::map<std::string, Attribute> AttributesOf(const Setting& s) {
  std::map<std::string, Attribute> attributes = {{"hidden_size", kHidden}};
  attributes["layout"] = int64_t{s.a.batch_first};
  attributes["direction"] =
      std::string(s.a.directions == 2 ? "bidirectional"
                                      : (s.a.reversed ? "reverse" : "forward"));
  if (s.a.cell == Cell::kGru) {
    attributes["linear_before_reset"] = int64_t{s.a.linear_before_reset};
  }
  if (s.a.clip > 0) attributes["clip"] = static_cast<float>(s.a.clip);
  if (s.a.input_forget) attributes["input_forget"] = int64_t{1};
  if (s.a.functions.empty()) return attributes;
  std::vector<std::string> names;
  std::vector<float> alphas, betas;
  for (const NamedFunction& f : s.a.functions) {
    names.push_back(f.name);
    if (f.alpha != 0) alphas.push_back(static_cast<float>(f.alpha));
    if (f.beta != 0) betas.push_back(static_cast<float>(f.beta));
  }
  attributes["activations"] = names;
  attributes["activation_alpha"] = alphas;
  attributes["activation_beta"] = betas;
  return attributes;
}

// By output: Y, Y_h and, of an LSTM, Y_c.
std::vector<DoubleArray> OutputsOf(const Setting& s,
                                   const RecurrentInputs& in) {
  RecurrentOutputs out = reference::Recurrent(s.a, in);
  std::vector<DoubleArray> list = {out.y, out.h};
  if (s.a.cell == Cell::kLstm) list.push_back(out.c);
  return list;
}

class RecurrentOpTest : public ::testing::TestWithParam<Setting> {
 protected:
  RecurrentOpTest()
      : s_(GetParam()),
        in_(DrawInputs(s_)),
        run_(s_.a.cell == Cell::kRnn
                 ? "RNN"
                 : (s_.a.cell == Cell::kGru ? "GRU" : "LSTM"),
             14, AttributesOf(s_)) {
    const auto add = [&](DoubleArray* x) {
      arrays_.push_back(x);
      if (x->dims.empty()) {
        run_.NoInput();
      } else {
        run_.Input(*x);
      }
    };
    for (DoubleArray* x : {&in_.x, &in_.w, &in_.r, &in_.bias}) add(x);
    arrays_.push_back(nullptr);
    if (s_.a.lengths.empty()) {
      run_.NoInput();
    } else {
      run_.Integers(
          DType::kInt32, {kSamples},
          std::vector<int32_t>(s_.a.lengths.begin(), s_.a.lengths.end()));
    }
    add(&in_.h);
    if (s_.a.cell == Cell::kLstm) {
      add(&in_.c);
      add(&in_.peepholes);
    }
    for (const DoubleArray& y : OutputsOf(s_, in_)) {
      run_.Output(y.dims);
      dy_.push_back(RandomArray(y.dims, 7 + dy_.size()));
    }
  }

  // The gradient of input `i` from dy_ of one output.
  std::vector<double> Derivative(size_t i, size_t output) {
    return FiniteDifferences(arrays_[i]->values, [&] {
      return Dot(OutputsOf(s_, in_)[output].values, dy_[output].values);
    });
  }

  // `chosen` outputs have a gradient.
  void ExpectGradients(uint32_t chosen, std::optional<float> before,
                       const std::vector<std::vector<std::vector<double>>>& d) {
    SCOPED_TRACE(absl::StrCat("outputs ", chosen));
    std::vector<DoubleArray> dy(dy_.size());
    for (size_t o = 0; o < dy.size(); ++o) {
      if (chosen >> o & 1) dy[o] = dy_[o];
    }
    const std::vector<std::vector<float>> dx = run_.Backward(dy, before);
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (!Exists(i)) continue;
      SCOPED_TRACE(absl::StrCat("gradient of input ", i));
      std::vector<double> want(dx[i].size(), before.value_or(0));
      for (size_t o = 0; o < dy.size(); ++o) {
        if ((chosen >> o & 1) == 0) continue;
        for (size_t k = 0; k < want.size(); ++k) want[k] += d[o][i][k];
      }
      ExpectNear(dx[i], want, 1e-5);
    }
  }

  bool Exists(size_t i) const {
    return arrays_[i] != nullptr && !arrays_[i]->dims.empty();
  }

  const Setting s_;
  RecurrentInputs in_;
  OpRun run_;
  std::vector<DoubleArray*> arrays_;  // of in_, by input
  std::vector<DoubleArray> dy_;
};

TEST_P(RecurrentOpTest, IsTheReference) {
  ASSERT_TRUE(run_.Forward().ok());
  const std::vector<DoubleArray> want = OutputsOf(s_, in_);
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("output ", i));
    ExpectNear(run_.output(i), want[i].values, 1e-5);
  }
}

// Of all states two are enough for that, and more would be most of an
// evaluation's memory.
TEST_P(RecurrentOpTest, WithoutGradientsItIsTheSameInLess) {
  ASSERT_TRUE(run_.Forward().ok());
  const int64_t with_gradients = run_.workspace_bytes();
  std::vector<std::vector<float>> want;
  for (size_t i = 0; i < dy_.size(); ++i) want.push_back(run_.output(i));
  run_.WithoutGradients();
  ASSERT_TRUE(run_.Forward().ok());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(run_.output(i), want[i]);
  EXPECT_LT(run_.workspace_bytes(), with_gradients);
}

TEST_P(RecurrentOpTest, EveryOutputHasAGradient) {
  ASSERT_TRUE(run_.Forward().ok());
  std::vector<std::vector<std::vector<double>>> d(dy_.size());
  for (size_t o = 0; o < d.size(); ++o) {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      d[o].push_back(Exists(i) ? Derivative(i, o) : std::vector<double>());
    }
  }
  const uint32_t all = (1u << dy_.size()) - 1;
  ExpectGradients(all, 1.0f, d);
  for (uint32_t chosen = 1; chosen <= all; ++chosen) {
    ExpectGradients(chosen, std::nullopt, d);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, RecurrentOpTest,
                         ::testing::ValuesIn(Settings()),
                         [](const auto& info) { return info.param.Name(); });

// The text with which a node is refused.
std::string Refusal(std::map<std::string, Attribute> attributes,
                    int64_t peepholes = 15, int64_t hidden = 5) {
  OpRun run("LSTM", 14, std::move(attributes));
  run.Input(RandomArray({4, 3, 2}, 1))
      .Input(RandomArray({1, 20, 2}, 2))
      .Input(RandomArray({1, 20, hidden}, 3));
  for (int i = 3; i < 7; ++i) run.NoInput();
  run.Input(RandomArray({1, peepholes}, 4));
  run.Output({4, 1, 3, 5});
  return std::string(run.Forward().message());
}

TEST(RecurrentOpTest, WhatDoesNotFitIsRefused) {
  using Strings = std::vector<std::string>;
  using Numbers = std::vector<float>;
  EXPECT_EQ(Refusal({}), "");
  EXPECT_EQ(Refusal({{"activations", Strings{"sigmoid", "Tanh", "relu"}}}), "");
  EXPECT_EQ(Refusal({{"activations", Strings{"Relu", "Tanh"}}}),
            "node \"it\" (LSTM): there are 2 activations; there must be 3, "
            "those of each direction");
  EXPECT_EQ(Refusal({{"activations", Strings{"Relu", "Tanh", "Sine"}}}),
            "node \"it\" (LSTM): activations have \"Sine\"; they must be "
            "among Affine, Elu, HardSigmoid, LeakyRelu, Relu, ScaledTanh, "
            "Sigmoid, Softplus, Softsign, Tanh, ThresholdedRelu");
  EXPECT_EQ(Refusal({{"activations", Strings{"Elu", "Tanh", "Tanh"}},
                     {"activation_alpha", Numbers{1, 2, 3}}}),
            "node \"it\" (LSTM): activation_alpha has 3 numbers, but only 1 "
            "of the activations have one");
  EXPECT_EQ(Refusal({{"clip", 0.0f}}),
            "node \"it\" (LSTM): clip is 0; it must be above 0");
  EXPECT_EQ(Refusal({}, /*peepholes=*/16),
            "node \"it\" (LSTM): input 7 is [1,16]; it must be [1,15]");
  EXPECT_EQ(Refusal({{"direction", std::string("sideways")}}),
            "node \"it\" (LSTM): direction is \"sideways\"; it must be "
            "forward, reverse or bidirectional");
  EXPECT_EQ(Refusal({{"hidden_size", int64_t{6}}}),
            "node \"it\" (LSTM): hidden_size is 6, but input 2 is [1,20,5]");
  EXPECT_EQ(Refusal({}, /*peepholes=*/15, /*hidden=*/6),
            "node \"it\" (LSTM): input 1 is [1,20,2]; it must be [1,24,2]");
}

// Functions without numbers of their own have ONNX's.
TEST(RecurrentOpTest, NumbersThatAreLeftOutAreTheDefaults) {
  using Strings = std::vector<std::string>;
  const auto output = [](std::map<std::string, Attribute> attributes) {
    OpRun run("RNN", 14, std::move(attributes));
    run.Input(testing::MakeArray({1, 1, 1}, {-2}))
        .Input(testing::MakeArray({1, 1, 1}, {1}))
        .Input(testing::MakeArray({1, 1, 1}, {0}))
        .Output({1, 1, 1, 1});
    EXPECT_TRUE(run.Forward().ok());
    return run.output(0)[0];
  };
  const std::pair<const char*, double> values[] = {
      {"Affine", -2},
      {"Elu", std::exp(-2.0) - 1},
      {"HardSigmoid", 0.1},
      {"LeakyRelu", -0.02},
      {"ScaledTanh", std::tanh(-2.0)},
      {"ThresholdedRelu", 0}};
  for (const auto& [name, value] : values) {
    EXPECT_NEAR(output({{"activations", Strings{name}}}), value, 1e-6) << name;
  }
  EXPECT_NEAR(output({{"activations", Strings{"LeakyRelu"}},
                      {"activation_alpha", std::vector<float>{0.5f}}}),
              -1, 1e-6);
}

// Zero times NaN is not zero: a product over all steps would spread it.
TEST(RecurrentOpTest, WhatIsBeyondASamplesLengthIsNotRead) {
  for (const char* type : {"RNN", "LSTM"}) {
    for (const int64_t layout : {0, 1}) {
      const int64_t rows = type[0] == 'R' ? 5 : 20;
      std::vector<std::vector<std::vector<float>>> gradients;
      for (const double padding : {0.0, std::nan("")}) {
        OpRun run(type, 14, {{"layout", layout}});
        DoubleArray x = RandomArray({2, 2, 3}, 1);
        // The second sample has one step: this is its other one.
        std::fill_n(x.values.end() - 3, 3, padding);
        run.Input(x)
            .Input(RandomArray({1, rows, 3}, 2))
            .Input(RandomArray({1, rows, 5}, 3))
            .NoInput()
            .Integers<int32_t>(DType::kInt32, {2}, {2, 1})
            .Output(layout == 1 ? Dims{2, 2, 1, 5} : Dims{2, 1, 2, 5});
        ASSERT_TRUE(run.Forward().ok());
        gradients.push_back(run.Backward({RandomArray({20}, 4)}));
      }
      for (const size_t i : {0, 1, 2}) {
        EXPECT_EQ(gradients[1][i], gradients[0][i])
            << type << " of layout " << layout << ": input " << i;
      }
    }
  }
}

// By the formulas of ONNX, with numbers that leave one of each term: the
// references of this test are held against something else than ourselves.
TEST(RecurrentOpTest, AGruOfOneElementIsItsFormulas) {
  // z = sigmoid(0), r = sigmoid(1), c = tanh(2 + r * 0.5 * 3), h' = (c + h)
  // / 2.
  OpRun run("GRU", 14);
  run.Input(testing::MakeArray({1, 1, 1}, {1}))
      .Input(testing::MakeArray({1, 3, 1}, {0, 1, 2}))
      .Input(testing::MakeArray({1, 3, 1}, {0, 0, 3}))
      .NoInput()
      .NoInput()
      .Input(testing::MakeArray({1, 1, 1}, {0.5}))
      .Output({1, 1, 1, 1});
  ASSERT_TRUE(run.Forward().ok());
  const double r = 1 / (1 + std::exp(-1.0));
  const double c = std::tanh(2 + r * 0.5 * 3);
  ExpectNear(run.output(0), {(c + 0.5) / 2}, 1e-6);
  const auto dx = run.Backward({testing::MakeArray({1, 1, 1, 1}, {1})});
  const double dc = 0.5 * (1 - c * c);  // of what the candidate's tanh is given
  const double dz = (0.5 - c) / 4;
  const double dr = dc * 3 * 0.5 * r * (1 - r);
  ExpectNear(dx[0], {2 * dc + dr}, 1e-6);
  ExpectNear(dx[1], {dz, dr, dc}, 1e-6);
  ExpectNear(dx[2], {dz * 0.5, dr * 0.5, dc * r * 0.5}, 1e-6);
  ExpectNear(dx[5], {0.5 + dc * r * 3}, 1e-6);
}

TEST(RecurrentOpTest, ALengthOutsideTheStepsEndsTheStep) {
  OpRun run("RNN", 14);
  run.Input(RandomArray({4, 2, 2}, 1))
      .Input(RandomArray({1, 5, 2}, 2))
      .Input(RandomArray({1, 5, 5}, 3))
      .NoInput()
      .Integers<int32_t>(DType::kInt32, {2}, {4, 5})
      .Output({4, 1, 2, 5});
  EXPECT_EQ(run.Forward().message(),
            "length 5 of sample 1 is not within the 4 steps");
}

// Without steps the last states are the first ones, and so are their
// gradients; without samples there is nothing at all.
TEST(RecurrentOpTest, ThereMayBeNoStepsAndNoSamples) {
  const std::pair<const char*, int64_t> cells[] = {
      {"RNN", 1}, {"GRU", 3}, {"LSTM", 4}};
  for (const auto& [type, gates] : cells) {
    for (const int64_t samples : {2, 0}) {
      SCOPED_TRACE(absl::StrCat(type, " of ", samples, " samples"));
      const DoubleArray h = RandomArray({1, samples, 5}, 4);
      OpRun run(type, 14);
      run.Input(RandomArray({0, samples, 3}, 1))
          .Input(RandomArray({1, gates * 5, 3}, 2))
          .Input(RandomArray({1, gates * 5, 5}, 3))
          .NoInput()
          .NoInput()
          .Input(h)
          .Output({0, 1, samples, 5})
          .Output({1, samples, 5});
      const absl::Status status = run.Forward();
      ASSERT_TRUE(status.ok()) << status;
      ExpectNear(run.output(1), h.values, 0);
      const auto dx = run.Backward({DoubleArray(), h});
      EXPECT_EQ(dx[1], std::vector<float>(gates * 5 * 3, 0));
      EXPECT_EQ(dx[2], std::vector<float>(gates * 5 * 5, 0));
      ExpectNear(dx[5], h.values, 0);
    }
  }
}

}  // namespace
}  // namespace syncline::worker

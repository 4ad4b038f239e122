// Rows of op_table_test for recurrent networks; recurrent_op_test has their
// other outputs and settings.

#include "kernels/reference/reference_recurrent.h"
#include "tests/testing/op_case.h"

namespace syncline::testing {
namespace {

using reference::Cell;

OpCase RecurrentCase(std::string op_type, Cell cell) {
  reference::RecurrentAttributes a;
  a.cell = cell;
  const auto outputs = [=](const Inputs& in) {
    return reference::Recurrent<double>(a, {in[0], in[1], in[2], in[3], {}, {}})
        .y;
  };
  const int64_t rows = reference::GateCount(cell) * 3;
  OpCase c;
  c.op_type = std::move(op_type);
  c.version = 14;
  c.attributes = {{"hidden_size", int64_t{3}}};
  c.inputs = {{4, 2, 2}, {1, rows, 2}, {1, rows, 3}, {1, 2 * rows}};
  c.forward = outputs;
  c.gradient = [=](const Inputs& given, const DoubleArray& dy) {
    return DifferencesOf(outputs, given, dy);
  };
  return c;
}

// With all inputs, and functions whose derivatives are taken from the sums.
OpCase WholeLstmCase() {
  reference::RecurrentAttributes a;
  a.lengths = {2, 1};
  a.functions = {{"HardSigmoid", 0.2, 0.5}, {"Softsign"}, {"Softplus"}};
  OpCase c;
  c.op_type = "LSTM";
  c.version = 22;
  c.attributes = {{"activations", std::vector<std::string>{
                                      "HardSigmoid", "Softsign", "Softplus"}}};
  c.inputs = {{2, 2, 1}, {1, 4, 1}, {1, 4, 1}, {1, 8},
              {1, 2, 1}, {1, 2, 1}, {1, 3}};
  c.integers = {{4, {2}, a.lengths, DType::kInt32}};
  c.forward = [=](const Inputs& in) {
    return reference::Recurrent<double>(
               a, {in[0], in[1], in[2], in[3], in[4], in[5], in[6]})
        .y;
  };
  c.gradient = [forward = c.forward](const Inputs& in, const DoubleArray& dy) {
    return DifferencesOf(forward, in, dy);
  };
  return c;
}

}  // namespace

std::vector<OpCase> RecurrentCases() {
  return {RecurrentCase("RNN", Cell::kRnn), RecurrentCase("GRU", Cell::kGru),
          RecurrentCase("LSTM", Cell::kLstm), WholeLstmCase()};
}

}  // namespace syncline::testing

// Operators that compute new elements from those of their inputs.

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/inference/node_folding.h"
#include "common/model/inference/tensor_elements.h"

namespace syncline {
namespace {

// As worker/ops/integers.cc. REQUIRES: exponent >= 0.
uint64_t WrappingPower(uint64_t base, int64_t exponent) {
  uint64_t result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 != 0) result *= base;
    base *= base;
  }
  return result;
}

// Through unsigned numbers, which wrap around where signed ones may not.
// REQUIRES: of what divides, b is not 0; of Pow, it is not negative.
int64_t CombineIntegers(const std::string& op, bool truncates, int64_t a,
                        int64_t b) {
  const uint64_t p = static_cast<uint64_t>(a);
  const uint64_t q = static_cast<uint64_t>(b);
  if (op == "Max") return std::max(a, b);
  if (op == "Min") return std::min(a, b);
  if (op == "Add" || op == "Sum") return static_cast<int64_t>(p + q);
  if (op == "Sub") return static_cast<int64_t>(p - q);
  if (op == "Mul") return static_cast<int64_t>(p * q);
  if (op == "Pow") return static_cast<int64_t>(WrappingPower(p, b));
  if (op == "Mod") {
    const int64_t rest = b == -1 ? 0 : a % b;
    const bool other_sign = rest != 0 && (rest < 0) != (b < 0);
    return !truncates && other_sign ? rest + b : rest;
  }
  return b == -1 ? static_cast<int64_t>(-p) : a / b;
}

double CombineFloats(const std::string& op, double a, double b) {
  if (op == "Max") return a > b || a != a ? a : b;
  if (op == "Min") return a < b || a != a ? a : b;
  if (op == "Add" || op == "Sum") return a + b;
  if (op == "Sub") return a - b;
  if (op == "Mul") return a * b;
  if (op == "Mod") return std::fmod(a, b);
  return op == "Div" ? a / b : std::pow(a, b);
}

template <typename T>
bool Holds(const std::string& op, T a, T b) {
  if (op == "Equal") return a == b;
  if (op == "Less") return a < b;
  if (op == "LessOrEqual") return a <= b;
  if (op == "Greater") return a > b;
  if (op == "GreaterOrEqual") return a >= b;
  if (op == "Xor") return (a != 0) != (b != 0);
  return op == "And" ? a != 0 && b != 0 : a != 0 || b != 0;
}

// Of one number; null: none of these.
double (*FunctionOf(const std::string& op))(double) {
  if (op == "Abs") return [](double v) { return std::fabs(v); };
  if (op == "Ceil") return [](double v) { return std::ceil(v); };
  if (op == "Cos") return [](double v) { return std::cos(v); };
  if (op == "Exp") return [](double v) { return std::exp(v); };
  if (op == "Floor") return [](double v) { return std::floor(v); };
  if (op == "Log") return [](double v) { return std::log(v); };
  if (op == "Neg") return [](double v) { return -v; };
  if (op == "Reciprocal") return [](double v) { return 1 / v; };
  if (op == "Round") return [](double v) { return std::nearbyint(v); };
  if (op == "Sign") {
    return [](double v) { return v > 0 ? 1.0 : (v < 0 ? -1.0 : v); };
  }
  if (op == "Sin") return [](double v) { return std::sin(v); };
  if (op == "Sqrt") return [](double v) { return std::sqrt(v); };
  return nullptr;
}

// Of one integer; null: none of these.
int64_t (*IntegerFunctionOf(const std::string& op))(int64_t) {
  if (op == "Abs") {
    return [](int64_t v) {
      return v < 0 ? CombineIntegers("Sub", false, 0, v) : v;
    };
  }
  if (op == "Neg") {
    return [](int64_t v) { return CombineIntegers("Sub", false, 0, v); };
  }
  if (op == "Not") return [](int64_t v) { return int64_t{v == 0}; };
  if (op == "Sign") return [](int64_t v) { return int64_t{(v > 0) - (v < 0)}; };
  return nullptr;
}

// The operator that combines two elements in a reduction; empty: `op` is none
// of these.
std::string CombinerOf(const std::string& op) {
  if (op == "ReduceMax") return "Max";
  if (op == "ReduceMin") return "Min";
  if (op == "ReduceProd") return "Mul";
  return op == "ReduceSum" ? "Add" : "";
}

}  // namespace

absl::Status NodeFolding::CheckSecondOperands() const {
  const bool divides = op() == "Div" || op() == "Mod";
  if (out_.is_float || (!divides && op() != "Pow")) return absl::OkStatus();
  for (size_t k = 1; k < values_.size(); ++k) {
    for (const int64_t b : values_[k].ints) {
      if (divides && b == 0) {
        return absl::InvalidArgumentError("an integer is divided by 0");
      }
      if (!divides && b < 0) {
        return absl::InvalidArgumentError(
            "an integer is raised to a negative power");
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> NodeFolding::Arithmetic() {
  static constexpr absl::string_view kOps[] = {
      "Add", "Div", "Max", "Min", "Mod", "Mul", "Pow", "Sub", "Sum"};
  if (!absl::c_linear_search(kOps, op())) return false;
  const bool truncates = node_.Int("fmod", 0) != 0;
  // An exponent may be of another type than its base.
  out_.is_float = absl::c_any_of(
      values_, [](const TensorElements& operand) { return operand.is_float; });
  if (op() == "Mod" && out_.is_float && !truncates) return false;
  SYNCLINE_RETURN_IF_ERROR(CheckSecondOperands());
  ForEachIndex(dims_, [&](int64_t, const Dims& index) {
    double number = 0;
    int64_t integer = 0;
    for (size_t k = 0; k < values_.size() && fits_; ++k) {
      const int64_t i = BroadcastAt(index, values_[k].dims);
      if (i < 0) {
        fits_ = false;
      } else if (out_.is_float) {
        const double x = values_[k].AsFloat(i);
        number = k == 0 ? x : CombineFloats(op(), number, x);
      } else {
        const int64_t x = values_[k].ints[i];
        integer = k == 0 ? x : CombineIntegers(op(), truncates, integer, x);
      }
    }
    if (out_.is_float) {
      out_.floats.push_back(number);
    } else {
      out_.ints.push_back(integer);
    }
  });
  return true;
}

bool NodeFolding::Compare() {
  static constexpr absl::string_view kOps[] = {
      "And",  "Equal",       "Greater", "GreaterOrEqual",
      "Less", "LessOrEqual", "Or",      "Xor"};
  if (!absl::c_linear_search(kOps, op())) return false;
  const TensorElements& a = values_[0];
  const TensorElements& b = values_[1];
  ForEachIndex(dims_, [&](int64_t, const Dims& index) {
    const int64_t i = BroadcastAt(index, a.dims);
    const int64_t j = BroadcastAt(index, b.dims);
    out_.ints.push_back(a.is_float ? Holds(op(), a.floats[i], b.floats[j])
                                   : Holds(op(), a.ints[i], b.ints[j]));
  });
  return true;
}

bool NodeFolding::Unary() {
  const TensorElements& x = values_[0];
  if (op() == "IsNaN" || op() == "IsInf") {
    const bool positive = node_.Int("detect_positive", 1) != 0;
    const bool negative = node_.Int("detect_negative", 1) != 0;
    for (const double v : x.floats) {
      const bool infinite = std::isinf(v) && (v > 0 ? positive : negative);
      out_.ints.push_back(op() == "IsNaN" ? std::isnan(v) : infinite);
    }
    return true;
  }
  if (x.is_float) {
    const auto function = FunctionOf(op());
    if (function == nullptr) return false;
    std::vector<double> y = x.floats;
    for (double& v : y) v = function(v);
    SetFloats(std::move(y));
  } else {
    const auto function = IntegerFunctionOf(op());
    if (function == nullptr) return false;
    std::vector<int64_t> y = x.ints;
    for (int64_t& v : y) v = function(v);
    SetInts(std::move(y));
  }
  return true;
}

bool NodeFolding::Reduce() {
  const std::string combiner = CombinerOf(op());
  const TensorElements& x = values_[0];
  if (combiner.empty()) return false;
  const bool has_extremum = combiner == "Max" || combiner == "Min";
  if (has_extremum && ElementCount(x.dims) == 0) return false;
  Dims axes = Has(1) ? Ints(1) : node_.Ints("axes");
  if (axes.empty() && node_.Int("noop_with_empty_axes", 0) == 0) {
    for (size_t d = 0; d < x.dims.size(); ++d) axes.push_back(d);
  }
  Dims kept = x.dims;
  for (const int64_t axis : axes) {
    const int64_t rank = static_cast<int64_t>(kept.size());
    fits_ = axis >= -rank && axis < rank;
    if (!fits_) return true;
    kept[axis < 0 ? axis + rank : axis] = 1;
  }
  fits_ = ElementCount(kept) == count();
  if (!fits_) return true;
  out_.is_float = x.is_float;
  const int neutral = combiner == "Mul" ? 1 : 0;
  out_.floats.assign(x.is_float ? count() : 0, neutral);
  out_.ints.assign(x.is_float ? 0 : count(), neutral);
  std::vector<bool> begun(count(), false);
  ForEachIndex(x.dims, [&](int64_t i, const Dims& index) {
    const int64_t at = BroadcastAt(index, kept);
    if (x.is_float) {
      double& y = out_.floats[at];
      y = begun[at] ? CombineFloats(combiner, y, x.floats[i]) : x.floats[i];
    } else {
      int64_t& y = out_.ints[at];
      y = begun[at] ? CombineIntegers(combiner, false, y, x.ints[i])
                    : x.ints[i];
    }
    begun[at] = true;
  });
  return true;
}

bool NodeFolding::Clip() {
  if (op() != "Clip" || values_.size() == 1) return false;
  out_ = values_[0];
  for (size_t k = 1; k < values_.size() && fits_; ++k) {
    if (!Has(k)) continue;
    const TensorElements& bound = values_[k];
    fits_ = ElementCount(bound.dims) == 1 && bound.is_float == out_.is_float;
    if (!fits_) return true;
    for (double& y : out_.floats) {
      const double b = bound.floats[0];
      y = k == 1 ? (y < b ? b : y) : (y > b ? b : y);
    }
    for (int64_t& y : out_.ints) {
      y = k == 1 ? std::max(y, bound.ints[0]) : std::min(y, bound.ints[0]);
    }
  }
  return true;
}

absl::StatusOr<bool> NodeFolding::CumSum() {
  const TensorElements& x = values_[0];
  const int64_t rank = static_cast<int64_t>(x.dims.size());
  if (values_[1].ints.size() != 1) return false;
  const int64_t axis = values_[1].ints[0];
  if (axis < -rank || axis >= rank) {
    return absl::InvalidArgumentError(absl::StrCat(
        "axis ", axis, " is outside the input's ", rank, " dimensions"));
  }
  const size_t along = axis < 0 ? axis + rank : axis;
  const bool exclusive = node_.Int("exclusive", 0) != 0;
  const bool reverse = node_.Int("reverse", 0) != 0;
  const int64_t n = x.dims[along];
  const int64_t stride = RowMajorStrides(x.dims)[along];
  out_ = x;
  ForEachIndex(x.dims, [&](int64_t first, const Dims& index) {
    if (index[along] != 0) return;
    double sum = 0;
    uint64_t whole = 0;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t i = first + (reverse ? n - 1 - k : k) * stride;
      if (x.is_float) {
        out_.floats[i] = exclusive ? sum : sum + x.floats[i];
        sum += x.floats[i];
      } else {
        const uint64_t value = static_cast<uint64_t>(x.ints[i]);
        out_.ints[i] = static_cast<int64_t>(exclusive ? whole : whole + value);
        whole += value;
      }
    }
  });
  return true;
}

}  // namespace syncline

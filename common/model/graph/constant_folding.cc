#include "common/model/graph/constant_folding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

bool IsFloat(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

// A tensor's elements as numbers: in one of the two lists.
struct Numbers {
  bool is_float = false;
  Dims dims;
  std::vector<int64_t> ints;
  std::vector<double> floats;

  double AsFloat(int64_t i) const {
    return is_float ? floats[i] : static_cast<double>(ints[i]);
  }
};

template <typename T, typename To>
void Append(const std::string& bytes, std::vector<To>* out) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    out->push_back(static_cast<To>(value));
  }
}

Numbers Read(const ConstantTensor& tensor) {
  Numbers n;
  n.is_float = IsFloat(tensor.dtype);
  n.dims = tensor.dims;
  switch (tensor.dtype) {
    case DType::kFloat32:
      Append<float>(tensor.bytes, &n.floats);
      break;
    case DType::kFloat64:
      Append<double>(tensor.bytes, &n.floats);
      break;
    case DType::kInt32:
      Append<int32_t>(tensor.bytes, &n.ints);
      break;
    case DType::kInt64:
      Append<int64_t>(tensor.bytes, &n.ints);
      break;
    case DType::kBool:
    case DType::kUint8:
      Append<uint8_t>(tensor.bytes, &n.ints);
      break;
  }
  return n;
}

// As worker/ops/cast.cc: the nearest there is; NaN becomes 0.
int64_t ToInteger(double value) {
  constexpr double kAbove = 9223372036854775808.0;
  if (std::isnan(value)) return 0;
  if (value >= kAbove) return std::numeric_limits<int64_t>::max();
  if (value <= -kAbove) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

template <typename T>
void Put(T value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Element `i` of `n` as one of `dtype`.
void PutAs(DType dtype, const Numbers& n, int64_t i, std::string* bytes) {
  const auto integer = [&] {
    return n.is_float ? ToInteger(n.floats[i]) : n.ints[i];
  };
  switch (dtype) {
    case DType::kFloat32:
      return Put(static_cast<float>(n.AsFloat(i)), bytes);
    case DType::kFloat64:
      return Put(n.AsFloat(i), bytes);
    case DType::kInt32: {
      const int64_t low = std::numeric_limits<int32_t>::min();
      const int64_t high = std::numeric_limits<int32_t>::max();
      const int64_t v = integer();
      return Put(
          static_cast<int32_t>(n.is_float ? std::clamp(v, low, high) : v),
          bytes);
    }
    case DType::kInt64:
      return Put(integer(), bytes);
    case DType::kUint8: {
      const int64_t v = integer();
      return Put(
          static_cast<uint8_t>(n.is_float ? std::clamp<int64_t>(v, 0, 255) : v),
          bytes);
    }
    case DType::kBool:
      return Put(static_cast<uint8_t>(n.AsFloat(i) != 0), bytes);
  }
}

Dims Strides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
  return strides;
}

// Calls visit(i, index) for each element of an array of shape `dims`.
template <typename Visit>
void ForEachIndex(const Dims& dims, Visit visit) {
  Dims index(dims.size(), 0);
  const int64_t count = ElementCount(dims);
  for (int64_t i = 0; i < count; ++i) {
    visit(i, index);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
}

// Where in an array of shape `dims` the element at `index` of what it is
// broadcast to lies; -1: nowhere.
int64_t BroadcastAt(const Dims& index, const Dims& dims) {
  if (index.size() < dims.size()) return -1;
  int64_t at = 0;
  const size_t skipped = index.size() - dims.size();
  for (size_t d = 0; d < dims.size(); ++d) {
    at = at * dims[d] + (dims[d] == 1 ? 0 : index[skipped + d]);
  }
  return at;
}

class Evaluation {
 public:
  Evaluation(const Node& node, absl::Span<const FoldInput> inputs, DType dtype,
             const Dims& dims)
      : node_(node), inputs_(inputs), dtype_(dtype), dims_(dims) {
    for (const FoldInput& input : inputs) {
      values_.push_back(input.value == nullptr ? Numbers()
                                               : Read(*input.value));
    }
  }

  // False: not one of the operators, or one that cannot be told.
  absl::StatusOr<bool> Run();

  ConstantTensor Result() const {
    ConstantTensor tensor;
    tensor.dtype = dtype_;
    tensor.dims = dims_;
    const int64_t count = ElementCount(dims_);
    for (int64_t i = 0; i < count; ++i) PutAs(dtype_, out_, i, &tensor.bytes);
    return tensor;
  }

 private:
  const std::string& op() const { return node_.op_type; }
  int64_t count() const { return ElementCount(dims_); }
  bool Has(size_t i) const { return i < inputs_.size() && inputs_[i].present; }
  std::vector<int64_t> Ints(size_t i) const { return values_[i].ints; }

  void SetInts(std::vector<int64_t> ints) {
    out_.is_float = false;
    out_.ints = std::move(ints);
  }
  void SetFloats(std::vector<double> floats) {
    out_.is_float = true;
    out_.floats = std::move(floats);
  }
  // Element `at` of `input` is the next of the result. A shape that a file
  // declares, where none could be inferred, may lead outside of it.
  void Take(const Numbers& input, int64_t at) {
    const int64_t size = ElementCount(input.dims);
    if (at < 0 || at >= size || input.is_float != out_.is_float) {
      fits_ = false;
    } else if (input.is_float) {
      out_.floats.push_back(input.floats[at]);
    } else {
      out_.ints.push_back(input.ints[at]);
    }
  }
  // out[i] = input[from(index of i)].
  template <typename From>
  void Move(const Numbers& input, From from) {
    out_.is_float = input.is_float;
    ForEachIndex(dims_,
                 [&](int64_t, const Dims& index) { Take(input, from(index)); });
  }

  absl::StatusOr<bool> Compute();
  bool MoveElements();
  absl::StatusOr<bool> Gather();
  void Slice();
  void Concat();
  bool Fill();
  absl::Status Range();
  // OK if integers have a result with the second operands.
  absl::Status CheckSecondOperands() const;
  absl::StatusOr<bool> Arithmetic();
  bool Compare();
  bool Unary();
  bool Reduce();
  bool Clip();
  absl::StatusOr<bool> CumSum();
  void Select();
  void KeepTriangle();

  const Node& node_;
  const absl::Span<const FoldInput> inputs_;
  const DType dtype_;
  const Dims dims_;
  std::vector<Numbers> values_;
  Numbers out_;
  bool fits_ = true;
};

absl::StatusOr<bool> Evaluation::Run() {
  SYNCLINE_ASSIGN_OR_RETURN(const bool done, Compute());
  const size_t made = out_.is_float ? out_.floats.size() : out_.ints.size();
  return done && fits_ && static_cast<int64_t>(made) == count();
}

absl::StatusOr<bool> Evaluation::Compute() {
  if (MoveElements() || Fill() || Compare() || Unary() || Reduce() || Clip()) {
    return true;
  }
  if (op() == "Gather") return Gather();
  if (op() == "CumSum") return CumSum();
  if (op() == "Range") {
    SYNCLINE_RETURN_IF_ERROR(Range());
    return true;
  }
  return Arithmetic();
}

bool Evaluation::MoveElements() {
  const std::string& type = op();
  if (type == "Reshape" || type == "Squeeze" || type == "Unsqueeze" ||
      type == "Flatten" || type == "Identity" || type == "Cast" ||
      type == "CastLike") {
    out_ = values_[0];
  } else if (type == "Expand") {
    Move(values_[0],
         [&](const Dims& at) { return BroadcastAt(at, values_[0].dims); });
  } else if (type == "Tile") {
    Move(values_[0], [&](Dims at) {
      for (size_t d = 0; d < at.size(); ++d) at[d] %= values_[0].dims[d];
      return BroadcastAt(at, values_[0].dims);
    });
  } else if (type == "Transpose") {
    Dims permutation = node_.Ints("perm");
    for (size_t d = dims_.size(); permutation.size() < dims_.size();) {
      permutation.push_back(static_cast<int64_t>(--d));
    }
    const Dims strides = Strides(values_[0].dims);
    Move(values_[0], [&](const Dims& at) {
      int64_t from = 0;
      for (size_t d = 0; d < at.size(); ++d) {
        from += at[d] * strides[permutation[d]];
      }
      return from;
    });
  } else if (type == "Slice") {
    Slice();
  } else if (type == "Concat") {
    Concat();
  } else if (type == "Where") {
    Select();
  } else if (type == "Trilu") {
    KeepTriangle();
  } else {
    return false;
  }
  return true;
}

absl::StatusOr<bool> Evaluation::Gather() {
  const Numbers& data = values_[0];
  const Numbers& indices = values_[1];
  const size_t rank = data.dims.size();
  int64_t axis = node_.Int("axis", 0);
  if (axis < 0) axis += static_cast<int64_t>(rank);
  const int64_t n = data.dims[axis];
  for (const int64_t i : indices.ints) {
    if (i >= -n && i < n) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("index ", i, " is outside a dimension of ", n));
  }
  const size_t index_rank = indices.dims.size();
  Move(data, [&](const Dims& at) {
    const auto begin = at.begin() + axis;
    const Dims index(begin, begin + index_rank);
    const int64_t i = indices.ints[BroadcastAt(index, indices.dims)];
    Dims from(at.begin(), begin);
    from.push_back(i < 0 ? i + n : i);
    from.insert(from.end(), begin + index_rank, at.end());
    // A dimension of 1 has only index 0: no broadcast happens.
    return BroadcastAt(from, data.dims);
  });
  return true;
}

// Its output's shape says how far each axis goes.
void Evaluation::Slice() {
  const Dims& from = values_[0].dims;
  Dims first(from.size(), 0);
  Dims step(from.size(), 1);
  const std::vector<int64_t> starts = Ints(1);
  fits_ = (!Has(3) || Ints(3).size() == starts.size()) &&
          (!Has(4) || Ints(4).size() == starts.size());
  if (!fits_) return;
  for (size_t i = 0; i < starts.size(); ++i) {
    int64_t axis = Has(3) ? Ints(3)[i] : static_cast<int64_t>(i);
    if (axis < 0) axis += static_cast<int64_t>(from.size());
    fits_ = axis >= 0 && axis < static_cast<int64_t>(from.size());
    if (!fits_) return;
    const int64_t n = from[axis];
    step[axis] = Has(4) ? Ints(4)[i] : 1;
    const int64_t start = starts[i] < 0 ? starts[i] + n : starts[i];
    first[axis] = step[axis] > 0 ? std::clamp<int64_t>(start, 0, n)
                                 : std::clamp<int64_t>(start, 0, n - 1);
  }
  Move(values_[0], [&](Dims at) {
    for (size_t d = 0; d < at.size(); ++d) {
      at[d] = first[d] + (at[d] == 0 ? 0 : at[d] * step[d]);
      if (at[d] < 0 || at[d] >= from[d]) return int64_t{-1};
    }
    return BroadcastAt(at, from);
  });
}

void Evaluation::Concat() {
  int64_t axis = node_.Int("axis", 0);
  if (axis < 0) axis += static_cast<int64_t>(dims_.size());
  out_.is_float = values_[0].is_float;
  ForEachIndex(dims_, [&](int64_t, Dims index) {
    size_t k = 0;
    while (index[axis] >= values_[k].dims[axis]) {
      index[axis] -= values_[k++].dims[axis];
    }
    Take(values_[k], BroadcastAt(index, values_[k].dims));
  });
}

void Evaluation::Select() {
  out_.is_float = values_[1].is_float;
  ForEachIndex(dims_, [&](int64_t, const Dims& index) {
    const bool first =
        values_[0].ints[BroadcastAt(index, values_[0].dims)] != 0;
    const Numbers& from = values_[first ? 1 : 2];
    Take(from, BroadcastAt(index, from.dims));
  });
}

void Evaluation::KeepTriangle() {
  const bool upper = node_.Int("upper", 1) != 0;
  fits_ = !Has(1) || Ints(1).size() == 1;
  if (!fits_) return;
  const int64_t most = dims_.back() + dims_[dims_.size() - 2];
  const int64_t k = Has(1) ? std::clamp(Ints(1)[0], -most, most) : 0;
  out_ = values_[0];
  ForEachIndex(dims_, [&](int64_t i, const Dims& index) {
    const int64_t above = index.back() - index[index.size() - 2];
    if (upper ? above >= k : above <= k) return;
    if (out_.is_float) {
      out_.floats[i] = 0;
    } else {
      out_.ints[i] = 0;
    }
  });
}

// Nodes that compute from shapes alone.
bool Evaluation::Fill() {
  if (op() == "Shape") {
    const Dims& dims = inputs_[0].dims;
    const int64_t rank = static_cast<int64_t>(dims.size());
    const auto clamped = [&](int64_t at) {
      return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
    };
    const int64_t begin = clamped(node_.Int("start", 0));
    const int64_t end = clamped(node_.Int("end", rank));
    SetInts(Dims(dims.begin() + begin, dims.begin() + std::max(begin, end)));
  } else if (op() == "Size") {
    SetInts({ElementCount(inputs_[0].dims)});
  } else if (op() == "ConstantOfShape") {
    const auto value = node_.attributes.find("value");
    Numbers one;
    one.floats = {0};
    one.is_float = true;
    if (value != node_.attributes.end()) {
      one = Read(std::get<ConstantTensor>(value->second));
    }
    if (one.floats.size() + one.ints.size() != 1) return false;
    out_.is_float = one.is_float;
    if (one.is_float) {
      out_.floats.assign(count(), one.floats[0]);
    } else {
      out_.ints.assign(count(), one.ints[0]);
    }
  } else {
    return false;
  }
  return true;
}

absl::Status Evaluation::Range() {
  const bool floats = values_[0].is_float;
  std::vector<int64_t> ints;
  std::vector<double> numbers;
  for (const Numbers& number : values_) {
    if (ElementCount(number.dims) != 1) return absl::OkStatus();
  }
  if (values_[2].AsFloat(0) == 0) {
    return absl::InvalidArgumentError("a step of 0 goes nowhere");
  }
  for (int64_t i = 0; i < count(); ++i) {
    if (floats) {
      numbers.push_back(values_[0].floats[0] + i * values_[2].floats[0]);
    } else {
      ints.push_back(values_[0].ints[0] + i * values_[2].ints[0]);
    }
  }
  out_.is_float = floats;
  out_.ints = std::move(ints);
  out_.floats = std::move(numbers);
  return absl::OkStatus();
}

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
int64_t Wrapping(const std::string& op, bool truncates, int64_t a, int64_t b) {
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

double Computed(const std::string& op, double a, double b) {
  if (op == "Max") return a > b || a != a ? a : b;
  if (op == "Min") return a < b || a != a ? a : b;
  if (op == "Add" || op == "Sum") return a + b;
  if (op == "Sub") return a - b;
  if (op == "Mul") return a * b;
  if (op == "Mod") return std::fmod(a, b);
  return op == "Div" ? a / b : std::pow(a, b);
}

absl::Status Evaluation::CheckSecondOperands() const {
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

absl::StatusOr<bool> Evaluation::Arithmetic() {
  static constexpr absl::string_view kOps[] = {
      "Add", "Div", "Max", "Min", "Mod", "Mul", "Pow", "Sub", "Sum"};
  if (!absl::c_linear_search(kOps, op())) return false;
  const bool truncates = node_.Int("fmod", 0) != 0;
  // An exponent may be of another type than its base.
  out_.is_float = absl::c_any_of(
      values_, [](const Numbers& operand) { return operand.is_float; });
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
        number = k == 0 ? x : Computed(op(), number, x);
      } else {
        const int64_t x = values_[k].ints[i];
        integer = k == 0 ? x : Wrapping(op(), truncates, integer, x);
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

bool Evaluation::Compare() {
  static constexpr absl::string_view kOps[] = {
      "And",  "Equal",       "Greater", "GreaterOrEqual",
      "Less", "LessOrEqual", "Or",      "Xor"};
  if (!absl::c_linear_search(kOps, op())) return false;
  const Numbers& a = values_[0];
  const Numbers& b = values_[1];
  ForEachIndex(dims_, [&](int64_t, const Dims& index) {
    const int64_t i = BroadcastAt(index, a.dims);
    const int64_t j = BroadcastAt(index, b.dims);
    out_.ints.push_back(a.is_float ? Holds(op(), a.floats[i], b.floats[j])
                                   : Holds(op(), a.ints[i], b.ints[j]));
  });
  return true;
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
    return [](int64_t v) { return v < 0 ? Wrapping("Sub", false, 0, v) : v; };
  }
  if (op == "Neg") {
    return [](int64_t v) { return Wrapping("Sub", false, 0, v); };
  }
  if (op == "Not") return [](int64_t v) { return int64_t{v == 0}; };
  if (op == "Sign") return [](int64_t v) { return int64_t{(v > 0) - (v < 0)}; };
  return nullptr;
}

bool Evaluation::Unary() {
  const Numbers& x = values_[0];
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

// The operator that combines two elements in a reduction; empty: `op` is none
// of these.
std::string CombinerOf(const std::string& op) {
  if (op == "ReduceMax") return "Max";
  if (op == "ReduceMin") return "Min";
  if (op == "ReduceProd") return "Mul";
  return op == "ReduceSum" ? "Add" : "";
}

bool Evaluation::Reduce() {
  const std::string combiner = CombinerOf(op());
  const Numbers& x = values_[0];
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
      y = begun[at] ? Computed(combiner, y, x.floats[i]) : x.floats[i];
    } else {
      int64_t& y = out_.ints[at];
      y = begun[at] ? Wrapping(combiner, false, y, x.ints[i]) : x.ints[i];
    }
    begun[at] = true;
  });
  return true;
}

bool Evaluation::Clip() {
  if (op() != "Clip" || values_.size() == 1) return false;
  out_ = values_[0];
  for (size_t k = 1; k < values_.size() && fits_; ++k) {
    if (!Has(k)) continue;
    const Numbers& bound = values_[k];
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

absl::StatusOr<bool> Evaluation::CumSum() {
  const Numbers& x = values_[0];
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
  const int64_t stride = Strides(x.dims)[along];
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

}  // namespace

absl::StatusOr<std::optional<ConstantTensor>> FoldNode(
    const Node& node, absl::Span<const FoldInput> inputs, DType dtype,
    const Dims& dims) {
  const std::optional<ConstantTensor> unknown;
  if (ElementCount(dims) > kFoldedElementsMax || inputs.empty()) {
    return unknown;
  }
  const bool from_shape = node.op_type == "Shape" || node.op_type == "Size";
  // Of what CastLike is cast like, the type counts.
  const size_t read = node.op_type == "CastLike" ? 1 : inputs.size();
  for (const FoldInput& input : inputs.first(read)) {
    if (from_shape || !input.present) continue;
    if (input.value == nullptr ||
        ElementCount(input.dims) > kFoldedElementsMax) {
      return unknown;
    }
  }
  Evaluation evaluation(node, inputs, dtype, dims);
  SYNCLINE_ASSIGN_OR_RETURN(const bool done, evaluation.Run());
  if (!done) return unknown;
  return std::optional<ConstantTensor>(evaluation.Result());
}

}  // namespace syncline

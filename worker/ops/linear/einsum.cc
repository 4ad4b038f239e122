#include "common/model/graph/einsum.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cpu/strided_copy.h"
#include "kernels/elementwise/loop.h"
#include "kernels/elementwise/row_sums.h"
#include "kernels/elementwise/strided.h"
#include "kernels/gemm.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

// Strides of a dense array with these labels along a walk over `walked` ones; a
// label that it has twice is its diagonal, one that it has not is repeated.
Dims StridesAlong(const EinsumLabels& e, const std::string& walked,
                  const std::string& labels) {
  const Dims dense = DenseStrides(e.DimsOf(labels));
  Dims strides;
  for (const char c : walked) {
    int64_t stride = 0;
    for (size_t d = 0; d < labels.size(); ++d) {
      if (labels[d] == c) stride += dense[d];
    }
    strides.push_back(stride);
  }
  return strides;
}

bool Has(const std::string& labels, char c) {
  return labels.find(c) != std::string::npos;
}

// A product of two arrays as one of matrices: what is in all three is a batch,
// what is in both operands alone is summed over.
class Contraction {
 public:
  // Null if it is none: a label that one operand has twice, or alone and not
  // in the result. Errors: Internal.
  static absl::StatusOr<std::unique_ptr<Contraction>> Create(
      const EinsumLabels& e, const std::string& a, const std::string& b,
      const std::string& out);

  int64_t scratch_count() const {
    return a_.scratch + b_.scratch + out_.scratch;
  }
  absl::Status Run(const float* a, const float* b, bool accumulate, float* out,
                   float* scratch);

 private:
  // An operand or the result, as it is or in another order in scratch.
  struct Part {
    std::optional<Strided<1>> walk;
    int64_t scratch = 0;  // elements; 0: as it is
  };

  Contraction(Gemm product, Part a, Part b, Part out)
      : product_(std::move(product)),
        a_(std::move(a)),
        b_(std::move(b)),
        out_(std::move(out)) {}

  static Part PartOf(const EinsumLabels& e, const std::string& labels,
                     const std::string& wanted) {
    Part part;
    if (labels == wanted) return part;
    const Dims dims = e.DimsOf(wanted);
    part.walk.emplace(dims, std::array{StridesAlong(e, wanted, labels)});
    part.scratch = ElementCount(dims);
    return part;
  }
  static const float* Ordered(const Part& part, const float* x,
                              float** scratch) {
    if (part.scratch == 0) return x;
    float* const to = *scratch;
    CopyStrided(*part.walk, sizeof(float), x, to);
    *scratch += part.scratch;
    return to;
  }

  Gemm product_;
  Part a_, b_, out_;
};

absl::StatusOr<std::unique_ptr<Contraction>> Contraction::Create(
    const EinsumLabels& e, const std::string& a, const std::string& b,
    const std::string& out) {
  std::string batch, rows, columns, summed;
  for (const auto& [c, size] : e.sizes) {
    if (std::count(a.begin(), a.end(), c) > 1 ||
        std::count(b.begin(), b.end(), c) > 1) {
      return std::unique_ptr<Contraction>();
    }
  }
  // In the result's order, and the operands': so fewer need another one.
  for (const char c : out) {
    (Has(a, c) && Has(b, c) ? batch : Has(a, c) ? rows : columns) += c;
  }
  for (const char c : a) {
    if (Has(out, c)) continue;
    if (!Has(b, c)) return std::unique_ptr<Contraction>();
    summed += c;
  }
  for (const char c : b) {
    if (!Has(out, c) && !Has(a, c)) return std::unique_ptr<Contraction>();
  }
  Gemm::Shape shape;
  shape.m = ElementCount(e.DimsOf(rows));
  shape.n = ElementCount(e.DimsOf(columns));
  shape.k = ElementCount(e.DimsOf(summed));
  shape.batch = ElementCount(e.DimsOf(batch));
  shape.transpose_a = a == batch + summed + rows && !rows.empty();
  shape.transpose_b = b == batch + columns + summed && !columns.empty();
  if (shape.m * shape.n * shape.k * shape.batch == 0) {
    return std::unique_ptr<Contraction>();
  }
  SYNCLINE_ASSIGN_OR_RETURN(Gemm product, Gemm::Create(shape));
  return std::unique_ptr<Contraction>(new Contraction(
      std::move(product),
      PartOf(e, a, shape.transpose_a ? a : batch + rows + summed),
      PartOf(e, b, shape.transpose_b ? b : batch + summed + columns),
      // The walk reads the product's order, in order of the result.
      batch + rows + columns == out
          ? Part()
          : Part{Strided<1>(e.DimsOf(out),
                            {StridesAlong(e, out, batch + rows + columns)}),
                 ElementCount(e.DimsOf(out))}));
}

absl::Status Contraction::Run(const float* a, const float* b, bool accumulate,
                              float* out, float* scratch) {
  const float* const p = Ordered(a_, a, &scratch);
  const float* const q = Ordered(b_, b, &scratch);
  if (out_.scratch == 0) {
    return accumulate ? product_.Accumulate(p, q, out)
                      : product_.Run(p, q, nullptr, out);
  }
  SYNCLINE_RETURN_IF_ERROR(product_.Run(p, q, nullptr, scratch));
  if (!accumulate) {
    CopyStrided(*out_.walk, sizeof(float), scratch, out);
    return absl::OkStatus();
  }
  const int64_t n = out_.walk->inner();
  const int64_t stride = out_.walk->inner_strides()[0];
  out_.walk->ForEachRow([=](int64_t at, const auto& offsets) {
    for (int64_t i = 0; i < n; ++i) {
      out[at + i] += scratch[offsets[0] + i * stride];
    }
  });
  return absl::OkStatus();
}

// Any equation, element by element, over all labels: result and operands.
using Walk = Strided<3>;

Walk WalkOf(const EinsumLabels& e) {
  std::string all;
  for (const auto& [c, size] : e.sizes) all += c;
  const std::string none;
  const std::string& b = e.inputs.size() > 1 ? e.inputs[1] : none;
  return Walk(e.DimsOf(all),
              {StridesAlong(e, all, e.output),
               StridesAlong(e, all, e.inputs[0]), StridesAlong(e, all, b)});
}

// Calls visit(y, a, b) with the offsets of every combination.
template <typename Visit>
void ForEachTerm(const Walk& walk, Visit visit) {
  const auto& by = walk.inner_strides();
  walk.ForEachRow([&](int64_t, const Walk::Offsets& at) {
    for (int64_t i = 0; i < walk.inner(); ++i) {
      visit(at[0] + i * by[0], at[1] + i * by[1], at[2] + i * by[2]);
    }
  });
}

// sums[o] += a term of each combination; computed in T, added up in S.
template <typename T, typename S>
void AddTerms(const Walk& walk, const T* a, const T* b, S* sums) {
  ForEachTerm(walk, [=](int64_t o, int64_t i, int64_t j) {
    sums[o] += b == nullptr ? a[i] : a[i] * b[j];
  });
}

// Whether `count` sums of what the walk visits are so long that they are added
// up in fp64.
bool AreLong(const Walk& walk, int64_t count) {
  return walk.count() / kRowBlock > count;
}

// out = the sums that add(sums) adds to, or += with `accumulate`; in fp64, in
// scratch, if they are long.
template <typename Add>
void AddUp(const Walk& walk, int64_t count, bool accumulate, float* out,
           void* scratch, Add add) {
  if (!AreLong(walk, count)) {
    if (!accumulate) std::fill_n(out, count, 0.0f);
    return add(out);
  }
  auto* const sums = static_cast<double*>(scratch);
  std::fill_n(sums, count, 0.0);
  add(sums);
  Emit(count, accumulate, out,
       [=](int64_t i) { return static_cast<float>(sums[i]); });
}

class EinsumOp : public Op {
 public:
  struct Products {
    std::unique_ptr<Contraction> y, da, db;  // null: term by term
  };

  EinsumOp(const OpSpec& spec, const EinsumLabels& labels, Products products)
      : Op({.backward_inputs = spec.inputs.size() > 1 ? 0b11u : 0u,
            .forward_scratch_bytes = ScratchBytes(spec, labels, products),
            .backward_scratch_bytes = ScratchBytes(spec, labels, products)}),
        walk_(WalkOf(labels)),
        products_(std::move(products)),
        is_double_(spec.input(0).dtype == DType::kFloat64),
        y_count_(spec.output(0).count()),
        counts_{spec.input(0).count(), spec.input(1).count()} {}

  absl::Status Forward(const Tensors& t) override {
    const bool two = t.inputs.size() > 1;
    if (is_double_) {
      auto* const y = static_cast<double*>(t.outputs[0]);
      std::fill_n(y, y_count_, 0.0);
      AddTerms(walk_, static_cast<const double*>(t.inputs[0]),
               two ? static_cast<const double*>(t.inputs[1]) : nullptr, y);
      return absl::OkStatus();
    }
    if (products_.y != nullptr) {
      return products_.y->Run(t.in(0), t.in(1), /*accumulate=*/false, t.out(0),
                              static_cast<float*>(t.scratch));
    }
    AddUp(walk_, y_count_, /*accumulate=*/false, t.out(0), t.scratch,
          [&](auto* sums) {
            AddTerms(walk_, t.in(0), two ? t.in(1) : nullptr, sums);
          });
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const bool two = t.inputs.size() > 1;
    if (two && g.in(1) != nullptr) {
      SYNCLINE_RETURN_IF_ERROR(RunGradient(products_.db, 1, t.in(0), t, g));
    }
    if (g.in(0) != nullptr) {
      SYNCLINE_RETURN_IF_ERROR(
          RunGradient(products_.da, 0, two ? t.in(1) : nullptr, t, g));
    }
    return absl::OkStatus();
  }

 private:
  // The most that a product or long sums want.
  static int64_t ScratchBytes(const OpSpec& spec, const EinsumLabels& labels,
                              const Products& products) {
    const Walk walk = WalkOf(labels);
    int64_t most = 0;
    const auto add = [&](const std::unique_ptr<Contraction>& product,
                         int64_t count) {
      const int64_t floats = product != nullptr     ? product->scratch_count()
                             : AreLong(walk, count) ? 2 * count
                                                    : 0;
      most = std::max(most, floats * static_cast<int64_t>(sizeof(float)));
    };
    add(products.y, spec.output(0).count());
    add(products.da, spec.input(0).count());
    add(products.db, spec.input(1).count());
    return most;
  }

  absl::Status RunGradient(const std::unique_ptr<Contraction>& product,
                           size_t input, const float* other, const Tensors& t,
                           const Gradients& g) {
    float* const dx = g.in(input);
    const float* const dy = g.out();
    if (product != nullptr) {
      const float* const a = input == 0 ? dy : other;
      const float* const b = input == 0 ? other : dy;
      return product->Run(a, b, g.accumulate(input), dx,
                          static_cast<float*>(t.scratch));
    }
    AddUp(walk_, counts_[input], g.accumulate(input), dx, t.scratch,
          [&](auto* sums) {
            ForEachTerm(walk_, [=](int64_t o, int64_t i, int64_t j) {
              const float factor =
                  other == nullptr ? 1.0f : other[input == 0 ? j : i];
              sums[input == 0 ? i : j] += dy[o] * factor;
            });
          });
    return absl::OkStatus();
  }

  const Walk walk_;
  Products products_;
  const bool is_double_;
  const int64_t y_count_;
  const int64_t counts_[2];
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeEinsum(const OpSpec& spec) {
  if (spec.inputs.size() > 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.inputs.size(),
                     " operands; products of more than two are not "
                     "computed at once"));
  }
  std::vector<Dims> dims;
  const DType dtype = spec.input(0).dtype;
  for (const TensorType& input : spec.inputs) {
    dims.push_back(input.dims);
    if (input.dtype == dtype &&
        (dtype == DType::kFloat32 || dtype == DType::kFloat64)) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("an operand is ", DTypeName(input.dtype),
                     "; only float32 is computed"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      const EinsumLabels e,
      ParseEinsum(spec.node->String("equation", ""), dims));
  EinsumOp::Products products;
  if (dims.size() == 2 && dtype == DType::kFloat32) {
    const std::string& a = e.inputs[0];
    const std::string& b = e.inputs[1];
    SYNCLINE_ASSIGN_OR_RETURN(products.y,
                              Contraction::Create(e, a, b, e.output));
    if (products.y != nullptr) {
      SYNCLINE_ASSIGN_OR_RETURN(products.da,
                                Contraction::Create(e, e.output, b, a));
      SYNCLINE_ASSIGN_OR_RETURN(products.db,
                                Contraction::Create(e, a, e.output, b));
    }
  }
  return std::make_unique<EinsumOp>(spec, e, std::move(products));
}

}  // namespace syncline::worker

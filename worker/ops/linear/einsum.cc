#include "common/model/graph/einsum.h"

#include <algorithm>
#include <optional>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/einsum_kernels.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/matrix_product_kernels.h"
#include "kernels/device/strided_copy_kernels.h"
#include "kernels/elementwise/broadcast.h"
#include "kernels/elementwise/strided.h"
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
  // in the result. Errors: Internal. REQUIRES: the device has the kernels.
  static absl::StatusOr<std::unique_ptr<Contraction>> Create(
      Device& device, const EinsumLabels& e, const std::string& a,
      const std::string& b, const std::string& out);

  int64_t scratch_count() const {
    return a_.scratch + b_.scratch + out_.scratch;
  }
  absl::Status Run(Stream& stream, const float* a, const float* b,
                   bool accumulate, float* out, float* scratch);

 private:
  // An operand or the result, as it is or in another order in scratch.
  struct Part {
    std::optional<Strided<1>> walk;
    int64_t scratch = 0;  // elements; 0: as it is
  };

  Contraction(const StridedCopyKernels& copies,
              std::unique_ptr<MatrixProduct> product)
      : copies_(copies), product_(std::move(product)) {}

  static Part PartOf(const EinsumLabels& e, const std::string& labels,
                     const std::string& wanted) {
    Part part;
    if (labels == wanted) return part;
    const Dims dims = e.DimsOf(wanted);
    part.walk.emplace(dims, std::array{StridesAlong(e, wanted, labels)});
    part.scratch = ElementCount(dims);
    return part;
  }
  const float* Ordered(Stream& stream, const Part& part, const float* x,
                       float** scratch) const {
    if (part.scratch == 0) return x;
    float* const to = *scratch;
    copies_.copy(stream, *part.walk, sizeof(float), x, to);
    *scratch += part.scratch;
    return to;
  }

  const StridedCopyKernels copies_;
  const std::unique_ptr<MatrixProduct> product_;
  Part a_, b_, out_;
  // With a result in another order: where each element of the product goes.
  std::optional<Strided<1>> places_;
};

absl::StatusOr<std::unique_ptr<Contraction>> Contraction::Create(
    Device& device, const EinsumLabels& e, const std::string& a,
    const std::string& b, const std::string& out) {
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
  MatrixProductShape shape;
  shape.m = ElementCount(e.DimsOf(rows));
  shape.n = ElementCount(e.DimsOf(columns));
  shape.k = ElementCount(e.DimsOf(summed));
  shape.batch = ElementCount(e.DimsOf(batch));
  shape.transpose_a = a == batch + summed + rows && !rows.empty();
  shape.transpose_b = b == batch + columns + summed && !columns.empty();
  if (shape.m * shape.n * shape.k * shape.batch == 0) {
    return std::unique_ptr<Contraction>();
  }
  const KernelTable& kernels = device.kernels();
  SYNCLINE_ASSIGN_OR_RETURN(std::unique_ptr<MatrixProduct> product,
                            kernels.matrix_product->make(device, shape));
  auto contraction = absl::WrapUnique(
      new Contraction(*kernels.strided_copy, std::move(product)));
  contraction->a_ = PartOf(e, a, shape.transpose_a ? a : batch + rows + summed);
  contraction->b_ =
      PartOf(e, b, shape.transpose_b ? b : batch + summed + columns);
  const std::string computed = batch + rows + columns;
  contraction->out_ = PartOf(e, computed, out);
  if (computed != out) {
    contraction->places_.emplace(e.DimsOf(computed),
                                 std::array{StridesAlong(e, computed, out)});
  }
  return contraction;
}

absl::Status Contraction::Run(Stream& stream, const float* a, const float* b,
                              bool accumulate, float* out, float* scratch) {
  const float* const p = Ordered(stream, a_, a, &scratch);
  const float* const q = Ordered(stream, b_, b, &scratch);
  if (out_.scratch == 0) return product_->Into(stream, p, q, accumulate, out);
  SYNCLINE_RETURN_IF_ERROR(
      product_->Run(stream, p, q, /*bias=*/nullptr, scratch));
  if (accumulate) {
    copies_.add(stream, *places_, scratch, out);
  } else {
    copies_.copy(stream, *out_.walk, sizeof(float), scratch, out);
  }
  return absl::OkStatus();
}

// Any equation, element by element, over all labels: result and operands.
EinsumWalk WalkOf(const EinsumLabels& e) {
  std::string all;
  for (const auto& [c, size] : e.sizes) all += c;
  const std::string none;
  const std::string& b = e.inputs.size() > 1 ? e.inputs[1] : none;
  return EinsumWalk(e.DimsOf(all), {StridesAlong(e, all, e.output),
                                    StridesAlong(e, all, e.inputs[0]),
                                    StridesAlong(e, all, b)});
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
        kernels_(*spec.kernels().einsum),
        products_(std::move(products)),
        dtype_(spec.input(0).dtype),
        y_count_(spec.output(0).count()),
        counts_{spec.input(0).count(), spec.input(1).count()} {}

  absl::Status Forward(const Tensors& t) override {
    if (products_.y != nullptr) {
      return products_.y->Run(*t.stream, t.in(0), t.in(1),
                              /*accumulate=*/false, t.out(0),
                              static_cast<float*>(t.scratch));
    }
    kernels_.forward(*t.stream, walk_, dtype_, y_count_, t.inputs[0],
                     t.inputs.size() > 1 ? t.inputs[1] : nullptr, t.outputs[0],
                     t.scratch);
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
    const EinsumWalk walk = WalkOf(labels);
    int64_t most = 0;
    const auto add = [&](const std::unique_ptr<Contraction>& product,
                         int64_t count) {
      const int64_t bytes =
          product != nullptr
              ? product->scratch_count() * static_cast<int64_t>(sizeof(float))
              : spec.kernels().einsum->scratch_bytes(walk, count);
      most = std::max(most, bytes);
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
      return product->Run(*t.stream, a, b, g.accumulate(input), dx,
                          static_cast<float*>(t.scratch));
    }
    kernels_.backward(*t.stream, walk_, static_cast<int>(input), counts_[input],
                      other, dy, g.accumulate(input), dx, t.scratch);
    return absl::OkStatus();
  }

  const EinsumWalk walk_;
  const EinsumKernels kernels_;
  const Products products_;
  const DType dtype_;
  const int64_t y_count_;
  const int64_t counts_[2];
};

absl::Status RequireKernelsOf(const OpSpec& spec) {
  const KernelTable& kernels = spec.kernels();
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels.einsum));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels.einsum->forward,
                                               kernels.einsum->scratch_bytes));
  if (spec.WantsAnyGradient()) {
    SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels.einsum->backward));
  }
  if (spec.inputs.size() < 2) return absl::OkStatus();
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels(kernels.matrix_product, kernels.strided_copy));
  return spec.RequireKernels(kernels.matrix_product->make,
                             kernels.strided_copy->copy,
                             kernels.strided_copy->add);
}

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
  SYNCLINE_RETURN_IF_ERROR(RequireKernelsOf(spec));
  EinsumOp::Products products;
  if (dims.size() == 2 && dtype == DType::kFloat32) {
    const std::string& a = e.inputs[0];
    const std::string& b = e.inputs[1];
    SYNCLINE_ASSIGN_OR_RETURN(
        products.y, Contraction::Create(*spec.device, e, a, b, e.output));
    if (products.y != nullptr) {
      SYNCLINE_ASSIGN_OR_RETURN(
          products.da, Contraction::Create(*spec.device, e, e.output, b, a));
      SYNCLINE_ASSIGN_OR_RETURN(
          products.db, Contraction::Create(*spec.device, e, a, e.output, b));
    }
  }
  return std::make_unique<EinsumOp>(spec, e, std::move(products));
}

}  // namespace syncline::worker

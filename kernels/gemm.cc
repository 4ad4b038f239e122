#include "kernels/gemm.h"

#include <algorithm>
#include <array>
#include <limits>
#include <oneapi/dnnl/dnnl.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace syncline {
namespace {

using dnnl::memory;

// `rows` x `columns` as the product sees them; stored the other way round if
// transposed, which oneDNN learns from the strides. Stored rows are `row`
// elements apart, or dense if that is 0.
memory::desc Matrix(int64_t batch, int64_t rows, int64_t columns,
                    bool transposed, int64_t row) {
  if (row == 0) row = transposed ? rows : columns;
  const int64_t row_stride = transposed ? 1 : row;
  const int64_t column_stride = transposed ? row : 1;
  if (batch == 1) {
    return memory::desc({rows, columns}, memory::data_type::f32,
                        {row_stride, column_stride});
  }
  return memory::desc({batch, rows, columns}, memory::data_type::f32,
                      {rows * columns, row_stride, column_stride});
}

memory::desc Bias(int64_t batch, int64_t n) {
  if (batch == 1) {
    return memory::desc({1, n}, memory::data_type::f32, {n, 1});
  }
  return memory::desc({1, 1, n}, memory::data_type::f32, {n, n, 1});
}

// oneDNN 2.6 counts blocks of a dimension with int, and divides by them.
constexpr int64_t kSizeMax = std::numeric_limits<int32_t>::max();

absl::Status FromDnnl(const Gemm::Shape& s, absl::string_view what) {
  return absl::InternalError(absl::StrCat("matrix product [", s.m, ",", s.k,
                                          "]x[", s.k, ",", s.n, "]: oneDNN ",
                                          what));
}

}  // namespace

struct Gemm::Compiled {
  // Nothing is compiled for an empty product: oneDNN divides by its sizes.
  explicit Compiled(const Shape& s)
      : shape(s), engine(dnnl::engine::kind::cpu, 0), stream(engine) {
    if (empty()) return;
    a = memory(Matrix(s.batch, s.m, s.k, s.transpose_a, s.a_row), engine,
               nullptr);
    b = memory(Matrix(s.batch, s.k, s.n, s.transpose_b, s.b_row), engine,
               nullptr);
    c = memory(Matrix(s.batch, s.m, s.n, false, s.c_row), engine, nullptr);
    if (s.has_bias) bias = memory(Bias(s.batch, s.n), engine, nullptr);
    run = Compile(s.has_bias, /*accumulate=*/false);
    accumulate = Compile(/*with_bias=*/false, /*accumulate=*/true);
  }

  // There is nothing to multiply: C, if it has elements, is empty sums.
  bool empty() const {
    return shape.batch == 0 || shape.m == 0 || shape.n == 0 || shape.k == 0;
  }

  dnnl::matmul Compile(bool with_bias, bool accumulate) {
    dnnl::primitive_attr attributes;
    if (shape.alpha != 1) attributes.set_output_scales(0, {shape.alpha});
    if (accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const auto desc =
        with_bias
            ? dnnl::matmul::desc(a.get_desc(), b.get_desc(), bias.get_desc(),
                                 c.get_desc())
            : dnnl::matmul::desc(a.get_desc(), b.get_desc(), c.get_desc());
    return dnnl::matmul(dnnl::matmul::primitive_desc(desc, attributes, engine));
  }

  // Through the C interface: the C++ one builds a hash map on every call.
  absl::Status Execute(const dnnl::matmul& primitive, const float* a_data,
                       const float* b_data, const float* bias_data,
                       float* c_data) {
    a.set_data_handle(const_cast<float*>(a_data));
    b.set_data_handle(const_cast<float*>(b_data));
    c.set_data_handle(c_data);
    std::array<dnnl_exec_arg_t, 4> args = {{{DNNL_ARG_SRC, a.get()},
                                            {DNNL_ARG_WEIGHTS, b.get()},
                                            {DNNL_ARG_DST, c.get()}}};
    int count = 3;
    if (bias_data != nullptr) {
      bias.set_data_handle(const_cast<float*>(bias_data));
      args[count++] = {DNNL_ARG_BIAS, bias.get()};
    }
    const dnnl_status_t status = dnnl_primitive_execute(
        primitive.get(), stream.get(), count, args.data());
    if (status != dnnl_success) {
      return FromDnnl(shape, absl::StrCat("failed with status ", status));
    }
    return absl::OkStatus();
  }

  const Shape shape;
  dnnl::engine engine;
  dnnl::stream stream;
  memory a, b, c, bias;
  dnnl::matmul run, accumulate;
};

absl::StatusOr<Gemm> Gemm::Create(const Shape& shape) {
  SYNCLINE_CHECK(!shape.has_bias || shape.alpha == 1);
  SYNCLINE_CHECK(shape.batch == 1 ||
                 (shape.a_row == 0 && shape.b_row == 0 && shape.c_row == 0));
  for (const DType type : {shape.a_type, shape.b_type, shape.c_type}) {
    if (type == DType::kFloat32) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "a product of ", DTypeName(type), " is not one of this machine's"));
  }
  for (const int64_t size : {shape.batch, shape.m, shape.k, shape.n}) {
    if (size > kSizeMax) return FromDnnl(shape, "counts with 32 bits");
  }
  try {
    return Gemm(std::make_unique<Compiled>(shape));
  } catch (const dnnl::error& error) {
    return FromDnnl(shape, absl::StrCat("refused: ", error.what()));
  }
}

Gemm::Gemm(std::unique_ptr<Compiled> compiled)
    : compiled_(std::move(compiled)) {}
Gemm::Gemm(Gemm&&) noexcept = default;
Gemm& Gemm::operator=(Gemm&&) noexcept = default;
Gemm::~Gemm() = default;

absl::Status Gemm::Run(const float* a, const float* b, const float* bias,
                       float* c) {
  const Shape& s = compiled_->shape;
  SYNCLINE_CHECK(s.has_bias == (bias != nullptr));
  if (compiled_->empty()) {
    const int64_t stride = s.c_row == 0 ? s.n : s.c_row;
    for (int64_t row = 0; row < s.batch * s.m; ++row) {
      for (int64_t i = 0; i < s.n; ++i)
        c[row * stride + i] = bias ? bias[i] : 0;
    }
    return absl::OkStatus();
  }
  return compiled_->Execute(compiled_->run, a, b, bias, c);
}

absl::Status Gemm::Accumulate(const float* a, const float* b, float* c) {
  if (compiled_->empty()) return absl::OkStatus();
  return compiled_->Execute(compiled_->accumulate, a, b, nullptr, c);
}

}  // namespace syncline

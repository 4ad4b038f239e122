#include "worker/exchange/gradient_norm.h"

#include <cmath>
#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "kernels/optimizer/optimizer.h"

namespace syncline::worker {
namespace {

// Adds up pieces, and names the first element that is not finite.
class SquareSum {
 public:
  explicit SquareSum(ElementType wire_type) : wire_type_(wire_type) {}

  // `name` gets the index of an element.
  void Add(const float* gradient, size_t count, bool is_clipped,
           absl::FunctionRef<std::string(size_t)> name) {
    const double squares = AddSquares(0, gradient, 1.0f, count);
    if (std::isfinite(squares) && (wire_type_ == ElementType::kFloat32 ||
                                   AllFiniteAs(wire_type_, gradient, count))) {
      if (is_clipped) sum_ += squares;
    } else if (bad_.empty()) {
      size_t at = 0;
      while (AllFiniteAs(wire_type_, gradient + at, 1)) ++at;
      bad_ = name(at);
      if (std::isfinite(gradient[at])) {
        absl::StrAppend(&bad_, " is ", gradient[at],
                        ", more than wire_type can say");
      }
    }
  }

  double sum() const { return sum_; }
  const std::string& bad() const { return bad_; }

 private:
  const ElementType wire_type_;
  double sum_ = 0;
  std::string bad_;
};

}  // namespace

absl::StatusOr<double> SquaredNorm(const StepGradient& step,
                                   OnNonFinite policy) {
  SquareSum total(step.wire_type);
  for (const Block& block : step.map.blocks()) {
    const bool is_mean =
        !step.running_means.empty() && step.running_means[block.tensor];
    total.Add(step.gradients[block.tensor].data() + block.offset,
              static_cast<size_t>(block.count), !is_mean, [&](size_t at) {
                return absl::StrCat("element ", block.offset + at, " of ",
                                    step.names.empty()
                                        ? absl::StrCat("tensor ", block.tensor)
                                        : step.names[block.tensor]);
              });
  }
  for (const RowBatch* table : step.rows) {
    const size_t dim = static_cast<size_t>(table->dim());
    for (size_t row = 0; row < table->keys().size(); ++row) {
      total.Add(table->gradient(row), dim, true, [&](size_t) {
        return absl::StrCat("key ", table->keys()[row], " of table ",
                            table->name());
      });
    }
  }
  if (total.bad().empty() || policy != OnNonFinite::kFailJob) {
    return total.sum();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the gradient of clock ", step.clock, " is not finite: ", total.bad()));
}

bool RowsAreFinite(absl::Span<RowBatch* const> rows, ElementType wire_type) {
  for (const RowBatch* table : rows) {
    if (table->keys().empty()) continue;
    if (!AllFiniteAs(
            wire_type, table->gradient(0),
            table->keys().size() * static_cast<size_t>(table->dim()))) {
      return false;
    }
  }
  return true;
}

}  // namespace syncline::worker

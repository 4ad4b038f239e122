#include <utility>

#include "common/base/status_macros.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/recurrent/recurrent_layer.h"
#include "kernels/device/recurrent_kernels.h"

namespace syncline {
namespace {

std::unique_ptr<CpuRecurrentLayer> LayerOf(const RecurrentShape& shape) {
  switch (shape.cell) {
    case RecurrentCell::kRnn:
      return MakeCpuRnnLayer(shape);
    case RecurrentCell::kGru:
      return MakeCpuGruLayer(shape);
    default:
      return MakeCpuLstmLayer(shape);
  }
}

absl::StatusOr<std::unique_ptr<RecurrentLayer>> Make(
    Device&, const RecurrentShape& shape) {
  auto layer = LayerOf(shape);
  SYNCLINE_RETURN_IF_ERROR(layer->Compile());
  return layer;
}

}  // namespace

const RecurrentKernels& CpuRecurrentKernels() {
  static constexpr RecurrentKernels kKernels = {.make = Make};
  return kKernels;
}

}  // namespace syncline

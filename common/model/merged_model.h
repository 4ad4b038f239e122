#ifndef SYNCLINE_COMMON_MODEL_MERGED_MODEL_H_
#define SYNCLINE_COMMON_MODEL_MERGED_MODEL_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/model/model.h"

namespace syncline {

// The call that has PyTorch write a model as it is.
inline constexpr absl::string_view kExportCall =
    "torch.onnx.export(..., dynamo=True, optimize=False, external_data=False)";

// Parameters that a PyTorch model had and its file does not have.
struct MissingParameters {
  std::string what;  // how many, and their names
  // The exporter's optimiser has been at work: it merges equal ones and folds
  // others away. Else the model itself ties them to others or does not use
  // them.
  bool is_optimised = false;
};

// Nothing for a file that does not list its model's parameters, or has all.
std::optional<MissingParameters> FindMissingParameters(const Model& model);

// The parameters that an optimised file has, that are one number throughout, as
// zeros and ones are, and that several nodes read: the exporter merges them
// with equal constants of other nodes. How many, and their names; nothing:
// there is none.
std::optional<std::string> FindMergedConstants(const Model& model);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_MERGED_MODEL_H_

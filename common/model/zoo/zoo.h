#ifndef SYNCLINE_COMMON_MODEL_ZOO_ZOO_H_
#define SYNCLINE_COMMON_MODEL_ZOO_ZOO_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace syncline {

// Models by name, as ONNX files with initial values. They are written with
// nothing that only this program knows.
struct ZooEntry {
  absl::string_view name;
  absl::string_view about;
};
std::vector<ZooEntry> ZooModels();

// The file, binary. Every model takes `seed`, and `classes` or what its kind
// has in its place. Errors: NotFound: no such model (all are named);
// InvalidArgument: settings, all problems at once, a line each.
absl::StatusOr<std::string> WriteZooModel(
    absl::string_view name, const std::map<std::string, std::string>& settings);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_ZOO_ZOO_H_

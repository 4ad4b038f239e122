#include "scheduler/ctl/model_command.h"

#include <algorithm>
#include <map>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/model/zoo/zoo.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "scheduler/ctl/text/printable_stream.h"

namespace syncline::ctl {
namespace {

absl::StatusOr<std::map<std::string, std::string>> Parsed(
    const std::vector<std::string>& settings) {
  std::map<std::string, std::string> parsed;
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--set: '", setting, "' is not key=value"));
    }
    const std::string key = setting.substr(0, equals);
    if (!parsed.emplace(key, setting.substr(equals + 1)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--set: ", key, " is given twice"));
    }
  }
  return parsed;
}

absl::StatusOr<std::string> Write(const ModelOptions& options,
                                  const Console& console) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto settings, Parsed(options.settings));
  SYNCLINE_ASSIGN_OR_RETURN(std::string model,
                            WriteZooModel(options.name, settings));
  if (console.live) {
    return absl::InvalidArgumentError(
        "a model is binary: send it to a file, as in \"> model.onnx\"");
  }
  return model;
}

}  // namespace

int RunModel(const ModelOptions& options, const Console& console) {
  if (options.name.empty()) {
    for (const ZooEntry& entry : ZooModels()) {
      console.out << absl::StreamFormat("%-14s %s\n", std::string(entry.name),
                                        std::string(entry.about));
    }
    return kExitOk;
  }
  const absl::StatusOr<std::string> model = Write(options, console);
  if (!model.ok()) return console.PrintError(model.status());
  WriteRaw(*model, &console.out);
  console.out.flush();
  if (console.out.good()) return kExitOk;
  return console.PrintError(absl::UnavailableError("cannot write the model"));
}

}  // namespace syncline::ctl

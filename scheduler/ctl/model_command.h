#ifndef SYNCLINE_SCHEDULER_CTL_MODEL_COMMAND_H_
#define SYNCLINE_SCHEDULER_CTL_MODEL_COMMAND_H_

#include <string>
#include <vector>

#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

struct ModelOptions {
  std::string name;                   // empty: list what there is
  std::vector<std::string> settings;  // "key=value"
};

// `synctl model`: writes a model of the zoo, ONNX binary, to `out` of the
// console and nothing else; not to a terminal.
int RunModel(const ModelOptions& options, const Console& console);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_MODEL_COMMAND_H_

#ifndef SYNCLINE_SCHEDULER_CTL_GENERATE_COMMAND_H_
#define SYNCLINE_SCHEDULER_CTL_GENERATE_COMMAND_H_

#include <cstdint>
#include <string>

#include "scheduler/ctl/criteo_generator.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

struct GenerateCriteoOptions {
  CriteoGenerator::Options generator;
  uint64_t rows = 0;
  uint64_t first_row = 0;
  std::string path;
};

// `synctl generate criteo`: writes lines [first_row, first_row + rows) of the
// generator to `path`, which is replaced when all are there, and prints how
// many have label 1 and the AUC of the teacher's own logits on them.
int RunGenerateCriteo(const GenerateCriteoOptions& options,
                      const Console& console);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_GENERATE_COMMAND_H_

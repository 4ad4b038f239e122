#ifndef SYNCLINE_SCHEDULER_CTL_TEXT_COMPLETION_TEXT_H_
#define SYNCLINE_SCHEDULER_CTL_TEXT_COMPLETION_TEXT_H_

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace syncline::ctl {

// An option, as "--mode", and all values that it may have.
struct CompletionOption {
  std::string name;
  std::vector<std::string> values;
};

// A command and what may stand behind it: options, and commands of its own.
struct CompletionCommand {
  std::string name;
  std::vector<std::string> words;
  // Those among the words whose values are known.
  std::vector<CompletionOption> options = {};
};

// A script for bash that completes `program`'s commands, their words and the
// values of their options, and files where none of these fits. Names, words and
// values have letters, digits and dashes.
std::string BashCompletion(const std::string& program,
                           absl::Span<const CompletionCommand> commands);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TEXT_COMPLETION_TEXT_H_

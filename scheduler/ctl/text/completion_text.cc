#include "scheduler/ctl/text/completion_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"

namespace syncline::ctl {
namespace {

// $0: program, $1: its commands, $2: a case for each command, $3: the commands
// as a pattern, $4: a case for each option with known values. The command is
// the first word that is one.
constexpr char kScript[] = R"(# Completion of $0 for bash: source it.
_$0() {
  local word="$${COMP_WORDS[COMP_CWORD]}" command="" i words
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$${COMP_WORDS[i]}" in
      $3) command="$${COMP_WORDS[i]}"; break ;;
    esac
  done
  case "$$command" in
    "") words="$1" ;;
$2  esac
  case "$$command $${COMP_WORDS[COMP_CWORD - 1]}" in
$4  esac
  COMPREPLY=($$(compgen -W "$$words" -- "$$word"))
}
complete -o bashdefault -o default -F _$0 $0
)";

}  // namespace

std::string BashCompletion(const std::string& program,
                           absl::Span<const CompletionCommand> commands) {
  std::vector<std::string> names;
  std::string cases;
  std::string option_cases;
  for (const CompletionCommand& command : commands) {
    names.push_back(command.name);
    absl::StrAppend(&cases, "    ", command.name, ") words=\"",
                    absl::StrJoin(command.words, " "), "\" ;;\n");
    for (const CompletionOption& option : command.options) {
      absl::StrAppend(&option_cases, "    \"", command.name, " ", option.name,
                      "\") words=\"", absl::StrJoin(option.values, " "),
                      "\" ;;\n");
    }
  }
  return absl::Substitute(kScript, program, absl::StrJoin(names, " "), cases,
                          absl::StrJoin(names, " | "), option_cases);
}

}  // namespace syncline::ctl

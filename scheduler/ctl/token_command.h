#ifndef SYNCLINE_SCHEDULER_CTL_TOKEN_COMMAND_H_
#define SYNCLINE_SCHEDULER_CTL_TOKEN_COMMAND_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

struct TokenOptions {
  std::string file;  // the scheduler's --token-file
  std::string name;
  std::string role = "viewer";
  std::string tenant = {};  // empty: none
  int days = 90;            // 0: for ever
};

// Each returns the exit code. They edit the file where the scheduler runs: who
// may write it decides who is let in.
//
// Adds a token and writes it to standard output, the only time that it is seen.
int RunTokenCreate(const TokenOptions& options, const Console& console);
int RunTokenList(const TokenOptions& options, const Console& console);
int RunTokenRevoke(const TokenOptions& options, const Console& console);

// The token for calls of this process: `token` if it is not empty, else the
// first line of `file`; empty if both are. Errors: the file cannot be read;
// InvalidArgument: it is no token.
absl::StatusOr<std::string> FindToken(const std::string& token,
                                      const std::string& file);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TOKEN_COMMAND_H_

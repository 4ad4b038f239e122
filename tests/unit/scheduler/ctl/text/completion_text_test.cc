// Goal: bash takes the script, and completes commands, their options and the
// values of these.
// Method: the real bash, where a function that completes is called.

#include "scheduler/ctl/text/completion_text.h"

#include <cstdio>
#include <string>

#include "gtest/gtest.h"

namespace syncline::ctl {
namespace {

// The words that bash offers for the last of `words`, separated by spaces.
std::string Offered(const std::string& words) {
  const std::string script = BashCompletion(
      "synctl", {{"submit", {"--watch", "--set"}},
                 {"list", {"--state", "--sort"}, {{"--sort", {"id", "age"}}}}});
  const std::string command = "bash -c '" + script + "\nCOMP_WORDS=(" + words +
                              "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); "
                              "_synctl; echo ${COMPREPLY[@]}' 2>&1";
  FILE* const shell = popen(command.c_str(), "r");
  if (shell == nullptr) return "no shell";
  std::string said;
  char buffer[256];
  while (std::fgets(buffer, sizeof(buffer), shell) != nullptr) said += buffer;
  pclose(shell);
  return said;
}

TEST(BashCompletionTest, OffersCommandsThenTheirOptions) {
  EXPECT_EQ(Offered("synctl s"), "submit\n");
  EXPECT_EQ(Offered("synctl \"\""), "submit list\n");
  EXPECT_EQ(Offered("synctl submit --w"), "--watch\n");
  EXPECT_EQ(Offered("synctl submit --set a=b --"), "--watch --set\n");
  EXPECT_EQ(Offered("synctl --scheduler h:1 list --st"), "--state\n");
  EXPECT_EQ(Offered("synctl list nothing"), "\n");
  EXPECT_EQ(Offered("synctl list --sort \"\""), "id age\n");
  EXPECT_EQ(Offered("synctl list --sort a"), "age\n");
  EXPECT_EQ(Offered("synctl list --sort id --st"), "--state\n");
  EXPECT_EQ(Offered("synctl submit --sort a"), "\n");
}

}  // namespace
}  // namespace syncline::ctl

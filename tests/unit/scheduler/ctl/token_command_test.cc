// Goal: commands that change a token file at the same time lose nothing of each
// other. Method: threads with a file of their own test; a lock is that of an
// open file, so that threads exclude each other as processes do.

#include "scheduler/ctl/token_command.h"

#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/security/user_tokens.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "tests/testing/temp_dir.h"

namespace syncline::ctl {
namespace {

class TokenCommandTest : public testing::Test {
 protected:
  TokenOptions Of(const std::string& name) const {
    return {.file = file_, .name = name};
  }
  std::vector<std::string> Names() const {
    const auto entries =
        ParseTokens(ReadFile(file_, kTokenFileBytesMax).value_or(""));
    EXPECT_TRUE(entries.ok()) << entries.status();
    std::vector<std::string> names;
    if (!entries.ok()) return names;
    for (const TokenEntry& entry : *entries) names.push_back(entry.name);
    return names;
  }
  static int Run(int (*command)(const TokenOptions&, const Console&),
                 const TokenOptions& options) {
    std::ostringstream out, err;
    return command(options, {.out = out, .err = err});
  }

  const TempDir dir_;
  const std::string file_ = dir_.File("tokens");
};

TEST_F(TokenCommandTest, ARevokedTokenStaysAwayWhileOthersAreMade) {
  constexpr int kEach = 8;
  std::vector<std::string> kept;
  for (int i = 0; i < kEach; ++i) {
    ASSERT_EQ(Run(RunTokenCreate, Of(absl::StrCat("old", i))), kExitOk);
    kept.push_back(absl::StrCat("new", i));
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kEach; ++i) {
    threads.emplace_back([this, i] {
      EXPECT_EQ(Run(RunTokenRevoke, Of(absl::StrCat("old", i))), kExitOk);
    });
    threads.emplace_back([this, i] {
      EXPECT_EQ(Run(RunTokenCreate, Of(absl::StrCat("new", i))), kExitOk);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(Names(), testing::UnorderedElementsAreArray(kept));
}

TEST_F(TokenCommandTest, WhatIsNotThereIsNotRevoked) {
  EXPECT_NE(Run(RunTokenRevoke, Of("alice")), kExitOk);
}

}  // namespace
}  // namespace syncline::ctl

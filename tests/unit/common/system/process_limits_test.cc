// Goal: a process uses the open files that it may, and says in one line what it
// lacks. Method: the limits of this process, and children that throw.

#include "common/system/process_limits.h"

#include <sys/resource.h>

#include <new>
#include <system_error>

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(RaiseOpenFilesLimitTest, TheSoftLimitBecomesTheHardOne) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(RaiseOpenFilesLimit(), before.rlim_max);
  rlimit raised{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &raised), 0);
  EXPECT_EQ(raised.rlim_cur, before.rlim_max);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

template <typename Error>
void Throw(const Error& error) {
  throw error;
}

template <typename Error>
void EndWith(const char* program, const Error& error) noexcept {
  ExplainUncaughtExceptions(program);
  Throw(error);
}

TEST(ExplainUncaughtExceptionsDeathTest, WhatIsLackingIsSaidInOneLine) {
  const std::system_error no_thread(
      std::make_error_code(std::errc::resource_unavailable_try_again));
  EXPECT_EXIT(EndWith("syncline-ps", no_thread), testing::ExitedWithCode(1),
              "syncline-ps: cannot start a thread: Resource temporarily "
              "unavailable; are ");
  EXPECT_EXIT(EndWith("synctl", std::bad_alloc()), testing::ExitedWithCode(1),
              "synctl: out of memory");
}

}  // namespace
}  // namespace syncline

// Goal: a program that asks for it runs with sleeping compute threads and with
// its arguments, and is started again once. Method: this program does so in its
// own main, with a marker among the arguments; without the marker it is the
// first start, which must not get as far as the tests.

#include "kernels/threads.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr char kMarker[] = "--started_again";

bool HasMarker(int argc, char** argv) {
  return argc > 1 && std::strcmp(argv[argc - 1], kMarker) == 0;
}

}  // namespace

TEST(ThreadsTest, TheProgramRunsWithTheWaitingPolicy) {
  ASSERT_NE(std::getenv("OMP_WAIT_POLICY"), nullptr);
  EXPECT_STREQ(std::getenv("OMP_WAIT_POLICY"), "passive");
}

TEST(ThreadsTest, APolicyThatIsSetIsLeftAlone) {
  char program[] = "not executed";
  char* const arguments[] = {program, nullptr};
  syncline::RestartWithPassiveWaiting(const_cast<char**>(arguments));
  SUCCEED();  // it returned
}

int main(int argc, char** argv) {
  if (!HasMarker(argc, argv)) {
    unsetenv("OMP_WAIT_POLICY");
    char marker[sizeof(kMarker)];
    std::memcpy(marker, kMarker, sizeof(kMarker));
    std::vector<char*> arguments(argv, argv + argc);
    arguments.push_back(marker);
    arguments.push_back(nullptr);
    syncline::RestartWithPassiveWaiting(arguments.data());
    return EXIT_FAILURE;  // it was not started again
  }
  syncline::RestartWithPassiveWaiting(argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

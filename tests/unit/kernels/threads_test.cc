// Goal: a program that asks for it runs with sleeping compute threads and with
// its arguments, and is started again once. Method: this program does so in its
// own main, with a marker among the arguments; without the marker it is the
// first start, which must not get as far as the tests.

#include "kernels/threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
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
  // The call has returned without an exec.
  EXPECT_STREQ(std::getenv("OMP_WAIT_POLICY"), "passive");
}

TEST(ThreadsTest, ALoopRunsEveryElementOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    syncline::SetComputeThreads(threads);
    for (const int64_t count : {0, 1, 7, 100, 1001}) {
      std::vector<std::atomic<int>> runs(count);
      std::atomic<int64_t> calls = 0;
      std::atomic<int64_t> shortest = count;
      syncline::ParallelFor(count, 10, [&](int64_t begin, int64_t end) {
        ++calls;
        if (end - begin < shortest) shortest = end - begin;
        for (int64_t i = begin; i < end; ++i) ++runs[i];
      });
      for (const auto& of_element : runs) EXPECT_EQ(of_element, 1);
      EXPECT_LE(calls, threads);
      EXPECT_GE(shortest, std::min<int64_t>(count, 10));
      if (count == 1001) {
        EXPECT_EQ(calls, threads);
      }
    }
  }
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

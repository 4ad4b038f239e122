// Goal: a thread has its name, and of a long one the end. Method: names of
// threads, read back.

#include "common/system/thread_name.h"

#include <pthread.h>

#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace syncline {
namespace {

// The name that a new thread has after SetThreadName(name).
std::string NameAfter(const std::string& name) {
  char read[64] = "";
  std::thread thread([&] {
    SetThreadName(name);
    pthread_getname_np(pthread_self(), read, sizeof(read));
  });
  thread.join();
  return read;
}

TEST(ThreadNameTest, ShortNamesAreKept) {
  EXPECT_EQ(NameAfter("lane 3"), "lane 3");
  EXPECT_EQ(NameAfter("fifteen letters"), "fifteen letters");
}

TEST(ThreadNameTest, TheFrontOfALongNameIsCut) {
  EXPECT_EQ(NameAfter("of a table: lane 12"), " table: lane 12");
}

}  // namespace
}  // namespace syncline

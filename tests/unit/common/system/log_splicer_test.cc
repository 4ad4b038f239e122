// Goal: a log that is read again from its begin gives nothing twice and leaves
// nothing out. Method: logs cut at random places, with seeds.

#include "common/system/log_splicer.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

// Several lines have one time.
std::string Line(int i) {
  return absl::StrFormat("ts=2026-01-01T00:00:%02d.000Z level=info n=%d\n",
                         i / 3, i);
}

TEST(LogSplicerTest, ALogThatIsReadAgainGivesWhatIsNew) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    std::string log;
    for (int i = 0; i < 60; ++i) log.append(Line(i));
    LogSplicer splicer;
    std::string given;
    size_t written = 0;
    for (int run = 0; run < 5; ++run) {
      splicer.Restart();
      for (size_t read = 0;;) {
        // The next few whole lines of what is written so far.
        written = log.find('\n', std::min(log.size() - 1,
                                          written + random.Below(200))) +
                  1;
        const size_t end =
            std::min(written, log.find('\n', read + random.Below(150)) + 1);
        if (read >= written || end <= read) break;
        given.append(splicer.Take(log.substr(read, end - read)));
        read = end;
        if (random.Below(6) == 0) break;  // the connection broke
      }
    }
    splicer.Restart();
    given.append(splicer.Take(log));
    EXPECT_EQ(given, log);
  }
}

TEST(LogSplicerTest, ALogThatBeginsAnewIsGivenWhole) {
  LogSplicer splicer;
  EXPECT_FALSE(splicer.has_lines());
  EXPECT_EQ(splicer.Take(Line(3) + Line(4)), Line(3) + Line(4));
  EXPECT_TRUE(splicer.has_lines());
  splicer.Restart();
  // Of another process, which has not what the one before wrote.
  EXPECT_EQ(splicer.Take(Line(9) + Line(10)), Line(9) + Line(10));
}

}  // namespace
}  // namespace syncline

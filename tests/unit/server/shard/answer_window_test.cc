// Goal: pulls are read in their order of arrival, and only while the worker
// takes its answers. Method: answers of known sizes.

#include "server/shard/answer_window.h"

#include <optional>

#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

constexpr uint64_t kMax = AnswerWindow::kUnsentBytesMax;

WaitingRead Read(CallToken token) {
  WaitingRead read;
  read.token = token;
  return read;
}

TEST(AnswerWindowTest, ReadsInOrderWhileThereIsRoom) {
  AnswerWindow window;
  EXPECT_FALSE(window.Next().has_value());
  for (const CallToken token : {1, 2, 3}) window.Enqueue(Read(token));
  EXPECT_EQ(window.Next()->token, 1u);
  window.OnStarted(kMax - 1);
  // There is room for one answer more, whatever its size.
  EXPECT_EQ(window.Next()->token, 2u);
  window.OnStarted(kMax);
  EXPECT_FALSE(window.Next().has_value());
  window.OnSent(kMax - 1);
  EXPECT_FALSE(window.Next().has_value());
  window.OnSent(kMax);
  EXPECT_EQ(window.Next()->token, 3u);
  EXPECT_FALSE(window.Next().has_value());
}

TEST(AnswerWindowTest, WaitingPullsCanBeTakenBack) {
  AnswerWindow window;
  for (const CallToken token : {1, 2, 3}) window.Enqueue(Read(token));
  for (const WaitingRead& read : window.TakeWaiting()) {
    if (read.token != 2) window.Enqueue(read);
  }
  EXPECT_EQ(window.Next()->token, 1u);
  EXPECT_EQ(window.Next()->token, 3u);
  EXPECT_FALSE(window.Next().has_value());
}

}  // namespace
}  // namespace syncline::ps

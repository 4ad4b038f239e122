// The first bytes of a connection: as drawn, there and back, and garbage.

#include "worker/collectives/peer_hello.h"

#include <string>

#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

PeerHello SomeHello() { return {0x0102030405060708, 5, "0123456789abcdef"}; }

TEST(PeerHelloTest, TheLayoutIsTheOneThatTheReadmeDraws) {
  const std::string bytes = EncodeHello(SomeHello());
  ASSERT_EQ(bytes.size(), kHelloBytes);
  EXPECT_EQ(bytes.substr(0, 4), "SLPH");
  EXPECT_EQ(bytes[4], 5);
  EXPECT_EQ(bytes[8], 8);
  EXPECT_EQ(bytes[15], 1);
  EXPECT_EQ(bytes.substr(16, 16), "0123456789abcdef");
  EXPECT_EQ(bytes.substr(32), std::string(32, '\0'));
}

TEST(PeerHelloTest, AHelloComesBack) {
  const auto hello = DecodeHello(EncodeHello(SomeHello()));
  ASSERT_TRUE(hello.ok());
  EXPECT_EQ(hello->epoch, SomeHello().epoch);
  EXPECT_EQ(hello->from, 5u);
  EXPECT_EQ(hello->token, SomeHello().token);
}

TEST(PeerHelloTest, WhatIsNoHelloIsRefused) {
  const std::string good = EncodeHello(SomeHello());
  std::string magic = good;
  magic[0] = 'X';
  std::string padding = good;
  padding[40] = 1;
  for (const std::string& bytes :
       {std::string(), good.substr(1), good + "x", magic, padding}) {
    EXPECT_EQ(DecodeHello(bytes).status().code(), absl::StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace syncline::worker

// Goal: addresses are read as written, and bad ones say why.
// Method: tables.

#include "common/base/host_port.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

TEST(HostPortTest, ReadsGoodOnesAndWritesThemBack) {
  for (const char* text :
       {"host:2222", "10.0.0.7:1", "[::1]:2222", "j-ps-0.ns3.svc:65535",
        "a_b.c:80", "localhost:50051"}) {
    const auto parsed = ParseHostPort(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->ToString(), text);
  }
  EXPECT_EQ(ParseHostPort("[::1]:2222")->host, "::1");
  EXPECT_EQ(ParseHostPort("127.0.0.1:0", PortZero::kAllowed)->port, 0);
}

TEST(HostPortTest, SaysWhatIsWrong) {
  const struct {
    const char* text;
    const char* why;
  } kCases[] = {
      {"", "no port"},
      {"host", "no port"},
      {":2222", "no host"},
      {"host:", "port \"\""},
      {"host:0", "not in 1..65535"},
      {"host:65536", "not in 1..65535"},
      {"host:-1", "not in 1..65535"},
      {"host:+22", "not in 1..65535"},
      {"host:22a", "port \"22a\""},
      {"::1:2222", "not valid"},
      {"[::1:2222", "not valid"},
      {"[host]:2222", "not valid"},
      {"a b:2222", "not valid"},
      {"-a:2222", "not valid"},
      {"http://host:80", "no scheme"},
      {"grpc://host:80", "no scheme"},
      {"host:1:2", "not valid"},
  };
  for (const auto& c : kCases) {
    const auto parsed = ParseHostPort(c.text);
    ASSERT_FALSE(parsed.ok()) << c.text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(c.why))
        << c.text;
  }
}

TEST(HostPortTest, KnowsLoopbackAndAnyInterface) {
  EXPECT_TRUE(ParseHostPort("127.0.0.1:1")->IsLoopback());
  EXPECT_TRUE(ParseHostPort("127.8.0.1:1")->IsLoopback());
  EXPECT_TRUE(ParseHostPort("localhost:1")->IsLoopback());
  EXPECT_TRUE(ParseHostPort("[::1]:1")->IsLoopback());
  EXPECT_FALSE(ParseHostPort("127.example.org:1")->IsLoopback());
  EXPECT_FALSE(ParseHostPort("10.0.0.1:1")->IsLoopback());
  EXPECT_TRUE(ParseHostPort("0.0.0.0:1")->IsAnyInterface());
  EXPECT_TRUE(ParseHostPort("[::]:1")->IsAnyInterface());
}

}  // namespace
}  // namespace syncline

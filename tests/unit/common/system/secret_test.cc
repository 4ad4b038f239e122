// Goal: secrets differ from each other, and only the same one is accepted; an
// incarnation cannot be read out of the text that stands for it. Method: direct
// calls.

#include "common/system/secret.h"

#include <set>
#include <string>

#include "common/base/incarnation.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(SecretTest, EachIsAnother) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const auto secret = NewSecret();
    ASSERT_TRUE(secret.ok()) << secret.status();
    EXPECT_EQ(secret->size(), 16);
    EXPECT_TRUE(seen.insert(*secret).second);
  }
}

TEST(SecretTest, OnlyTheSameIsEqual) {
  const std::string secret("0123456789abcde\0", 16);
  EXPECT_TRUE(SecretsEqual(secret, secret));
  EXPECT_FALSE(SecretsEqual(secret, ""));
  EXPECT_FALSE(SecretsEqual(secret, secret.substr(0, 15)));
  EXPECT_FALSE(SecretsEqual(secret, secret + "x"));
  for (size_t i = 0; i < secret.size(); ++i) {
    std::string other = secret;
    other[i] ^= 1;
    EXPECT_FALSE(SecretsEqual(secret, other)) << i;
  }
}

// A stream that has no secret must not be open to one who says none.
TEST(SecretTest, NoSecretEqualsNothing) {
  EXPECT_FALSE(SecretsEqual("", ""));
  EXPECT_FALSE(SecretsEqual("", "x"));
}

TEST(IncarnationTextTest, StandsForItAndDoesNotSayIt) {
  const uint64_t incarnation = 0x00c0ffee12345678;
  const std::string text = IncarnationText(incarnation);
  EXPECT_EQ(text, IncarnationText(incarnation));
  EXPECT_EQ(text.size(), 6) << text;  // 16 of its 64 bits, and mixed
  std::set<std::string> texts;
  for (uint64_t i = 1; i <= 100; ++i) texts.insert(IncarnationText(i));
  EXPECT_GT(texts.size(), 95);
}

}  // namespace
}  // namespace syncline

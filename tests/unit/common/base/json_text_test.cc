// Goal: what is written is JSON whatever the texts and numbers are. Method:
// examples.

#include "common/base/json_text.h"

#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(JsonTextTest, TextsAreQuoted) {
  EXPECT_EQ(JsonQuoted(""), "\"\"");
  EXPECT_EQ(JsonQuoted("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(JsonQuoted("a\nb\x7f"), "\"a\\u000ab\\u007f\"");
  EXPECT_EQ(JsonQuoted("gr\xc3\xbc\xc3\x9f"), "\"gr\xc3\xbc\xc3\x9f\"");
  // What colours, ends a line for some, or turns the direction of writing.
  EXPECT_EQ(JsonQuoted("\xc2\x9b"
                       "31m\xc2\x85\xe2\x80\xae\xe2\x80\xa8"),
            "\"\\u009b31m\\u0085\\u202e\\u2028\"");
  // Not UTF-8, which JSON must be.
  EXPECT_EQ(JsonQuoted("\xe4"), "\"\\\\xe4\"");
}

TEST(JsonTextTest, NumbersThatJsonLacksAreNull) {
  EXPECT_EQ(JsonNumber(0.25), "0.25");
  EXPECT_EQ(JsonNumber(-3), "-3");
  EXPECT_EQ(JsonNumber(std::numeric_limits<double>::quiet_NaN()), "null");
  EXPECT_EQ(JsonNumber(std::numeric_limits<double>::infinity()), "null");
}

TEST(JsonTextTest, ObjectsAndArrays) {
  EXPECT_EQ(JsonObject().ToString(), "{}");
  EXPECT_EQ(JsonArray({}), "[]");
  EXPECT_EQ(JsonObject()
                .Text("a", "x")
                .Number("b", 1.5)
                .Count("c", -7)
                .Flag("d", true)
                .Raw("e", JsonArray({"1", JsonObject().ToString()}))
                .ToString(),
            "{\"a\":\"x\",\"b\":1.5,\"c\":-7,\"d\":true,\"e\":[1,{}]}");
}

}  // namespace
}  // namespace syncline

// Goal: a call's metadata say how many bytes it uploads, or nothing, or
// nonsense that is refused. Method: metadata by hand. (scheduler_files_test
// sends it.)

#include "common/cluster/declared_size.h"

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

constexpr char kKey[] = "syncline-file-bytes";

TEST(DeclaredSizeTest, NumbersAreRead) {
  EXPECT_EQ(*DeclaredFileBytes({{"user-agent", "x"}}), std::nullopt);
  EXPECT_EQ(**DeclaredFileBytes({{"a", "b"}, {kKey, "0"}}), 0u);
  EXPECT_EQ(**DeclaredFileBytes({{kKey, "18446744073709551615"}}),
            std::numeric_limits<uint64_t>::max());
}

TEST(DeclaredSizeTest, AnythingElseIsRefused) {
  const std::string long_text(1000, '\x01');
  for (const std::string& bad :
       {std::string(), std::string("-1"), std::string("1.5"),
        std::string("18446744073709551616"), std::string("12 bytes"),
        long_text}) {
    const Metadata metadata = {{kKey, bad}};
    const absl::Status status = DeclaredFileBytes(metadata).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(status.message(), HasSubstr("is no number of bytes"));
    EXPECT_LT(status.message().size(), 300u);
  }
  EXPECT_THAT(DeclaredFileBytes({{kKey, "1"}, {kKey, "2"}}).status().message(),
              HasSubstr("more than once"));
}

}  // namespace
}  // namespace syncline

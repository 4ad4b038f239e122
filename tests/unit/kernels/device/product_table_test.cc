// Goal: a table of algorithms comes back from its text as it was, and no text
// that is damaged, foreign or of another version is taken for one. Method:
// texts that are cut, changed byte by byte, and made by hand.

#include "kernels/device/product_table.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/base/crc32c.h"
#include "gmock/gmock.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

ProductTable Sample() {
  ProductTable table({"NVIDIA H200", "cuBLASLt 13.0.2"});
  EXPECT_TRUE(table.Set("1 x 64 64 64 nn bfloat16", std::string("\0\xff", 2)));
  EXPECT_TRUE(table.Set("1 x 8 8 8 nt float32", "abc"));
  return table;
}

// With the checksum that it then has.
std::string WithChecksum(const std::string& text) {
  const std::string lines = text.substr(0, text.rfind("crc32c "));
  return absl::StrCat(lines, absl::StrFormat("crc32c %08x\n", Crc32c(lines)));
}

TEST(ProductTableTest, ComesBackFromItsText) {
  const std::string text = Sample().ToText();
  EXPECT_EQ(text.substr(0, text.rfind("crc32c ")),
            "syncline product algorithms 1\n"
            "gpu NVIDIA H200\n"
            "library cuBLASLt 13.0.2\n"
            "00ff 1 x 64 64 64 nn bfloat16\n"
            "616263 1 x 8 8 8 nt float32\n");
  const auto back = ProductTable::FromText(text);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, Sample());
  EXPECT_EQ(*back->Find("1 x 8 8 8 nt float32"), "abc");
  EXPECT_EQ(back->Find("1 x 8 8 8 nn float32"), nullptr);
  const ProductTable empty({"a", "b"});
  EXPECT_EQ(*ProductTable::FromText(empty.ToText()), empty);
}

TEST(ProductTableTest, ALaterAlgorithmReplacesAnEarlierOne) {
  ProductTable table = Sample();
  EXPECT_TRUE(table.Set("1 x 8 8 8 nt float32", "x"));
  EXPECT_EQ(*table.Find("1 x 8 8 8 nt float32"), "x");
  EXPECT_EQ(table.algorithms().size(), 2u);
}

TEST(ProductTableTest, IsBounded) {
  ProductTable table({"a", "b"});
  for (size_t i = 0; i < ProductTable::kEntriesMax; ++i) {
    ASSERT_TRUE(table.Set(absl::StrCat("key ", i), "x"));
  }
  EXPECT_FALSE(table.Set("one more", "x"));
  EXPECT_TRUE(table.Set("key 7", "y"));
  EXPECT_TRUE(ProductTable::FromText(table.ToText()).ok());
}

TEST(ProductTableTest, ATextThatIsCutAnywhereIsRefused) {
  const std::string text = Sample().ToText();
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_TRUE(
        absl::IsDataLoss(ProductTable::FromText(text.substr(0, size)).status()))
        << size;
  }
  EXPECT_TRUE(absl::IsDataLoss(
      ProductTable::FromText(absl::StrCat(text, "x")).status()));
}

TEST(ProductTableTest, AByteThatIsChangedIsFound) {
  const std::string text = Sample().ToText();
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] ^= 1;
    EXPECT_FALSE(ProductTable::FromText(changed).ok()) << i;
  }
}

TEST(ProductTableTest, AnotherVersionOfTheFormatIsToldAsSuch) {
  const std::string later = absl::StrReplaceAll(
      Sample().ToText(), {{"algorithms 1\n", "algorithms 2\n"}});
  const absl::Status refused = ProductTable::FromText(later).status();
  EXPECT_TRUE(absl::IsUnimplemented(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("version 2"));
}

// Whoever writes the checksum, too.
TEST(ProductTableTest, LinesThatMeanNothingAreRefused) {
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"00ff 1", "00fg 1"},
      {"00ff 1", "0ff 1"},
      {"00ff 1", " 1"},
      {"gpu NVIDIA H200\n", ""},
      {"library ", "lib "},
      {"616263 1 x 8 8 8 nt float32", "616263"},
      {"616263 1 x 8 8 8 nt float32", "616263 1 x 64 64 64 nn bfloat16"},
      {"float32\n", "float32\n\n"},
      {"nt float32", "nt\tfloat32"}};
  for (const auto& [from, to] : changes) {
    const std::string text =
        WithChecksum(absl::StrReplaceAll(Sample().ToText(), {{from, to}}));
    EXPECT_TRUE(absl::IsDataLoss(ProductTable::FromText(text).status()))
        << text;
  }
  EXPECT_TRUE(ProductTable::FromText(WithChecksum(Sample().ToText())).ok());
  for (const char* const garbage : {"", "\n", "GIF89a", "crc32c 00000000\n"}) {
    EXPECT_TRUE(absl::IsDataLoss(ProductTable::FromText(garbage).status()));
  }
}

TEST(ProductTableTest, NamesStayWithinTheirLines) {
  const ProductTable table({" a\nGPU ", "a\tlibrary"});
  EXPECT_EQ(table.library().gpu, "a GPU");
  EXPECT_EQ(table.library().name, "a library");
  EXPECT_EQ(*ProductTable::FromText(table.ToText()), table);
}

}  // namespace
}  // namespace syncline

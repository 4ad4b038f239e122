// Goal: copies of the same data have the same fingerprint wherever they lie,
// and each difference that changes what is trained on shows in it. Method: two
// roots with copies, changed one way at a time.

#include "worker/data/data_fingerprint.h"

#include <memory>
#include <string>
#include <vector>

#include "common/system/file.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_files.h"
#include "tests/unit/worker/data/npy_files.h"

namespace syncline::worker {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;

constexpr char kCsv[] =
    "train { csv { path: 'p-*.csv' } } feeds { input: 'x' field: '0' }"
    "label { field: '1' }";
constexpr char kDigits[] =
    "train { digits { count: 100 seed: 3 } }"
    "feeds { input: 'x' field: 'image' }";

DataFingerprint::Source Fingerprint(const std::string& text,
                                    const DataRoot& root,
                                    int64_t elements = 1) {
  DataSpec data;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &data));
  const auto dataset =
      Dataset::Open(data.train(), data, root, {{elements}}, 0, 1);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  auto print = FingerprintOf("data.train", data.train(), data, root, **dataset);
  EXPECT_TRUE(print.ok()) << print.status();
  return *print;
}

std::vector<std::string> Names(const DataFingerprint::Source& print) {
  std::vector<std::string> names;
  for (const auto& file : print.files()) names.push_back(file.name());
  return names;
}

class DataFingerprintTest : public DataFilesTest {
 protected:
  void SetUp() override {
    for (const char* root : {"one", "two"}) {
      ASSERT_TRUE(MakeDirs(Path(root)).ok());
      Write(std::string(root) + "/p-1.csv", "1,2\n");
      Write(std::string(root) + "/p-2.csv", "3,4\n5,6\n");
    }
  }
};

TEST_F(DataFingerprintTest, CopiesAreEqual) {
  const auto one = Fingerprint(kCsv, Path("one"));
  EXPECT_EQ(one.field(), "data.train");
  EXPECT_EQ(one.samples(), 3u);
  EXPECT_EQ(one.file_count(), 2u);
  EXPECT_THAT(Names(one), ElementsAre("p-1.csv", "p-2.csv"));
  EXPECT_EQ(one.files(1).size_bytes(), 8u);
  EXPECT_TRUE(MessageDifferencer::Equals(
      one, Fingerprint(kCsv, DataRoot(Path("two"), /*bounded=*/true))));
}

TEST_F(DataFingerprintTest, AbsoluteAndRelativePathsGiveOneName) {
  std::string absolute = kCsv;
  absolute.replace(absolute.find("p-*"), 3, Path("one/p-*"));
  EXPECT_TRUE(MessageDifferencer::Equals(Fingerprint(kCsv, Path("two")),
                                         Fingerprint(absolute, Path("one"))));
  // Below no root a file is called by its path.
  EXPECT_THAT(Names(Fingerprint(absolute, Path("two"))),
              ElementsAre(Path("one/p-1.csv"), Path("one/p-2.csv")));
}

TEST_F(DataFingerprintTest, AMissingFileShows) {
  const auto one = Fingerprint(kCsv, Path("one"));
  ASSERT_TRUE(RemoveTree(Path("two/p-2.csv")).ok());
  const auto two = Fingerprint(kCsv, Path("two"));
  EXPECT_THAT(Names(two), ElementsAre("p-1.csv"));
  EXPECT_EQ(two.samples(), 1u);
  EXPECT_NE(one.crc32c(), two.crc32c());
}

TEST_F(DataFingerprintTest, OtherContentShows) {
  const auto one = Fingerprint(kCsv, Path("one"));
  Write("two/p-2.csv", "3,4\n5,7\n");
  const auto two = Fingerprint(kCsv, Path("two"));
  EXPECT_EQ(one.files(1).size_bytes(), two.files(1).size_bytes());
  EXPECT_EQ(one.files(0).crc32c(), two.files(0).crc32c());
  EXPECT_NE(one.files(1).crc32c(), two.files(1).crc32c());
  EXPECT_NE(one.crc32c(), two.crc32c());
}

TEST_F(DataFingerprintTest, TheFirstAndTheLast64KiBOfAFileCount) {
  std::string lines;
  while (lines.size() < (200 << 10)) lines += "1,2\n";
  const auto crc_of = [&](size_t changed) {
    std::string content = lines;
    content[changed] = '7';
    Write("one/p-1.csv", content);
    return Fingerprint(kCsv, Path("one")).files(0).crc32c();
  };
  Write("one/p-1.csv", lines);
  const uint32_t crc = Fingerprint(kCsv, Path("one")).files(0).crc32c();
  EXPECT_NE(crc_of((64 << 10) - 4), crc);
  EXPECT_EQ(crc_of(100 << 10), crc) << "the middle is not read";
  EXPECT_NE(crc_of(lines.size() - (64 << 10)), crc);
}

TEST_F(DataFingerprintTest, NamesThatAreNotUtf8AreEscaped) {
  Write("one/p-\xe4\n.csv", "1,2\n");
  EXPECT_THAT(Names(Fingerprint(kCsv, Path("one"))),
              ElementsAre("p-1.csv", "p-2.csv", "p-\\xe4\\n.csv"));
}

TEST_F(DataFingerprintTest, OfArraysOnlyThoseThatAreReadCount) {
  const auto npy = [](uint8_t value) {
    return Npy(NpyText("|u1", "(1,)"), Bytes(std::vector<uint8_t>{value}));
  };
  Write("one/x.npy", npy(1));
  Write("one/y.npy", npy(2));
  EXPECT_THAT(
      Names(Fingerprint("train { npy { arrays { field: 'x' path: 'x.npy' }"
                        "  arrays { field: 'label' path: 'y.npy' }"
                        "  arrays { field: 'z' path: 'absent.npy' } } }"
                        "feeds { input: 'x' field: 'x' }",
                        Path("one"))),
      ElementsAre("x.npy", "y.npy"));
}

TEST_F(DataFingerprintTest, DrawnSamplesCount) {
  const auto print = Fingerprint(kDigits, "", 784);
  EXPECT_EQ(print.samples(), 100u);
  EXPECT_EQ(print.file_count(), 0u);
  EXPECT_TRUE(
      MessageDifferencer::Equals(print, Fingerprint(kDigits, dir_, 784)));
  std::string other = kDigits;
  other.replace(other.find("seed: 3"), 7, "seed: 4");
  EXPECT_NE(Fingerprint(other, "", 784).crc32c(), print.crc32c());
}

}  // namespace
}  // namespace syncline::worker

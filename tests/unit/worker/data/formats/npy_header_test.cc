// Goal: .npy headers are read as NumPy writes them, and what is not read is
// named. Method: headers written byte by byte.

#include "worker/data/formats/npy_header.h"

#include <string>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_files.h"
#include "tests/unit/worker/data/npy_files.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = NpyHeader::Kind;

class NpyHeaderTest : public DataFilesTest {
 protected:
  absl::StatusOr<NpyHeader> Read(const std::string& content) {
    const auto file = InputFile::Open(Write("a.npy", content));
    EXPECT_TRUE(file.ok()) << file.status();
    return ReadNpyHeader(file->get());
  }
  std::string Error(const std::string& content) {
    const auto header = Read(content);
    return header.ok() ? "OK" : std::string(header.status().message());
  }
  void ExpectElement(const std::string& descr, Kind kind, int width) {
    const auto header = Read(Npy(NpyText(descr, "(2,)"), ""));
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->kind, kind) << descr;
    EXPECT_EQ(header->width, width) << descr;
  }
};

TEST_F(NpyHeaderTest, ReadsElements) {
  ExpectElement("|u1", Kind::kUnsigned, 1);
  ExpectElement("|b1", Kind::kBool, 1);
  ExpectElement("|i1", Kind::kSigned, 1);
  ExpectElement("<u2", Kind::kUnsigned, 2);
  ExpectElement("<i8", Kind::kSigned, 8);
  ExpectElement("<f4", Kind::kFloat, 4);
  ExpectElement("<f8", Kind::kFloat, 8);
}

TEST_F(NpyHeaderTest, ReadsShapes) {
  EXPECT_THAT(Read(Npy(NpyText("<f4", "(60000, 28, 28)"), ""))->shape,
              ElementsAre(60000, 28, 28));
  EXPECT_THAT(Read(Npy(NpyText("<f4", "(7,)"), ""))->shape, ElementsAre(7));
  EXPECT_THAT(Read(Npy(NpyText("<f4", "()"), ""))->shape, IsEmpty());
}

TEST_F(NpyHeaderTest, ElementsFollowTheHeader) {
  const std::string text = NpyText("<f4", "(1,)");
  EXPECT_EQ(Read(Npy(text, "abcd"))->bytes,
            static_cast<int64_t>(10 + text.size()));
  std::string second("\x93NUMPY\x02\x00", 8);  // four bytes for the length
  second += static_cast<char>(text.size());
  second += std::string(3, '\0') + text;
  EXPECT_EQ(Read(second)->bytes, static_cast<int64_t>(12 + text.size()));
}

TEST_F(NpyHeaderTest, NamesWhatIsNotRead) {
  EXPECT_THAT(Error("abc"), HasSubstr("a.npy: truncated: 5 bytes"));
  EXPECT_THAT(Error("0123456789"), HasSubstr("not a .npy file"));
  EXPECT_THAT(Error(std::string("\x93NUMPY\x02\x00\xff\xff\xff\x7f", 12)),
              HasSubstr("byte 8: a .npy header of"));
  EXPECT_THAT(Error("PK\x03\x04 and so on"), HasSubstr("perhaps .npz"));
  const struct {
    const char* descr;
    const char* said;
  } kElements[] = {{">f4", "\">f4\", which is big-endian; save x.astype"},
                   {"<f2", "\"<f2\"; save x.astype(numpy.float32)"},
                   {"<c8", "the header says \"<c8\""},
                   {"<U7", "\"<U7\", text"},
                   {"|O", "\"|O\", Python objects"},
                   {"", "the header says"},
                   {"\xff\xfe\x01", "\\xff\\xfe\\x01"}};
  for (const auto& c : kElements) {
    EXPECT_THAT(
        Error(Npy(NpyText(c.descr, "(2,)"), "")),
        AllOf(HasSubstr("byte 10: elements must be"), HasSubstr(c.said)));
  }
  EXPECT_THAT(
      Error(Npy("{'descr': [('a', '<f4'), ('b', '<i8')], 'shape': (2,)", "")),
      HasSubstr("each one has several fields"));
  for (const char* shape : {"2", "(2", "(2, x)", "(-1,)", "(1e3,)"}) {
    EXPECT_THAT(
        Error(Npy("{'descr': '<f4', 'shape': " + std::string(shape), "")),
        HasSubstr("no shape in the header"))
        << shape;
  }
  std::string long_header = "{'descr': '<f4', 'shape': ";
  long_header.resize(200, '\xe4');
  EXPECT_LT(Error(Npy(long_header, "")).size(), dir_.size() + 300);
  EXPECT_THAT(
      Error(Npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }",
                "")),
      HasSubstr("ascontiguousarray"));
}

}  // namespace
}  // namespace syncline::worker

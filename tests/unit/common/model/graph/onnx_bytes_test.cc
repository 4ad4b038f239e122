// Goal: what is no ONNX model is called by its name, and a model that is cut
// off or damaged says where. Method: beginnings of other formats; a model cut
// at every byte; bytes changed by hand.

#include "common/model/graph/onnx_bytes.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/model/graph/onnx_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Binary() {
  onnx::ModelProto model;
  const absl::Status status = ReadOnnxFile(
      "<ir_version: 8, opset_import: [\"\" : 13]> "
      "g (float[N,2] x) => (float[N,2] y) <float[2] w = {1, 2}> "
      "{ y = Add(x, w) }",
      &model);
  EXPECT_TRUE(status.ok()) << status;
  return model.SerializeAsString();
}

TEST(OnnxBytesTest, OtherFormatsHaveNames) {
  const std::pair<std::string, const char*> table[] = {
      {"PK\x03\x04",
       "not ONNX: a zip archive, as torch.save writes .pt files; "
       "export the model with torch.onnx.export"},
      {"\x89PNG\r\n\x1a", "not ONNX: a PNG picture"},
      {"\x89HDF\r\n",
       "not ONNX: an HDF5 file, as Keras writes .h5 files; "
       "export the model with torch.onnx.export"},
      {"<!DOCTYPE html>", "not ONNX: a web page"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:1",
       "not ONNX: a Git LFS pointer in place of the file; fetch it with git "
       "lfs pull"},
      {std::string("\x40\x00\x00\x00\x00\x00\x00\x00{\"a\":1}", 15),
       "not ONNX: a safetensors file, which has weights alone; export the "
       "model with torch.onnx.export"},
  };
  for (const auto& [bytes, name] : table) {
    EXPECT_EQ(DescribeOtherFormat(bytes), name);
  }
  EXPECT_EQ(DescribeOtherFormat(Binary()), "");
  EXPECT_EQ(DescribeOtherFormat(""), "");
}

TEST(OnnxBytesTest, TextSaysWhatItBeginsWith) {
  EXPECT_EQ(DescribeBrokenBytes("# a model\n\n  ir_version: 8>\ng (x)"),
            "3:3: not ONNX: ONNX text begins with '<', as in <ir_version: 8, "
            "opset_import: [\"\" : 17]>, not with 'ir_version: 8>'");
  EXPECT_EQ(DescribeBrokenBytes("# nothing\n"),
            "2:1: not ONNX: text with comments alone");
}

TEST(OnnxBytesTest, ATruncatedModelSaysWhere) {
  const std::string binary = Binary();
  EXPECT_THAT(DescribeBrokenBytes(binary.substr(0, binary.size() - 3)),
              AnyOf(HasSubstr("is cut off at byte "),
                    HasSubstr(" follow before the file ends")));
  for (size_t size = 3; size < binary.size(); ++size) {
    onnx::ModelProto model;
    const std::string cut = binary.substr(0, size);
    if (ReadOnnxFile(cut, &model).ok()) continue;  // between two fields
    EXPECT_THAT(DescribeBrokenBytes(cut),
                StartsWith("truncated or damaged ONNX: the "))
        << size;
  }
}

TEST(OnnxBytesTest, ADamagedModelSaysWhere) {
  std::string binary = Binary();
  // Field 0 in place of the node's op_type: no message has a field 0.
  const size_t tag = binary.find("Add") - 2;
  binary[tag] = '\0';
  EXPECT_EQ(
      DescribeBrokenBytes(binary),
      absl::StrCat("truncated or damaged ONNX: no field begins at byte ", tag));
  // A length that leads beyond the message around it.
  binary = Binary();
  binary[tag + 1] = '\x7f';
  EXPECT_THAT(
      DescribeBrokenBytes(binary),
      StartsWith(absl::StrCat("truncated or damaged ONNX: the op_type at byte ",
                              tag, " has 127 bytes, but only ")));
}

TEST(OnnxBytesTest, AnythingElseIsNeither) {
  EXPECT_THAT(DescribeBrokenBytes("\x01\x02\x03\xff\xfe\x10\x11"),
              StartsWith("not ONNX: neither ONNX binary nor ONNX text; it "
                         "begins with '"));
}

}  // namespace
}  // namespace syncline

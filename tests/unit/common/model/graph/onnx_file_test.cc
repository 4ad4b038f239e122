// Goal: ONNX is recognised by content, errors of the text syntax have a place,
// tensors are taken whatever field holds their values, and hostile bytes are
// refused.
// Method: tables of texts and messages built by hand.

#include "common/model/graph/onnx_file.h"

#include <string>

#include "common/model/model.h"
#include "gmock/gmock.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kText[] = R"(# comment
<ir_version: 8, opset_import: ["" : 13]>
g (float[N, 2] x) => (float[N, 2] y) { y = Relu(x) }
)";

std::string ErrorOf(absl::string_view bytes) {
  onnx::ModelProto model;
  const absl::Status status = ReadOnnxFile(bytes, &model);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(OnnxFileTest, TextAndBinaryAreTheSameModel) {
  onnx::ModelProto text;
  ASSERT_TRUE(ReadOnnxFile(kText, &text).ok());
  EXPECT_EQ(text.graph().node(0).op_type(), "Relu");
  onnx::ModelProto binary;
  ASSERT_TRUE(ReadOnnxFile(text.SerializeAsString(), &binary).ok());
  EXPECT_EQ(binary.SerializeAsString(), text.SerializeAsString());
}

TEST(OnnxFileTest, ErrorsOfTextHaveTheirPlace) {
  const std::pair<const char*, const char*> table[] = {
      {"<", "1:2: not ONNX text: Identifier expected but not found."},
      {"<ir_version: 8>\ng (float[2] x) => (float[2] y) { y = Relu(x }",
       "2:45: not ONNX text: Expected character ) not found."},
      {"<ir_version: 8>\n\n  g (float[2] x) => (float[2] y) { y = Relu(x) } }",
       "3:50: not ONNX text: Expected character = not found."},
      {"<ir_version: 99999999999999999999>",
       "1:34: not ONNX text: a number is malformed or out of range (stoll)"},
  };
  for (const auto& [text, error] : table) EXPECT_EQ(ErrorOf(text), error);
}

TEST(OnnxFileTest, OtherBytesAreRefused) {
  EXPECT_EQ(ErrorOf(""), "the file is empty");
  EXPECT_THAT(ErrorOf("hello"), StartsWith("1:1: not ONNX: "));
  EXPECT_EQ(ErrorOf("# only a comment"),
            "1:17: not ONNX: text with comments alone");
  EXPECT_THAT(ErrorOf("PK\x03\x04..."), StartsWith("not ONNX: a zip archive"));
  EXPECT_THAT(ErrorOf(std::string("<ir_version\0: 8>", 16)),
              HasSubstr("NUL bytes"));
  onnx::ModelProto model;
  ASSERT_TRUE(ReadOnnxFile(kText, &model).ok());
  const std::string binary = model.SerializeAsString();
  EXPECT_THAT(ErrorOf(binary.substr(0, binary.size() - 1)),
              StartsWith("truncated or damaged ONNX: "));
}

TEST(OnnxFileTest, DeepNestingIsRefused) {
  std::string text = "<ir_version: 8> g (";
  for (int i = 0; i < 100'000; ++i) text += "seq(";
  EXPECT_THAT(ErrorOf(text), HasSubstr("nest deeper than 64"));
  // Closers in comments and strings do not count.
  text = "<ir_version: 8> g (";
  for (int i = 0; i < 100'000; ++i) text += "seq( #)\n";
  EXPECT_THAT(ErrorOf(text), HasSubstr("nest deeper than 64"));
  // Binary: graphs inside attributes inside nodes, beyond protobuf's limit.
  onnx::GraphProto graph;
  for (int i = 0; i < 60; ++i) {
    onnx::GraphProto outer;
    outer.add_node()->add_attribute()->mutable_g()->Swap(&graph);
    graph.Swap(&outer);
  }
  onnx::ModelProto model;
  model.mutable_graph()->Swap(&graph);
  EXPECT_THAT(ErrorOf(model.SerializeAsString()),
              HasSubstr("messages nest deeper than 100 at byte "));
}

template <typename T>
std::vector<T> ValuesOf(const ConstantTensor& tensor) {
  const T* data = reinterpret_cast<const T*>(tensor.bytes.data());
  return std::vector<T>(data, data + tensor.bytes.size() / sizeof(T));
}

TEST(OnnxFileTest, TensorsFromTypedFields) {
  onnx::TensorProto proto;
  proto.set_data_type(onnx::TensorProto::FLOAT);
  proto.add_dims(2);
  proto.add_float_data(1);
  proto.add_float_data(2);
  EXPECT_THAT(ValuesOf<float>(*TakeTensor(&proto)), ElementsAre(1, 2));
  EXPECT_EQ(proto.float_data_size(), 0) << "the content is moved out";

  proto.set_data_type(onnx::TensorProto::INT64);
  proto.add_int64_data(-1);
  proto.add_int64_data(5);
  EXPECT_THAT(ValuesOf<int64_t>(*TakeTensor(&proto)), ElementsAre(-1, 5));

  proto.set_data_type(onnx::TensorProto::DOUBLE);
  proto.add_double_data(0.5);
  proto.add_double_data(2);
  EXPECT_THAT(ValuesOf<double>(*TakeTensor(&proto)), ElementsAre(0.5, 2));

  for (auto type : {onnx::TensorProto::BOOL, onnx::TensorProto::UINT8}) {
    proto.set_data_type(type);
    proto.add_int32_data(0);
    proto.add_int32_data(1);
    EXPECT_THAT(ValuesOf<uint8_t>(*TakeTensor(&proto)), ElementsAre(0, 1));
  }
  proto.set_data_type(onnx::TensorProto::INT32);
  proto.add_int32_data(-7);
  proto.add_int32_data(9);
  EXPECT_THAT(ValuesOf<int32_t>(*TakeTensor(&proto)), ElementsAre(-7, 9));
}

TEST(OnnxFileTest, TensorsRoundTripAsRawData) {
  ConstantTensor tensor;
  tensor.dtype = DType::kInt64;
  tensor.dims = {1, 2};
  tensor.bytes = std::string(16, '\x01');
  onnx::TensorProto proto;
  WriteTensor(tensor.dtype, tensor.dims, tensor.bytes, &proto);
  EXPECT_TRUE(proto.has_raw_data());
  const auto back = TakeTensor(&proto);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->dtype, tensor.dtype);
  EXPECT_EQ(back->dims, tensor.dims);
  EXPECT_EQ(back->bytes, tensor.bytes);
}

std::string TensorError(onnx::TensorProto proto) {
  return std::string(TakeTensor(&proto).status().message());
}

TEST(OnnxFileTest, DeclaredTypesAllowWhatTheyLeaveOpen) {
  onnx::TypeProto_Tensor declared;
  declared.set_elem_type(onnx::TensorProto::FLOAT);
  EXPECT_TRUE(Allows(declared, DType::kFloat32, Dims{7, 3}));
  EXPECT_FALSE(Allows(declared, DType::kInt64, Dims{7, 3}));
  declared.mutable_shape();
  EXPECT_TRUE(Allows(declared, DType::kFloat32, Dims{}));
  EXPECT_FALSE(Allows(declared, DType::kFloat32, Dims{7, 3}));
  declared.mutable_shape()->add_dim()->set_dim_param("N");
  declared.mutable_shape()->add_dim()->set_dim_value(3);
  EXPECT_TRUE(Allows(declared, DType::kFloat32, Dims{7, 3}));
  EXPECT_FALSE(Allows(declared, DType::kFloat32, Dims{7, 4}));
  declared.mutable_shape()->mutable_dim(1)->set_dim_value(-1);
  EXPECT_TRUE(Allows(declared, DType::kFloat32, Dims{7, 4}));
}

TEST(OnnxFileTest, BadTensorsAreRefused) {
  onnx::TensorProto good;
  good.set_data_type(onnx::TensorProto::FLOAT);
  good.add_dims(2);
  good.set_raw_data(std::string(8, '\0'));

  onnx::TensorProto proto = good;
  proto.add_dims(3);
  EXPECT_EQ(TensorError(proto),
            "float32[2,3] needs 24 bytes, but the file has 8");
  proto = good;
  proto.set_dims(0, -2);
  EXPECT_EQ(TensorError(proto), "dimension -2 is negative");
  proto = good;
  proto.set_dims(0, int64_t{1} << 62);
  proto.add_dims(int64_t{1} << 62);
  EXPECT_THAT(TensorError(proto), HasSubstr("too large"));
  proto = good;
  proto.set_data_type(onnx::TensorProto::FLOAT16);
  EXPECT_THAT(TensorError(proto),
              StartsWith("element type FLOAT16 is not built yet"));
  proto.set_data_type(999);
  EXPECT_THAT(TensorError(proto), StartsWith("element type number 999"));
  proto = good;
  proto.set_data_location(onnx::TensorProto::EXTERNAL);
  auto* entry = proto.add_external_data();
  entry->set_key("location");
  entry->set_value("../weights.bin");
  EXPECT_EQ(TensorError(proto),
            "its values are in another file, '../weights.bin'; save the model "
            "with all weights inside");
  proto = good;
  proto.mutable_segment()->set_begin(0);
  EXPECT_EQ(TensorError(proto), "segments are not supported");
}

TEST(OnnxFileTest, ContentsAreWrittenAsTheInitializersOwn) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.mutable_graph()->set_name("g");
  for (const char* name : {"a", "b"}) {
    onnx::TensorProto* const tensor = model.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->add_dims(4);
  }
  onnx::ModelProto want = model;
  want.mutable_graph()->mutable_initializer(0)->set_raw_data("four");
  want.mutable_graph()->mutable_initializer(1)->set_raw_data("");

  std::string bytes;
  google::protobuf::io::StringOutputStream out(&bytes);
  onnx::ModelProto taken = model;
  ASSERT_TRUE(WriteOnnxFile({{"a", "four"}, {"b", ""}}, &taken, &out).ok());
  onnx::ModelProto got;
  ASSERT_TRUE(got.ParseFromString(bytes));
  EXPECT_EQ(got.SerializeAsString(), want.SerializeAsString());

  // More than a message can be. The reader stops before the first byte.
  const absl::string_view huge(bytes.data(), size_t{3} << 30);
  EXPECT_EQ(WriteOnnxFile({{"a", huge}, {"b", ""}}, &model, &out).code(),
            absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace syncline

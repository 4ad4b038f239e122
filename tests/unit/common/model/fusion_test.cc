// Goal: GELU written out is one operator, whatever way exporters write it, and
// nothing else is. Method: models in text, parsed; forms of the pattern and
// near misses. tests/peers/torch_peer.py compares what such models compute.

#include "common/model/fusion.h"

#include "absl/strings/str_cat.h"
#include "common/model/model.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

struct Form {
  std::string name;
  std::string body;
  bool fuses = true;
  std::string outputs = "float[N,4] y";
};

std::ostream& operator<<(std::ostream& out, const Form& form) {
  return out << form.name;
}

constexpr char kNumbers[] = R"(
    root = Constant <value_float = 1.41421354> ()
    over_root = Constant <value_float = 0.70710677> ()
    one = Constant <value_float = 1.0> ()
    half = Constant <value_float = 0.5> ()
    two = Constant <value_float = 2.0> ()
    scaled = Div (x, root)
)";

class FusionTest : public testing::TestWithParam<Form> {};

TEST_P(FusionTest, Gelu) {
  const Form& form = GetParam();
  const auto model =
      Model::Parse(absl::StrCat("<ir_version: 8, opset_import: [\"\" : 17]>\n",
                                "g (float[N,4] x) => (", form.outputs, ")\n{",
                                kNumbers, form.body, "}\n"),
                   "test");
  ASSERT_TRUE(model.ok()) << model.status();
  const Graph& graph = (*model)->graph();
  const ValueId y = graph.FindValue("y");
  const Node& last = graph.nodes[graph.values[y].producer];
  EXPECT_EQ(last.op_type == "Gelu", form.fuses) << last.op_type;
  if (form.fuses) {
    EXPECT_EQ(last.inputs, std::vector<ValueId>{graph.FindValue("x")});
  }
  const auto shapes = (*model)->InferShapes(3);
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  EXPECT_EQ((*shapes)[y], (Dims{3, 4}));
}

INSTANTIATE_TEST_SUITE_P(
    Forms, FusionTest,
    testing::Values(Form{"Torch", R"(
    erf = Erf (scaled)
    more = Add (erf, one)
    twice = Mul (x, more)
    y = Mul (twice, half)
)"},
                    Form{"TurnedRound", R"(
    times = Mul (over_root, x)
    erf = Erf (times)
    more = Add (one, erf)
    twice = Mul (more, x)
    y = Mul (half, twice)
)"},
                    Form{"HalfFirst", R"(
    erf = Erf (scaled)
    more = Add (erf, one)
    some = Mul (more, half)
    y = Mul (x, some)
)"},
                    Form{"HalfOfX", R"(
    small = Mul (x, half)
    erf = Erf (scaled)
    more = Add (erf, one)
    y = Mul (small, more)
)"},
                    Form{"AnotherNumber", R"(
    erf = Erf (scaled)
    more = Add (erf, two)
    twice = Mul (x, more)
    y = Mul (twice, half)
)",
                         false},
                    Form{"AnotherFactor", R"(
    erf = Erf (scaled)
    more = Add (erf, one)
    twice = Mul (scaled, more)
    y = Mul (twice, half)
)",
                         false},
                    Form{"ReadBetween", R"(
    erf = Erf (scaled)
    more = Add (erf, one)
    twice = Mul (x, more)
    y = Mul (twice, half)
    z = Identity (erf)
)",
                         false, "float[N,4] y, float[N,4] z"},
                    Form{"AnOutputBetween", R"(
    erf = Erf (scaled)
    more = Add (erf, one)
    twice = Mul (x, more)
    y = Mul (twice, half)
)",
                         false, "float[N,4] y, float[N,4] twice"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace syncline

// Goal: a number is taken for granted only if no batch size and no length can
// change it. Method: attention in text whose scores are divided by a number
// that is computed in some way; it is fused only with a fixed one.

#include "common/model/import/invariant_constants.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/model/model.h"
#include "gtest/gtest.h"
#include "tests/testing/attention_text.h"

namespace syncline {
namespace {

// The factor that the scores of x [N,128,2,4] are found to have; none: it is
// not fixed. With `has_lengths` the second dimension is 128 at most.
std::optional<float> FixedScale(const std::string& body, bool has_lengths) {
  const std::string rows = has_lengths ? "T" : "128";
  const auto model = Model::Parse(
      absl::StrCat(R"(<ir_version: 8, opset_import: ["" : 17]>
          g (float[N,)",
                   rows, ",2,4] x) => (float[N,", rows, R"(,2,4] y)
          <int64[1] zero = {0}, int64[1] one = {1}, int64[1] three = {3},
           int64[1] last = {-1}, int64[1] hundred = {100}, int64[1] end = {9}>
          {
            shape = Shape (x)
            batch = Gather (shape, zero)
            length = Gather (shape, one)
            width = Slice (shape, last, end))",
                   body, R"(
            number = Cast <to = 1> (found))",
                   testing::kHeads, testing::kProduct,
                   "ready = Div (scores, number)", testing::kRest, "}"),
      "test", {}, {},
      has_lengths ? LengthDimension{.symbol = "T", .longest = 128}
                  : LengthDimension{});
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return std::nullopt;
  const Graph& graph = (*model)->graph();
  const Node& last = graph.nodes[graph.values[graph.FindValue("y")].producer];
  if (!last.is_fused) return std::nullopt;
  return last.Float("scale", 0);
}

struct Case {
  const char* body;
  std::optional<float> fixed = std::nullopt;         // of one length
  std::optional<float> with_lengths = std::nullopt;  // of several
};

TEST(InvariantConstantsTest, OnlyWhatNoBatchAndNoLengthChanges) {
  const Case cases[] = {
      {"found = Identity (width)", 0.25f, 0.25f},
      {"found = Gather (shape, three)", 0.25f, 0.25f},
      {"all = Concat <axis = 0> (batch, width) found = Gather (all, one)",
       0.25f, 0.25f},
      {"found = Mul (width, one)", 0.25f, 0.25f},
      {"found = Gather (hundred, zero)", 0.01f, 0.01f},
      // Of the length.
      {"found = Identity (length)", 0.0078125f},
      {"found = Min (length, hundred)", 0.01f},
      {"all = Concat <axis = 0> (width, length) found = Gather (all, one)",
       0.0078125f},
      {"found = Div (length, length)", 1.0f},
      // Of the batch.
      {"found = Identity (batch)"},
      {"found = Min (batch, hundred)"},
      {"found = Size (x)"},
      {"found = Size (hundred)", 1.0f, 1.0f},
      {"all = Concat <axis = 0> (hundred, width) "
       "at = Min (batch, one) found = Gather (all, at)"},
      // Of a shape that is made of such numbers.
      {"rows = Min (length, hundred) cut = Slice (x, zero, rows, one) "
       "same = Relu (cut) cut_shape = Shape (same) "
       "found = Gather (cut_shape, one)",
       0.01f},
      {"cut = Slice (x, zero, length, one) cut_shape = Shape (cut) "
       "found = Gather (cut_shape, three)",
       0.25f, 0.25f},
      {"rows = Min (batch, one) parts = Concat <axis = 0> (rows, last) "
       "flat = Reshape (x, parts) flat_shape = Shape (flat) "
       "found = Gather (flat_shape, zero)"},
      {"parts = Concat <axis = 0> (batch, length, last) "
       "flat = Reshape (x, parts) flat_shape = Shape (flat) "
       "found = Slice (flat_shape, last, end)",
       0.125f, 0.125f},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.body);
    EXPECT_EQ(FixedScale(c.body, false), c.fixed);
    EXPECT_EQ(FixedScale(c.body, true), c.with_lengths);
  }
}

}  // namespace
}  // namespace syncline

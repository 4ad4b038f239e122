// Goal: an equation gives each dimension its label, as numpy has it. Method:
// equations of attention, ellipses and implicit outputs; what is malformed.

#include "common/model/graph/einsum.h"

#include "gtest/gtest.h"

namespace syncline {
namespace {

std::string Output(const std::string& equation,
                   const std::vector<Dims>& operands) {
  const auto e = ParseEinsum(equation, operands);
  return e.ok() ? DimsToString(e->DimsOf(e->output))
                : std::string(e.status().message());
}

TEST(EinsumTest, OutputsOfEquations) {
  EXPECT_EQ(Output("bij, bjk -> bik", {{5, 2, 3}, {5, 3, 4}}), "[5,2,4]");
  EXPECT_EQ(Output("bhid,bhjd->bhij", {{2, 3, 4, 5}, {2, 3, 6, 5}}),
            "[2,3,4,6]");
  EXPECT_EQ(Output("bthd,hdm->btm", {{2, 3, 4, 5}, {4, 5, 6}}), "[2,3,6]");
  EXPECT_EQ(Output("ij->ji", {{2, 3}}), "[3,2]");
  EXPECT_EQ(Output("ii->i", {{3, 3}}), "[3]");
  EXPECT_EQ(Output("ij->", {{2, 3}}), "[]");
  EXPECT_EQ(Output("ij,jk", {{2, 3}, {3, 4}}), "[2,4]");
  EXPECT_EQ(Output("ba", {{2, 3}}), "[3,2]");
  EXPECT_EQ(Output("...ij,...jk->...ik", {{7, 5, 2, 3}, {7, 5, 3, 4}}),
            "[7,5,2,4]");
  EXPECT_EQ(Output("...i,i->...", {{7, 5, 2}, {2}}), "[7,5]");
  EXPECT_EQ(Output("i...j", {{2, 7, 3}}), "[7,2,3]");
}

TEST(EinsumTest, WhatIsMalformedIsNamed) {
  EXPECT_EQ(Output("ij,jk->ik", {{2, 3}}),
            "the equation \"ij,jk->ik\" does not fit 1 operands");
  EXPECT_EQ(Output("ij->ik", {{2, 3}}),
            "the equation has 'k' in its output alone");
  EXPECT_EQ(Output("ij->ii", {{2, 3}}),
            "the equation has 'i' twice in its output");
  EXPECT_EQ(Output("ijk->i", {{2, 3}}),
            "the equation has 3 labels for an operand of 2 dimensions");
  EXPECT_EQ(Output("ij,jk->ik", {{2, 3}, {4, 5}}),
            "the equation has one label for dimensions of 3 and 4");
  EXPECT_EQ(Output("i1->i", {{2, 3}}),
            "the equation has '1', which is no label");
  EXPECT_EQ(Output("...ijk->i", {{2, 3}}),
            "the equation has 3 labels beside '...' for an operand of 2 "
            "dimensions");
}

}  // namespace
}  // namespace syncline

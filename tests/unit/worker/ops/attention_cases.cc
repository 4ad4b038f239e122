// Rows of the operator table for attention and what comes with it: products by
// equation, rotary positions, and elements by index.

#include <cmath>

#include "kernels/reference/reference_attention.h"
#include "tests/testing/op_case.h"

namespace syncline::testing {
namespace {

using reference::Dims;

struct AttentionSettings {
  std::vector<Dims> inputs;
  std::map<std::string, Attribute> attributes = {};
  double scale = 0;  // 0: the default
  bool causal = false;
  // Of a mask of bool, for which the reference adds minus much.
  Dims seen_dims = {};
  std::vector<int64_t> seen = {};
  double softcap = 0;
};

OpCase AttentionCase(const AttentionSettings& s) {
  reference::AttentionAttributes a;
  const auto attribute = [&](const char* name) {
    const auto it = s.attributes.find(name);
    return it == s.attributes.end() ? int64_t{0}
                                    : std::get<int64_t>(it->second);
  };
  a.heads = attribute("q_num_heads");
  a.key_heads = attribute("kv_num_heads");
  a.causal = s.causal;
  a.softcap = s.softcap;
  const Dims& q = s.inputs[0];
  const int64_t width = q.size() == 4 ? q[3] : q[2] / a.heads;
  a.scale =
      s.scale != 0 ? s.scale : static_cast<float>(1 / std::sqrt(double(width)));
  OpCase c;
  c.op_type = "Attention";
  c.version = 23;
  c.attributes = s.attributes;
  if (s.causal) c.attributes["is_causal"] = int64_t{1};
  if (s.scale != 0) c.attributes["scale"] = static_cast<float>(s.scale);
  if (s.softcap != 0) c.attributes["softcap"] = static_cast<float>(s.softcap);
  c.inputs = s.inputs;
  const auto with_mask = [=](Inputs in) {
    if (s.seen.empty()) return in;
    DoubleArray mask(s.seen_dims);
    for (size_t i = 0; i < s.seen.size(); ++i) {
      mask.values[i] = s.seen[i] != 0 ? 0 : -1e9;
    }
    in.push_back(mask);
    return in;
  };
  c.forward = [=](const Inputs& in) {
    const Inputs all = with_mask(in);
    return reference::AttentionCase<double>(a, all).Forward();
  };
  c.gradient = [forward = c.forward](const Inputs& in, const DoubleArray& dy) {
    return DifferencesOf(forward, in, dy);
  };
  if (!s.seen.empty()) {
    c.integers = {{3, s.seen_dims, s.seen, DType::kBool}};
  }
  return c;
}

std::map<std::string, Attribute> HeadCounts(int64_t q, int64_t kv) {
  return {{"q_num_heads", q}, {"kv_num_heads", kv}};
}

struct RotarySettings {
  Dims data;
  int64_t heads = 0;
  bool interleaved = false;
  int64_t turned = 0;
  std::vector<int64_t> positions = {};  // none: a table row per sample
};

// The tables are inputs without gradient, so the reference has constants and
// the Op is given the same numbers.
OpCase RotaryCase(const RotarySettings& s) {
  const bool joined = s.data.size() == 3;
  const int64_t batch = s.data[0];
  const int64_t length = joined ? s.data[1] : s.data[2];
  const int64_t heads = joined ? s.heads : s.data[1];
  const int64_t width = joined ? s.data[2] / s.heads : s.data[3];
  const int64_t pairs = (s.turned == 0 ? width : s.turned) / 2;
  const Dims table =
      s.positions.empty() ? Dims{batch, length, pairs} : Dims{5, pairs};
  std::vector<float> cosines, sines;
  for (int64_t i = 0; i < reference::Product(table); ++i) {
    cosines.push_back(std::cos(0.3f * i));
    sines.push_back(std::sin(0.3f * i));
  }
  const reference::HeadDims layout(s.data, s.heads);
  Terms terms;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t r = 0; r < length; ++r) {
        const int64_t row = (s.positions.empty() ? b * length + r
                                                 : s.positions[b * length + r]);
        for (int64_t p = 0; p < pairs; ++p) {
          const int64_t i = layout.At(b, h, r, s.interleaved ? 2 * p : p);
          const int64_t j =
              layout.At(b, h, r, s.interleaved ? 2 * p + 1 : p + pairs);
          const double cosine = cosines[row * pairs + p];
          const double sine = sines[row * pairs + p];
          terms.push_back({i, 0, i, cosine});
          terms.push_back({i, 0, j, -sine});
          terms.push_back({j, 0, i, sine});
          terms.push_back({j, 0, j, cosine});
        }
        for (int64_t k = 2 * pairs; k < width; ++k) {
          const int64_t at = layout.At(b, h, r, k);
          terms.push_back({at, 0, at});
        }
      }
    }
  }
  std::map<std::string, Attribute> attributes = {
      {"interleaved", int64_t{s.interleaved}},
      {"rotary_embedding_dim", s.turned}};
  if (joined) attributes["num_heads"] = s.heads;
  OpCase c = LinearCase("RotaryEmbedding", 23, attributes, {s.data}, {}, terms,
                        s.data);
  c.fixed = {{1, table, cosines}, {2, table, sines}};
  if (!s.positions.empty()) {
    c.integers = {{3, {batch, length}, s.positions}};
  }
  return c;
}

OpCase CumSumCase(Dims data, int64_t axis, bool exclusive, bool reverse) {
  const size_t at = axis < 0 ? axis + data.size() : axis;
  Terms terms;
  for (int64_t o = 0; o < reference::Product(data); ++o) {
    Dims index = reference::IndexOf(o, data);
    const int64_t own = index[at];
    for (int64_t k = 0; k < data[at]; ++k) {
      const bool part = k == own ? !exclusive : (k < own) != reverse;
      index[at] = k;
      if (part) terms.push_back({o, 0, reference::FlatOf(index, data)});
    }
  }
  return LinearCase(
      "CumSum", 14,
      {{"exclusive", int64_t{exclusive}}, {"reverse", int64_t{reverse}}},
      {data}, {{1, {}, {axis}}}, terms, data);
}

OpCase GatherElementsCase(Dims data, int64_t axis, Dims out,
                          std::vector<int64_t> indices,
                          DType dtype = DType::kInt64) {
  const size_t along = axis < 0 ? axis + data.size() : axis;
  Terms terms;
  for (int64_t o = 0; o < reference::Product(out); ++o) {
    Dims at = reference::IndexOf(o, out);
    at[along] = indices[o] < 0 ? indices[o] + data[along] : indices[o];
    terms.push_back({o, 0, reference::FlatOf(at, data)});
  }
  return LinearCase("GatherElements", 13, {{"axis", axis}}, {data},
                    {{1, out, indices, dtype}}, terms, out);
}

OpCase GatherNdCase(Dims data, int64_t batch, Dims index_dims,
                    std::vector<int64_t> indices) {
  const int64_t width = index_dims.back();
  Dims out(index_dims.begin(), index_dims.end() - 1);
  out.insert(out.end(), data.begin() + batch + width, data.end());
  Terms terms;
  for (int64_t o = 0; o < reference::Product(out); ++o) {
    const Dims at = reference::IndexOf(o, out);
    const size_t places = index_dims.size() - 1;
    const Dims place(at.begin(), at.begin() + places);
    Dims from(at.begin(), at.begin() + batch);
    const Dims outer(index_dims.begin(), index_dims.end() - 1);
    const int64_t first = reference::FlatOf(place, outer) * width;
    for (int64_t d = 0; d < width; ++d) {
      const int64_t k = indices[first + d];
      from.push_back(k < 0 ? k + data[batch + d] : k);
    }
    from.insert(from.end(), at.begin() + places, at.end());
    terms.push_back({o, 0, reference::FlatOf(from, data)});
  }
  return LinearCase("GatherND", 13, {{"batch_dims", batch}}, {data},
                    {{1, index_dims, indices}}, terms, out);
}

// Terms of a sum over all labels: result, first operand, second.
struct Product {
  int64_t y, a, b;
};

std::vector<Product> ProductsOf(const std::vector<std::string>& labels,
                                const std::map<char, int64_t>& sizes) {
  Dims all;
  for (const auto& [c, size] : sizes) all.push_back(size);
  std::vector<Product> products;
  for (int64_t i = 0; i < reference::Product(all); ++i) {
    const Dims index = reference::IndexOf(i, all);
    std::map<char, int64_t> at;
    size_t d = 0;
    for (const auto& [c, size] : sizes) at[c] = index[d++];
    const auto offset = [&](const std::string& term) {
      int64_t flat = 0;
      for (const char c : term) flat = flat * sizes.at(c) + at[c];
      return flat;
    };
    products.push_back({offset(labels[0]), offset(labels[1]),
                        labels.size() > 2 ? offset(labels[2]) : 0});
  }
  return products;
}

// labels: of the result, then of the operands.
OpCase EinsumCase(std::string equation, std::vector<std::string> labels,
                  std::map<char, int64_t> sizes) {
  const auto dims_of = [&](const std::string& term) {
    Dims dims;
    for (const char c : term) dims.push_back(sizes[c]);
    return dims;
  };
  const Dims out = dims_of(labels[0]);
  const auto products = ProductsOf(labels, sizes);
  OpCase c;
  c.op_type = "Einsum";
  c.version = 12;
  c.attributes = {{"equation", equation}};
  for (size_t i = 1; i < labels.size(); ++i) {
    c.inputs.push_back(dims_of(labels[i]));
  }
  c.forward = [=](const Inputs& in) {
    DoubleArray y(out);
    for (const Product& p : products) {
      y.values[p.y] +=
          in[0].values[p.a] * (in.size() > 1 ? in[1].values[p.b] : 1);
    }
    return y;
  };
  c.gradient = [=](const Inputs& in, const DoubleArray& dy) {
    Gradients d;
    for (const DoubleArray& x : in) d.emplace_back(x.dims);
    for (const Product& p : products) {
      const double up = dy.values[p.y];
      d[0].values[p.a] += up * (in.size() > 1 ? in[1].values[p.b] : 1);
      if (in.size() > 1) d[1].values[p.b] += up * in[0].values[p.a];
    }
    return d;
  };
  return c;
}

}  // namespace

std::vector<OpCase> AttentionCases() {
  const std::map<char, int64_t> sizes = {
      {'b', 2}, {'d', 3}, {'h', 2}, {'i', 4}, {'j', 5}};
  const std::map<char, int64_t> matrix = {{'i', 3}, {'j', 2}, {'k', 4}};
  return {
      EinsumCase("bhid,bhjd->bhij", {"bhij", "bhid", "bhjd"}, sizes),
      EinsumCase("bihd,bjhd->bhij", {"bhij", "bihd", "bjhd"}, sizes),
      EinsumCase("bhij, bhjd -> bihd", {"bihd", "bhij", "bhjd"}, sizes),
      EinsumCase("...id,...jd", {"bhij", "bhid", "bhjd"}, sizes),
      EinsumCase("ij,jk->ik", {"ik", "ij", "jk"}, matrix),
      EinsumCase("ji,jk->ki", {"ki", "ji", "jk"}, matrix),
      EinsumCase("i,i->", {"", "i", "i"}, {{'i', 5}}),
      EinsumCase("i,j->ij", {"ij", "i", "j"}, {{'i', 3}, {'j', 2}}),
      EinsumCase("ij,k->i", {"i", "ij", "k"}, matrix),
      EinsumCase("ij->ji", {"ji", "ij"}, {{'i', 3}, {'j', 2}}),
      EinsumCase("ii->i", {"i", "ii"}, {{'i', 3}}),
      EinsumCase("ij->", {"", "ij"}, {{'i', 3}, {'j', 2}}),
      AttentionCase({{{2, 2, 3, 4}, {2, 2, 5, 4}, {2, 2, 5, 3}}}),
      AttentionCase({{{2, 3, 8}, {2, 5, 8}, {2, 5, 6}}, HeadCounts(2, 2)}),
      AttentionCase({{{1, 3, 8}, {1, 3, 8}, {1, 3, 8}},
                     HeadCounts(2, 2),
                     0.7,
                     /*causal=*/true}),
      AttentionCase({{{1, 4, 3, 2}, {1, 2, 4, 2}, {1, 2, 4, 2}},
                     {},
                     0,
                     /*causal=*/true}),
      AttentionCase({{{2, 2, 8}, {2, 3, 4}, {2, 3, 6}}, HeadCounts(4, 2)}),
      AttentionCase({{{2, 2, 3, 2}, {2, 2, 4, 2}, {2, 2, 4, 2}, {3, 4}}}),
      AttentionCase({{{2, 2, 2, 2}, {2, 2, 2, 2}, {2, 2, 2, 2}, {2, 1, 1, 2}},
                     {},
                     0,
                     /*causal=*/true}),
      AttentionCase({{{1, 2, 2, 2}, {1, 2, 3, 2}, {1, 2, 3, 2}},
                     {},
                     0,
                     false,
                     {2, 3},
                     {1, 0, 1, 0, 1, 1}}),
      // A query that sees nothing.
      AttentionCase({{{1, 2, 2, 2}, {1, 2, 3, 2}, {1, 2, 3, 2}},
                     {},
                     0,
                     false,
                     {2, 3},
                     {0, 0, 0, 0, 1, 1}}),
      AttentionCase({.inputs = {{2, 4, 3, 4}, {2, 2, 5, 4}, {2, 2, 5, 3}},
                     .softcap = 0.8}),
      // A mask that ends before the keys do; past keys behind each layout.
      AttentionCase({{{2, 2, 3, 2}, {2, 2, 4, 2}, {2, 2, 4, 2}, {3, 3}}}),
      AttentionCase({.inputs = {{1, 2, 2, 2},
                                {1, 1, 1, 2},
                                {1, 1, 1, 1},
                                {2, 1, 1},
                                {1, 1, 2, 2},
                                {1, 1, 2, 1}},
                     .causal = true,
                     .softcap = 0.9}),
      AttentionCase({.inputs = {{1, 2, 4},
                                {1, 1, 2},
                                {1, 1, 2},
                                {2, 2},
                                {1, 1, 2, 2},
                                {1, 1, 2, 2}},
                     .attributes = HeadCounts(2, 1)}),
      // Sequences that are long for their width: weights are computed again.
      AttentionCase({{{1, 4, 9, 1}, {1, 2, 12, 1}, {1, 2, 12, 1}, {9, 12}}}),
      AttentionCase({.inputs = {{1, 2, 9, 1}, {1, 2, 9, 1}, {1, 2, 9, 1}},
                     .softcap = 0.8}),
      AttentionCase({{{2, 12, 1}, {2, 9, 1}, {2, 9, 1}},
                     HeadCounts(1, 1),
                     0.7,
                     /*causal=*/true,
                     {9},
                     {1, 1, 0, 1, 0, 1, 1, 1, 0}}),
      RotaryCase({{2, 2, 3, 4}}),
      RotaryCase({{2, 3, 8}, 2, /*interleaved=*/true}),
      RotaryCase({{2, 3, 8}, 2, false, 0, {0, 1, 2, 4, 0, 3}}),
      RotaryCase({{1, 2, 2, 6}, 0, true, 4, {3, 1}}),
      CumSumCase({3, 4}, 0, false, false),
      CumSumCase({3, 4}, 1, true, false),
      CumSumCase({2, 3, 2}, -2, false, true),
      CumSumCase({5}, 0, true, true),
      GatherElementsCase({3, 3}, 0, {2, 3}, {1, 2, 0, 2, 0, 0}),
      GatherElementsCase({3, 4}, 1, {3, 2}, {1, 1, -1, 0, 3, 2}),
      GatherElementsCase({2, 3, 2}, -2, {1, 4, 2}, {0, 1, 2, 2, 0, 0, 1, 1},
                         DType::kInt32),
      GatherNdCase({2, 3}, 0, {2, 2}, {0, 1, 1, -1}),
      GatherNdCase({2, 3, 2}, 0, {2, 1, 1}, {1, 1}),
      GatherNdCase({2, 3, 2}, 1, {2, 2, 1}, {0, 2, 1, 1}),
  };
}

}  // namespace syncline::testing

#include "scheduler/ctl/criteo_generator.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/portable_math.h"

namespace syncline::ctl {
namespace {

// Streams of random numbers that must not meet.
constexpr uint64_t kLineStream = 0x6c696e65;     // "line"
constexpr uint64_t kValueStream = 0x76616c7565;  // "value"
constexpr uint64_t kWeightStream = 0x776569;     // "wei"

constexpr double kVocabularyRatio = 0.6;
constexpr double kMissingCategory = 0.15;
constexpr double kMissingInteger = 0.25;

// Largest weights. Uniform weights up to w have a deviation of w / sqrt(3).
constexpr double kBias = -1.2;
constexpr double kIntegerWeight = 0.55;
constexpr double kFirstColumnWeight = 0.1;
constexpr double kColumnWeightStep = 0.02;  // more for each column after it
constexpr double kPairWeight = 0.4;
constexpr int kHiddenSize = 4;
constexpr int kPairs[][2] = {{18, 24}, {19, 23}, {20, 22}, {21, 25}};

double Power(double base, double exponent) {
  return PortableExp(exponent * PortableLog(base));
}

// A permutation of 32 bits. Source: Appleby, MurmurHash3's finaliser.
uint32_t Mix32(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

// Eight digits, as in Criteo's files.
void AppendHex(uint32_t value, std::string* text) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (int shift = 28; shift >= 0; shift -= 4) {
    text->push_back(kDigits[value >> shift & 15]);
  }
}

// About normal, with deviation 1.
double Bell(Random* random) {
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += random->Uniform();
  return (sum - 2) * 1.7320508075688772;
}

}  // namespace

ZipfDistribution::ZipfDistribution(uint64_t size, double exponent)
    : size_(static_cast<double>(size)), exponent_(exponent) {
  h_begin_ = H(1.5) - 1;
  h_end_ = H(size_ + 0.5);
  squeeze_ = 2 - HInverse(H(2.5) - Power(2, -exponent));
}

// (x^(1-e) - 1) / (1 - e), whose limit at e = 1 is log x.
double ZipfDistribution::H(double x) const {
  const double log = PortableLog(x);
  const double t = (1 - exponent_) * log;
  if (std::fabs(t) < 1e-8) return log * (1 + t / 2);
  return (PortableExp(t) - 1) / (1 - exponent_);
}

double ZipfDistribution::HInverse(double y) const {
  const double t = (1 - exponent_) * y;
  if (std::fabs(t) < 1e-8) return PortableExp(y * (1 - t / 2));
  return PortableExp(PortableLog(1 + t) / (1 - exponent_));
}

uint64_t ZipfDistribution::Draw(Random* random) const {
  while (true) {
    const double u = h_end_ + random->Uniform() * (h_begin_ - h_end_);
    const double x = HInverse(u);
    const double k = std::clamp(std::floor(x + 0.5), 1.0, size_);
    if (k - x <= squeeze_ || u >= H(k + 0.5) - Power(k, -exponent_)) {
      return static_cast<uint64_t>(k);
    }
  }
}

CriteoGenerator::CriteoGenerator(const Options& options) : seed_(options.seed) {
  double share = (1 - kVocabularyRatio) * options.vocabulary;
  for (int column = 0; column < kCategories; ++column) {
    const double size = std::clamp(std::floor(share), 4.0, 4294967295.0);
    columns_.emplace_back(static_cast<uint64_t>(size), options.zipf);
    share *= kVocabularyRatio;
  }
}

CriteoGenerator::Drawn CriteoGenerator::Draw(uint64_t number,
                                             std::string* text) const {
  Random random(SeedFor(SeedFor(seed_, kLineStream), number));
  const Integers integers = DrawIntegers(&random);
  const Categories categories = DrawCategories(&random);
  Drawn drawn;
  drawn.logit = Logit(integers, categories);
  drawn.label = random.Uniform() < 1 / (1 + PortableExp(-drawn.logit));
  text->push_back(drawn.label ? '1' : '0');
  for (const uint64_t value : integers) {
    text->push_back('\t');
    if (value != kMissing) absl::StrAppend(text, value);
  }
  for (const uint64_t value : categories) {
    text->push_back('\t');
    if (value != kMissing) AppendHex(static_cast<uint32_t>(value), text);
  }
  text->push_back('\n');
  return drawn;
}

// Counts, with a long tail.
CriteoGenerator::Integers CriteoGenerator::DrawIntegers(Random* random) const {
  Integers integers;
  for (int i = 0; i < kIntegers; ++i) {
    const double middle = 0.5 + 0.25 * i;
    const double value = PortableExp(middle + 1.2 * Bell(random)) - 0.5;
    const bool missing = i % 3 == 2 && random->Uniform() < kMissingInteger;
    integers[i] =
        missing ? kMissing : static_cast<uint64_t>(std::max(value, 0.0));
  }
  return integers;
}

CriteoGenerator::Categories CriteoGenerator::DrawCategories(
    Random* random) const {
  Categories categories;
  for (int column = 0; column < kCategories; ++column) {
    const uint64_t rank = columns_[column].Draw(random);
    const bool missing =
        column % 4 == 3 && random->Uniform() < kMissingCategory;
    const uint64_t salt = SeedFor(SeedFor(seed_, kValueStream), column);
    categories[column] =
        missing ? kMissing : Mix32(static_cast<uint32_t>(rank + salt));
  }
  return categories;
}

double CriteoGenerator::Weight(int column, uint64_t value,
                               uint64_t stream) const {
  const uint64_t key = static_cast<uint64_t>(column) << 33 |
                       (value == kMissing ? uint64_t{1} << 32 : value);
  const uint64_t bits =
      Mix64(SeedFor(SeedFor(seed_, kWeightStream + stream), key));
  return static_cast<double>(bits >> 11) * 0x1.0p-52 - 1;
}

double CriteoGenerator::Logit(const Integers& integers,
                              const Categories& categories) const {
  double logit = kBias;
  for (int i = 0; i < kIntegers; ++i) {
    const double value = integers[i] == kMissing ? 0 : integers[i];
    const double middle = 0.7 + 0.22 * i;  // of log(1 + value), about
    logit += kIntegerWeight * Weight(kCategories + i, 0, 0) *
             (PortableLog(1 + value) - middle);
  }
  for (int c = 0; c < kCategories; ++c) {
    const double largest = kFirstColumnWeight + c * kColumnWeightStep;
    logit += largest * Weight(c, categories[c], 0);
  }
  for (const auto& [a, b] : kPairs) {
    for (int i = 0; i < kHiddenSize; ++i) {
      logit += kPairWeight * Weight(a, categories[a], 1 + i) *
               Weight(b, categories[b], 1 + i);
    }
  }
  return logit;
}

}  // namespace syncline::ctl

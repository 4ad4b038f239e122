#ifndef SYNCLINE_SCHEDULER_CTL_CRITEO_GENERATOR_H_
#define SYNCLINE_SCHEDULER_CTL_CRITEO_GENERATOR_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/random.h"

namespace syncline::ctl {

// Integers in [1, size], k as often as 1 / k^exponent. Takes constant time and
// no memory per value. Immutable.
// Source: Hörmann and Derflinger, "Rejection-inversion to generate variates
// from monotone discrete distributions", TOMACS 6(3), 1996.
class ZipfDistribution {
 public:
  // size >= 1, exponent > 0.
  ZipfDistribution(uint64_t size, double exponent);
  uint64_t Draw(Random* random) const;

 private:
  double H(double x) const;         // integral of 1 / x^exponent
  double HInverse(double y) const;  // its inverse

  double size_;
  double exponent_;
  double h_begin_;
  double h_end_;
  double squeeze_;
};

// Draws lines of click logs in Criteo's format (CriteoSource in
// job_spec.proto): 13 integers, 26 categories with Zipf's frequencies, and a
// label that a hidden teacher draws from them. A pure function of the options
// and the line's number, the same bytes on every machine, and lines can be
// drawn in any order: lines [0, n) and [n, n + m) are a training and a test set
// of one teacher.
//
// The vocabulary is shared out as in real logs: column 0 has two fifths of it,
// each column after it three fifths of the one before. Every fourth column and
// every third integer is missing now and then.
//
// The teacher's logit is a bias, a weight times log(1 + x) of each integer, a
// weight per (column, value), a missing value being one, and inner products of
// hidden vectors of a few pairs of columns; all of them functions of (seed,
// column, value). Large columns weigh less than small ones. So values that are
// seen only a few times, whose weights cannot be learned, are a small part of
// the logit.
//
// Immutable, hence thread-safe.
class CriteoGenerator {
 public:
  static constexpr int kIntegers = 13;
  static constexpr int kCategories = 26;

  struct Options {
    uint64_t seed = 0;
    uint64_t vocabulary = 10'000'000;  // values over all columns; at least 260
    double zipf = 1.05;                // exponent, > 0
  };
  explicit CriteoGenerator(const Options& options);

  struct Drawn {
    double logit = 0;  // the teacher's
    bool label = false;
  };
  // Appends line `number` with its \n to *text. About 5 us.
  Drawn Draw(uint64_t number, std::string* text) const;

 private:
  static constexpr uint64_t kMissing = ~0ull;
  using Integers = std::array<uint64_t, kIntegers>;
  using Categories = std::array<uint64_t, kCategories>;  // 32-bit values

  Integers DrawIntegers(Random* random) const;
  Categories DrawCategories(Random* random) const;
  double Logit(const Integers& integers, const Categories& categories) const;
  // Uniform in [-1, 1), of a value of a column; `stream` tells its weights
  // apart.
  double Weight(int column, uint64_t value, uint64_t stream) const;

  uint64_t seed_;
  std::vector<ZipfDistribution> columns_;
};

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_CRITEO_GENERATOR_H_

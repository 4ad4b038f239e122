#include "kernels/optimizer/learning_rate.h"

#include <algorithm>
#include <cmath>

namespace syncline {
namespace {

constexpr double kPi = 3.14159265358979323846;

// How far t has come on the way from `begin` to `end`, in [0, 1].
double Fraction(int64_t t, int64_t begin, int64_t end) {
  if (t >= end) return 1;
  if (t <= begin) return 0;
  return static_cast<double>(t - begin) / static_cast<double>(end - begin);
}

double Linear(double from, double to, double fraction) {
  return fraction >= 1 ? to : from + (to - from) * fraction;
}

double Cosine(double from, double to, double fraction) {
  return fraction >= 1 ? to
                       : to + (from - to) * (1 + std::cos(kPi * fraction)) / 2;
}

double Exponential(double from, double to, double fraction) {
  return fraction >= 1 ? to : from * std::pow(to / from, fraction);
}

}  // namespace

double LearningRate::At(int64_t t) const {
  const bool warming_up = t < warmup_clocks;
  const double warmup = Linear(start, base, Fraction(t, 0, warmup_clocks));
  switch (schedule) {
    case Schedule::kConstant:
      return base;
    case Schedule::kStep: {
      const int64_t steps = t / step_clocks;
      return base * std::pow(gamma, static_cast<double>(steps));
    }
    case Schedule::kCosine:
      return Cosine(base, final, Fraction(t, 0, total_clocks));
    case Schedule::kLinearWarmup:
      return warming_up ? warmup : base;
    case Schedule::kWarmupLinearDecay:
      if (warming_up) return warmup;
      return Linear(base, final, Fraction(t, warmup_clocks, total_clocks));
    case Schedule::kOneCycle:
      if (warming_up) return warmup;
      return Cosine(base, final, Fraction(t, warmup_clocks, total_clocks));
    case Schedule::kRangeTest:
      return Exponential(start, base, Fraction(t, 0, total_clocks));
  }
  return base;
}

}  // namespace syncline

#ifndef SYNCLINE_COMMON_BASE_PORTABLE_MATH_H_
#define SYNCLINE_COMMON_BASE_PORTABLE_MATH_H_

// Functions whose results are the same bits on every machine, which those of
// the C library are not: integers and single IEEE operations only (and no fused
// ones: -ffp-contract=off). For generated data.

namespace syncline {

// Natural logarithm of a normal x > 0, within 4e-16 of it relatively (near 1,
// absolutely).
double PortableLog(double x);

// e^x, within 1e-15 relatively; 0 below -700, infinite above 709.
double PortableExp(double x);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_PORTABLE_MATH_H_

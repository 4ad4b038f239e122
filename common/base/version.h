#ifndef SYNCLINE_COMMON_BASE_VERSION_H_
#define SYNCLINE_COMMON_BASE_VERSION_H_

namespace syncline {

// Of every binary, as in CMakeLists.txt's project(). Members of one cluster
// must agree in its first two numbers.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_VERSION_H_

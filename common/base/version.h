#ifndef SYNCLINE_COMMON_BASE_VERSION_H_
#define SYNCLINE_COMMON_BASE_VERSION_H_

namespace syncline {

// The version of every binary. Members of one cluster must agree in its first
// two numbers. This is the one place where it stands: CMakeLists.txt reads it
// here, and tests/lint/documents.py holds CHANGELOG.md against it.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_VERSION_H_

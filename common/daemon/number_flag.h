#ifndef SYNCLINE_COMMON_DAEMON_NUMBER_FLAG_H_
#define SYNCLINE_COMMON_DAEMON_NUMBER_FLAG_H_

#include <cmath>
#include <cstdlib>
#include <string>

namespace syncline {

// The check of every flag that is a real number, beside its range: "nan" is
// neither below nor above a range. Returns what is wrong, or "".
inline std::string RefuseNaN(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr))
             ? "Value " + text + " is not a number"
             : "";
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_DAEMON_NUMBER_FLAG_H_

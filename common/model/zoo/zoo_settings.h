#ifndef SYNCLINE_COMMON_MODEL_ZOO_ZOO_SETTINGS_H_
#define SYNCLINE_COMMON_MODEL_ZOO_ZOO_SETTINGS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace syncline {

// The settings that a person gave for a model, as key and text. A model asks
// for each of its settings once. Problems are collected. Thread-compatible.
class ZooSettings {
 public:
  explicit ZooSettings(std::map<std::string, std::string> given);

  // The number given for `key`, or the fallback; where it is not one from
  // `least` to `most`, a problem, and the fallback.
  int64_t Int(absl::string_view key, int64_t fallback, int64_t least,
              int64_t most);
  // Likewise several, "1024,1024".
  std::vector<int64_t> Ints(absl::string_view key,
                            const std::vector<int64_t>& fallback, int64_t least,
                            int64_t most);
  // Likewise a number that need not be whole.
  float Float(absl::string_view key, float fallback, float least, float most);
  // Likewise one of these words; the first is the fallback.
  std::string Choice(absl::string_view key,
                     const std::vector<std::string>& words);
  // "fixed" or "symbolic": whether the model takes sequences of any length.
  bool SymbolicSequence() {
    return Choice("sequence", {"fixed", "symbolic"}) == "symbolic";
  }
  // A problem of settings that do not go together.
  void Problem(absl::string_view problem) { problems_.emplace_back(problem); }

  // After everything was asked for. Errors: InvalidArgument: all problems,
  // among them keys that the model does not have, and the keys that it has.
  absl::Status Check() const;

 private:
  const std::string* Take(absl::string_view key, const std::string& fallback);

  std::map<std::string, std::string> given_;  // not asked for yet
  std::string taken_;
  std::vector<std::string> known_;
  std::vector<std::string> problems_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_ZOO_ZOO_SETTINGS_H_

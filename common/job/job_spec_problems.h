#ifndef SYNCLINE_COMMON_JOB_JOB_SPEC_PROBLEMS_H_
#define SYNCLINE_COMMON_JOB_JOB_SPEC_PROBLEMS_H_

// How the parts of the job specification's validator say what is wrong. Not for
// other readers.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// Collects "path: message".
class Problems {
 public:
  explicit Problems(std::vector<std::string>* list) : list_(list) {}

  template <typename... Parts>
  void Add(absl::string_view path, const Parts&... message) {
    list_->push_back(absl::StrCat(path, ": ", message...));
  }
  // Values above `max`; all such fields take 0 as "the default".
  void AtMost(absl::string_view path, uint64_t value, uint64_t max) {
    if (value > max) Add(path, value, " is too large, at most ", max);
  }
  void NotNegative(absl::string_view path, double value) {
    if (value < 0) Add(path, value, " is negative, must be >= 0");
  }
  void Positive(absl::string_view path, double value) {
    if (!(value > 0)) Add(path, value, " must be > 0");
  }
  void UnitInterval(absl::string_view path, double value) {
    if (!(value >= 0 && value < 1)) Add(path, value, " is outside [0, 1)");
  }
  void Seconds(absl::string_view path, double value) {
    NotNegative(path, value);
    if (value > 1e9) Add(path, value, " is too large, at most 1e+09");
  }
  void NotEmpty(absl::string_view path, absl::string_view value) {
    if (value.empty()) Add(path, "is required");
  }
  size_t size() const { return list_->size(); }

 private:
  std::vector<std::string>* const list_;
};

inline std::string Indexed(absl::string_view path, int index) {
  return absl::StrCat(path, "[", index, "]");
}

inline std::string QuoteText(absl::string_view text) {
  return absl::StrCat("'", absl::Utf8SafeCHexEscape(text), "'");
}

// "kind: LAMB is not built yet; use SGD".
template <typename Enum>
void NotBuilt(absl::string_view path, Enum value, absl::string_view instead,
              Problems* problems) {
  const auto* name =
      google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(value);
  if (name == nullptr) return;  // reported by CheckFieldValues
  problems->Add(path, name->name(), " is not built yet; use ", instead);
}

// The fields of an optimizer of this kind against their ranges, for `path`
// below the job. Says nothing about which kinds are possible there.
void CheckOptimizerFields(const std::string& path,
                          const OptimizerSpec& optimizer, Problems* problems);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_JOB_SPEC_PROBLEMS_H_

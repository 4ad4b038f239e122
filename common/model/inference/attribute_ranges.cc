#include "common/model/inference/attribute_ranges.h"

#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace syncline {
namespace {

constexpr int64_t kIntMax = std::numeric_limits<int32_t>::max();
// More dimensions than any tensor has.
constexpr int64_t kAxisMax = 1024;

struct Range {
  absl::string_view attribute;
  int64_t min;
  int64_t max;
};

// Lists of numbers, one for each axis.
constexpr Range kLists[] = {
    {"dilations", 1, kIntMax},
    {"kernel_shape", 1, kIntMax},
    {"pads", -kIntMax, kIntMax},
    {"strides", 1, kIntMax},
};
constexpr Range kNumbers[] = {
    {"axis", -kAxisMax, kAxisMax},
    {"group", 1, kIntMax},
};

absl::Status Check(const Range& range, int64_t value) {
  if (value >= range.min && value <= range.max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("attribute ", range.attribute,
                                                 " has ", value, ", must be ",
                                                 range.min, " to ", range.max));
}

}  // namespace

absl::Status CheckAttributeRanges(const Node& node) {
  for (const Range& range : kLists) {
    for (const int64_t value : node.Ints(range.attribute)) {
      const absl::Status checked = Check(range, value);
      if (!checked.ok()) return checked;
    }
  }
  for (const Range& range : kNumbers) {
    const absl::Status checked =
        Check(range, node.Int(range.attribute, /*fallback=*/1));
    if (!checked.ok()) return checked;
  }
  return absl::OkStatus();
}

}  // namespace syncline

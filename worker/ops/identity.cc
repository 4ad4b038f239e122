#include "worker/ops/view.h"

namespace syncline {

absl::StatusOr<std::unique_ptr<Op>> MakeIdentity(const OpSpec& spec) {
  return MakeView(spec);
}

}  // namespace syncline

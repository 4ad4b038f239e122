#include "worker/ops/view.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeReshape(const OpSpec& spec) {
  return MakeView(spec);
}

}  // namespace syncline::worker

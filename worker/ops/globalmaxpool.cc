#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/ops/maxpool.h"
#include "worker/ops/window.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeGlobalMaxPool(const OpSpec& spec) {
  const Dims& x = spec.input(0).dims;
  if (x.size() < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 is ", DimsToString(x),
                     "; it must have at least one spatial dimension"));
  }
  const int64_t plane = ElementCount({x.data() + 2, x.size() - 2});
  Window window = {{{.in = plane, .kernel = plane}}};
  AddChannelAxis(spec, &window);
  return MakeMaxPoolOver(spec, std::move(window));
}

}  // namespace syncline::worker

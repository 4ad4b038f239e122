// Goal: no ONNX file, binary or text, whatever its bytes, crashes a process
// that reads it; what is accepted can be shaped, exported and read again.
// Method: parse with and without declared parameters, then do all that.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/model/model.h"

namespace {

void Exercise(const syncline::Model& model) {
  using syncline::Initializer;
  for (int64_t batch : {syncline::Model::kAsWritten, int64_t{1}, int64_t{32}}) {
    const auto shapes = model.InferShapes(batch);
    if (!shapes.ok()) continue;
    SYNCLINE_CHECK(shapes->size() == model.graph().values.size());
  }
  absl::flat_hash_map<std::string, absl::Span<const float>> weights;
  std::vector<float> zeros;
  for (const Initializer& initializer : model.graph().initializers) {
    if (initializer.origin != Initializer::Origin::kDeclared) continue;
    const int64_t count = syncline::ElementCount(initializer.tensor.dims);
    if (count > 1 << 16) return;  // not worth the memory here
    zeros.resize(std::max<size_t>(zeros.size(), count));
  }
  for (const Initializer& initializer : model.graph().initializers) {
    if (initializer.origin != Initializer::Origin::kDeclared) continue;
    weights[model.graph().values[initializer.value].name] =
        absl::MakeConstSpan(zeros).subspan(
            0, syncline::ElementCount(initializer.tensor.dims));
  }
  const auto bytes = model.WithWeights(weights);
  SYNCLINE_CHECK(bytes.ok());
  SYNCLINE_CHECK(syncline::Model::Parse(*bytes, "exported").ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const std::vector<std::string>& rules :
       {std::vector<std::string>{}, std::vector<std::string>{"w*", "b?"}}) {
    const auto model = syncline::Model::Parse(bytes, "fuzz", rules);
    if (model.ok()) Exercise(**model);
  }
  return 0;
}

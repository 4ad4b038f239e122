#include "common/model/zoo/zoo.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/zoo/zoo_models.h"

namespace syncline {
namespace {

struct Writer {
  ZooEntry entry;
  ZooModel* write;
};

constexpr Writer kModels[] = {
    {{"mlp", "perceptron: float[N,inputs] to classes"}, WriteMlp},
    {{"lenet", "convolutional network for 28x28 images of one channel"},
     WriteLenet},
    {{"resnet18", "residual network of basic blocks, for images"},
     WriteResnet18},
    {{"resnet50", "residual network of bottlenecks, for images"},
     WriteResnet50},
    {{"gpt", "decoder: tokens to the logits of what follows each"}, WriteGpt},
    {{"bert", "encoder: tokens to classes, or to logits of each token"},
     WriteBert},
    {{"wide-and-deep", "numbers and categories to the logit of a click"},
     WriteWideAndDeep},
    {{"deepfm", "the same with products of all pairs of embeddings, added up"},
     WriteDeepFm},
    {{"dlrm", "the same with these products each, into a perceptron"},
     WriteDlrm},
    {{"lstm", "recurrent: tokens to the logits of what follows each"},
     WriteLstm},
};

}  // namespace

std::vector<ZooEntry> ZooModels() {
  std::vector<ZooEntry> entries;
  for (const Writer& model : kModels) entries.push_back(model.entry);
  return entries;
}

absl::StatusOr<std::string> WriteZooModel(
    absl::string_view name,
    const std::map<std::string, std::string>& settings) {
  for (const Writer& model : kModels) {
    if (model.entry.name != name) continue;
    ZooSettings given(settings);
    auto file = model.write(given);
    if (!absl::IsOutOfRange(file.status())) return file;
    return absl::InvalidArgumentError(absl::StrCat(
        name, " with ", absl::StrJoin(settings, ", ", absl::PairFormatter("=")),
        ": ", file.status().message()));
  }
  const auto append = [](std::string* out, const ZooEntry& entry) {
    absl::StrAppend(out, entry.name);
  };
  return absl::NotFoundError(
      absl::StrCat("there is no model '", name, "'; there is ",
                   absl::StrJoin(ZooModels(), ", ", append)));
}

}  // namespace syncline

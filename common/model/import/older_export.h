#ifndef SYNCLINE_COMMON_MODEL_IMPORT_OLDER_EXPORT_H_
#define SYNCLINE_COMMON_MODEL_IMPORT_OLDER_EXPORT_H_

#include <string>
#include <vector>

namespace onnx {
class ModelProto;
}  // namespace onnx

namespace syncline {

// PyTorch's older exporter (dynamo=False), which writes nothing down beside the
// graph. From a model in inference mode, its default, it merges parameters of
// equal values, and folds others into new ones; what it did shows in the names.

// Gives merged parameters initializers of their own again. The exporter leaves
// an Identity node in the place of each: of the one that it kept, with the name
// of the one that it dropped. Parameters that the model itself ties have one
// name and no such node. Other files are not changed. Appends a problem if they
// would take too much memory.
void PartMergedParameters(onnx::ModelProto* file,
                          std::vector<std::string>* problems);

// One line for each kind of parameter that is not in the file as the model has
// it: weights that the exporter computed from others, as when it folds
// BatchNormalization into a convolution; weights that it computed and then
// merged; the transpose of a weight that the model has in two places; and
// weights of recurrent layers that it wrote twice. Such
// files do not train as the original does. REQUIRES: `file` still has the
// content of its initializers.
std::vector<std::string> FindFoldedParameters(const onnx::ModelProto& file);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_IMPORT_OLDER_EXPORT_H_

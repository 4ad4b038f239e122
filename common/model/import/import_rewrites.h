#ifndef SYNCLINE_COMMON_MODEL_IMPORT_IMPORT_REWRITES_H_
#define SYNCLINE_COMMON_MODEL_IMPORT_IMPORT_REWRITES_H_

#include <memory>
#include <string>
#include <vector>

#include "common/model/import/float64_rewrite.h"

namespace onnx {
class GraphProto;
class ModelProto;
}  // namespace onnx

namespace syncline {

// Rewrites what exporters write and this build has no operator for into what it
// has, before names are resolved (graph_builder.h):
//
//   a list cut from a tensor   SequenceAt of SplitToSequence is a Gather, a
//                              Slice or a part of one Split; SequenceAt of
//                              SequenceConstruct is the element
//   a list joined              ConcatFromSequence of SequenceConstruct is a
//                              Concat
//   float64                    float32 (float64_rewrite.h)
//
// Null if there is nothing to rewrite, and *file is as it was. Else the model
// to train, with the content of the initializers, which *file no longer has:
// that is kept for the export. Initializers keep their order and names; what is
// added comes after them or is a node. Appends one line per problem, and to
// `notes` what the user must know before training. `exact_contents` is
// RewriteFloat64's.
std::unique_ptr<onnx::ModelProto> RewriteForTraining(
    onnx::ModelProto* file, std::vector<std::string>* problems,
    std::vector<std::string>* notes, ExactContents* exact_contents);

// The lists alone, in place.
void RewriteSequences(int opset_version, onnx::GraphProto* graph);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_IMPORT_IMPORT_REWRITES_H_

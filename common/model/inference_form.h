#ifndef SYNCLINE_COMMON_MODEL_INFERENCE_FORM_H_
#define SYNCLINE_COMMON_MODEL_INFERENCE_FORM_H_

namespace onnx {
class GraphProto;
}

namespace syncline {

// What an exporter wrote for training becomes what others run: a Dropout loses
// its training_mode, which means false then, and a BatchNormalization its own
// with the running statistics that it would compute, unless something reads
// them. Both train here all the same when the file is submitted again.
void MakeInferenceForm(onnx::GraphProto* graph);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_INFERENCE_FORM_H_

#ifndef SYNCLINE_COMMON_MODEL_IMPORT_INFERENCE_FORM_H_
#define SYNCLINE_COMMON_MODEL_IMPORT_INFERENCE_FORM_H_

namespace onnx {
class GraphProto;
}

namespace syncline {

// Turns a graph that an exporter wrote for training into the form that other
// runtimes run. A Dropout loses its training_mode input, which then means
// false. A BatchNormalization loses its training_mode attribute, and with it
// the running statistics that it would compute, unless something reads them.
// Both still train here when the file is submitted again.
void MakeInferenceForm(onnx::GraphProto* graph);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_IMPORT_INFERENCE_FORM_H_

#ifndef SYNCLINE_COMMON_WIRE_WIRE_ELEMENT_TYPE_H_
#define SYNCLINE_COMMON_WIRE_WIRE_ELEMENT_TYPE_H_

#include "common/base/element_type.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// How a job's gradients and values travel; float32 where it does not say.
inline ElementType ElementTypeOf(WireType type) {
  switch (type) {
    case WIRE_BFLOAT16:
      return ElementType::kBfloat16;
    case WIRE_FLOAT16:
      return ElementType::kFloat16;
    default:
      return ElementType::kFloat32;
  }
}

inline WireType WireTypeOf(ElementType type) {
  switch (type) {
    case ElementType::kBfloat16:
      return WIRE_BFLOAT16;
    case ElementType::kFloat16:
      return WIRE_FLOAT16;
    case ElementType::kFloat32:
      break;
  }
  return WIRE_FLOAT32;
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_WIRE_WIRE_ELEMENT_TYPE_H_

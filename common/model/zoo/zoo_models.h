#ifndef SYNCLINE_COMMON_MODEL_ZOO_ZOO_MODELS_H_
#define SYNCLINE_COMMON_MODEL_ZOO_ZOO_MODELS_H_

// The models of the zoo, one file each. Internal to this folder.

#include <string>

#include "absl/status/statusor.h"
#include "common/model/zoo/zoo_settings.h"

namespace syncline {

inline constexpr int kZooOpset = 17;
inline constexpr int64_t kZooWidthMax = 65536;

using ZooModel = absl::StatusOr<std::string>(ZooSettings& settings);

ZooModel WriteMlp;
ZooModel WriteLenet;
ZooModel WriteResnet18;
ZooModel WriteResnet50;
ZooModel WriteGpt;
ZooModel WriteBert;
ZooModel WriteWideAndDeep;
ZooModel WriteDeepFm;
ZooModel WriteDlrm;
ZooModel WriteLstm;

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_ZOO_ZOO_MODELS_H_

#include "tests/testing/cuda_emulator/cudnn_double.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "kernels/cuda/float_array.h"
#include "kernels/device/device.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/cuda_emulator/tf32.h"

namespace syncline::testing {
namespace {

using cuda::CudnnAlgorithm;
using cuda::CudnnDescriptor;
using cuda::CudnnHandle;
using cuda::CudnnStatus;
using cuda::kCudnnSuccess;

constexpr CudnnStatus kMisaligned = 2003;
constexpr CudnnStatus kTooSmall = 2006;
constexpr CudnnStatus kMisfit = 2008;
constexpr size_t kAlignment = 16;

struct Object {
  enum class Kind { kHandle, kTensor, kFilter, kConvolution };
  Kind kind;
  bool is_set = false;
  std::vector<int> dims = {};  // of a tensor or a filter
  int type = -1;               // likewise
  std::vector<int> pads = {}, strides = {}, dilations = {};
  int groups = 1;
  int math = -1;
  Stream* stream = nullptr;  // of a handle

  int64_t count() const {
    int64_t product = 1;
    for (const int dim : dims) product *= dim;
    return product;
  }
};

bool IsType(int type) {
  return type == cuda::kCudnnFloat || type == cuda::kCudnnHalf ||
         type == cuda::kCudnnBfloat16;
}
DType DTypeOf(int type) {
  if (type == cuda::kCudnnHalf) return DType::kFloat16;
  return type == cuda::kCudnnBfloat16 ? DType::kBfloat16 : DType::kFloat32;
}
size_t BytesOf(const Object& of) {
  return of.count() * DTypeBytes(DTypeOf(of.type));
}

// Objects that exist, and what the last error was about.
struct Objects {
  std::set<void*> alive;
  std::string error;
};
Objects& All() {
  static Objects& objects = *new Objects();
  return objects;
}

CudnnStatus Bad(std::string what, CudnnStatus status = 2000) {
  All().error = std::move(what);
  return status;
}
// Not success: the test has the function fail.
CudnnStatus Failure(absl::string_view function) {
  const CudnnDoubleState& state = CudnnDouble();
  if (function != state.fails_at) return kCudnnSuccess;
  All().error = "as the test said";
  return state.fails_with;
}

CudnnStatus Create(const char* function, Object::Kind kind, void** to) {
  if (const CudnnStatus failure = Failure(function)) return failure;
  auto* const object = new Object{.kind = kind};
  All().alive.insert(object);
  CudnnDoubleState& state = CudnnDouble();
  ++(kind == Object::Kind::kHandle ? state.handles : state.descriptors);
  *to = object;
  return kCudnnSuccess;
}
CudnnStatus Destroy(void* at) {
  if (All().alive.erase(at) == 0) return Bad("destroyed twice");
  auto* const object = static_cast<Object*>(at);
  CudnnDoubleState& state = CudnnDouble();
  --(object->kind == Object::Kind::kHandle ? state.handles : state.descriptors);
  delete object;
  return kCudnnSuccess;
}
// Null: it does not exist, or is of another kind.
Object* Find(void* at, Object::Kind kind) {
  if (All().alive.count(at) == 0) return nullptr;
  auto* const object = static_cast<Object*>(at);
  return object->kind == kind ? object : nullptr;
}

CudnnStatus SetTensor(CudnnDescriptor at, int type, int count, const int* dims,
                      const int* strides) {
  if (const CudnnStatus failure = Failure("set_tensor")) return failure;
  Object* const tensor = Find(at, Object::Kind::kTensor);
  if (tensor == nullptr) return Bad("no tensor");
  if (!IsType(type)) return Bad("the type of a tensor");
  if (count < 4 || count > 5) return Bad(absl::StrCat(count, " dimensions"));
  tensor->dims.assign(dims, dims + count);
  int64_t stride = 1;
  for (int i = count - 1; i >= 0; --i) {
    if (dims[i] <= 0) return Bad("an empty tensor");
    if (strides[i] != stride) return Bad("strides that are not dense");
    stride *= dims[i];
  }
  if (stride > (int64_t{1} << 31) - 1) return Bad("a tensor of 2^31 elements");
  tensor->type = type;
  tensor->is_set = true;
  return kCudnnSuccess;
}

CudnnStatus SetFilter(CudnnDescriptor at, int type, int layout, int count,
                      const int* dims) {
  if (const CudnnStatus failure = Failure("set_filter")) return failure;
  Object* const filter = Find(at, Object::Kind::kFilter);
  if (filter == nullptr) return Bad("no filter");
  if (!IsType(type) || layout != cuda::kCudnnRowMajor) {
    return Bad("the type or the layout of a filter");
  }
  if (count < 4 || count > 5 ||
      std::any_of(dims, dims + count, [](int dim) { return dim <= 0; })) {
    return Bad("the dimensions of a filter");
  }
  filter->dims.assign(dims, dims + count);
  filter->type = type;
  filter->is_set = true;
  return kCudnnSuccess;
}

CudnnStatus SetConvolution(CudnnDescriptor at, int axes, const int* pads,
                           const int* strides, const int* dilations, int mode,
                           int type_of_sums) {
  if (const CudnnStatus failure = Failure("set_convolution")) return failure;
  Object* const convolution = Find(at, Object::Kind::kConvolution);
  if (convolution == nullptr) return Bad("no convolution");
  if (axes < 2 || axes > 3) return Bad(absl::StrCat(axes, " axes"));
  if (mode != cuda::kCudnnCrossCorrelation ||
      type_of_sums != cuda::kCudnnFloat) {
    return Bad("the mode or the type of a convolution");
  }
  for (int i = 0; i < axes; ++i) {
    if (pads[i] < 0 || strides[i] < 1 || dilations[i] < 1) {
      return Bad("the window of a convolution");
    }
  }
  convolution->pads.assign(pads, pads + axes);
  convolution->strides.assign(strides, strides + axes);
  convolution->dilations.assign(dilations, dilations + axes);
  convolution->is_set = true;
  return kCudnnSuccess;
}

CudnnStatus SetGroups(CudnnDescriptor at, int groups) {
  if (const CudnnStatus failure = Failure("set_groups")) return failure;
  Object* const convolution = Find(at, Object::Kind::kConvolution);
  if (convolution == nullptr || groups < 1) return Bad("groups");
  convolution->groups = groups;
  return kCudnnSuccess;
}

CudnnStatus SetMath(CudnnDescriptor at, int math) {
  if (const CudnnStatus failure = Failure("set_math")) return failure;
  Object* const convolution = Find(at, Object::Kind::kConvolution);
  if (convolution == nullptr) return Bad("math");
  convolution->math = math;
  return kCudnnSuccess;
}

CudnnStatus SetStream(CudnnHandle at, void* stream) {
  if (const CudnnStatus failure = Failure("set_stream")) return failure;
  Object* const handle = Find(at, Object::Kind::kHandle);
  if (handle == nullptr || stream == nullptr) return Bad("no handle or stream");
  handle->stream = static_cast<Stream*>(stream);
  return kCudnnSuccess;
}

enum class Pass { kForward, kData, kFilter };

const char* NameOf(Pass pass) {
  if (pass == Pass::kForward) return "forward";
  return pass == Pass::kData ? "backward_data" : "backward_filter";
}

// The three arrays of a convolution, whatever the pass makes of them.
struct Problem {
  const Object* x = nullptr;
  const Object* w = nullptr;
  const Object* y = nullptr;
  const Object* convolution = nullptr;

  size_t axes() const { return convolution->pads.size(); }
  // In bytes: what unfolding all of x takes.
  size_t ColumnsBytes() const {
    return w->count() / w->dims[0] * (y->count() / y->dims[1]) *
           DTypeBytes(DTypeOf(x->type));
  }
  bool is_narrow() const { return x->type != cuda::kCudnnFloat; }
};

// Not success: the descriptors are wrong, or do not fit each other.
CudnnStatus MakeProblem(Pass pass, CudnnHandle handle, CudnnDescriptor first,
                        CudnnDescriptor second, CudnnDescriptor convolution,
                        CudnnDescriptor result, Problem* to) {
  if (Find(handle, Object::Kind::kHandle) == nullptr) return Bad("no handle");
  using Kind = Object::Kind;
  if (pass == Pass::kForward) {
    *to = {Find(first, Kind::kTensor), Find(second, Kind::kFilter),
           Find(result, Kind::kTensor)};
  } else if (pass == Pass::kData) {
    *to = {Find(result, Kind::kTensor), Find(first, Kind::kFilter),
           Find(second, Kind::kTensor)};
  } else {
    *to = {Find(first, Kind::kTensor), Find(result, Kind::kFilter),
           Find(second, Kind::kTensor)};
  }
  to->convolution = Find(convolution, Kind::kConvolution);
  for (const Object* const object : {to->x, to->w, to->y, to->convolution}) {
    if (object == nullptr || !object->is_set) {
      return Bad("a descriptor that is not set, or in another's place");
    }
  }
  if (to->convolution->math < 0) return Bad("math is not set");
  // The library's configurations with sums of float32 have one type of arrays.
  if (to->x->type != to->w->type || to->x->type != to->y->type) {
    return Bad("arrays of two types", cuda::kCudnnNotSupported);
  }
  if (to->is_narrow() != (to->convolution->math == cuda::kCudnnTensorMath)) {
    return Bad("math that is not the types'");
  }
  const std::vector<int>& x = to->x->dims;
  const std::vector<int>& w = to->w->dims;
  const std::vector<int>& y = to->y->dims;
  const int groups = to->convolution->groups;
  bool fits = x.size() == to->axes() + 2 && w.size() == x.size() &&
              y.size() == x.size() && x[0] == y[0] && x[1] == w[1] * groups &&
              w[0] == y[1] && w[0] % groups == 0;
  for (size_t i = 0; fits && i < to->axes(); ++i) {
    const int span = (w[i + 2] - 1) * to->convolution->dilations[i] + 1;
    const int room = x[i + 2] + 2 * to->convolution->pads[i] - span;
    fits = room >= 0 && y[i + 2] == room / to->convolution->strides[i] + 1;
  }
  return fits ? kCudnnSuccess : Bad("dimensions that do not fit", kMisfit);
}

// The library's algorithms for a pass, the fastest first.
std::vector<CudnnAlgorithm> AlgorithmsOf(Pass pass) {
  const auto make = [](int algorithm, int determinism) {
    CudnnAlgorithm made = {};
    made.algorithm = algorithm;
    made.determinism = determinism;
    return made;
  };
  switch (pass) {
    case Pass::kForward:  // Winograd's, one that varies, ...
      return {make(6, 1), make(1, 0), make(2, 1), make(0, 1)};
    case Pass::kData:
      return {make(0, 0), make(4, 1), make(1, 1)};
    case Pass::kFilter:
      break;
  }
  return {make(0, 0), make(3, 0), make(5, 1), make(1, 1)};
}

size_t WorkspaceOf(Pass pass, int algorithm, const Problem& problem) {
  if (pass == Pass::kForward) {
    return algorithm == 2 ? problem.ColumnsBytes() : 0;
  }
  return pass == Pass::kData ? 1024 : 2048;
}

template <Pass pass>
CudnnStatus Recommend(CudnnHandle handle, CudnnDescriptor first,
                      CudnnDescriptor second, CudnnDescriptor convolution,
                      CudnnDescriptor result, int count_max, int* count,
                      CudnnAlgorithm* to) {
  if (const CudnnStatus failure = Failure("recommend")) return failure;
  Problem problem;
  if (const CudnnStatus status = MakeProblem(pass, handle, first, second,
                                             convolution, result, &problem)) {
    return status;
  }
  std::vector<CudnnAlgorithm> algorithms = AlgorithmsOf(pass);
  if (CudnnDouble().lacks == NameOf(pass)) {
    for (CudnnAlgorithm& a : algorithms) a.status = CudnnDouble().lacks_with;
  }
  *count = std::min<int>(count_max, algorithms.size());
  std::copy_n(algorithms.begin(), *count, to);
  return kCudnnSuccess;
}

template <Pass pass>
CudnnStatus Workspace(CudnnHandle handle, CudnnDescriptor first,
                      CudnnDescriptor second, CudnnDescriptor convolution,
                      CudnnDescriptor result, int algorithm, size_t* bytes) {
  if (const CudnnStatus failure = Failure("workspace")) return failure;
  Problem problem;
  if (const CudnnStatus status = MakeProblem(pass, handle, first, second,
                                             convolution, result, &problem)) {
    return status;
  }
  *bytes = WorkspaceOf(pass, algorithm, problem);
  return kCudnnSuccess;
}

// Calls product(x's element, w's, y's) for all products of the convolution.
template <typename Product>
void ForEachProduct(const Problem& p, Product product) {
  const auto dim = [](const Object* object, size_t axis) {
    return axis < object->dims.size() - 2 ? object->dims[axis + 2] : 1;
  };
  const int channels = p.w->dims[1];
  const int filters = p.w->dims[0] / p.convolution->groups;
  const int64_t in = p.x->count() / p.x->dims[0] / p.x->dims[1];
  const int64_t out = p.y->count() / p.y->dims[0] / p.y->dims[1];
  const int64_t kernel = p.w->count() / p.w->dims[0] / p.w->dims[1];
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t k = 0; k < kernel; ++k) {
      // The element of a plane of x; its axes, innermost first.
      int64_t at_o = o, at_k = k, i = 0, stride = 1;
      bool is_inside = true;
      for (size_t axis = p.axes(); axis-- > 0;) {
        const int64_t place =
            at_o % dim(p.y, axis) * p.convolution->strides[axis] +
            at_k % dim(p.w, axis) * p.convolution->dilations[axis] -
            p.convolution->pads[axis];
        is_inside &= place >= 0 && place < dim(p.x, axis);
        i += place * stride;
        stride *= dim(p.x, axis);
        at_o /= dim(p.y, axis);
        at_k /= dim(p.w, axis);
      }
      if (!is_inside) continue;
      for (int n = 0; n < p.y->dims[0]; ++n) {
        for (int f = 0; f < p.y->dims[1]; ++f) {
          const int group = f / filters;
          for (int c = 0; c < channels; ++c) {
            product((int64_t{n} * p.x->dims[1] + group * channels + c) * in + i,
                    (int64_t{f} * channels + c) * kernel + k,
                    (int64_t{n} * p.y->dims[1] + f) * out + o);
          }
        }
      }
    }
  }
}

float Read(const void* array, DType type, int64_t i) {
  if (type == DType::kFloat32) return static_cast<const float*>(array)[i];
  return cuda::WidenAs(type, static_cast<const uint16_t*>(array)[i]);
}
void Write(void* array, DType type, int64_t i, double value) {
  const auto rounded = static_cast<float>(value);
  if (type == DType::kFloat32) {
    static_cast<float*>(array)[i] = rounded;
  } else {
    static_cast<uint16_t*>(array)[i] = cuda::NarrowAs(type, rounded);
  }
}

void CountRun(Pass pass, int algorithm, bool is_tf32, bool is_narrow) {
  CudnnDoubleState& state = CudnnDouble();
  ++(pass == Pass::kForward ? state.forwards
     : pass == Pass::kData  ? state.backwards_of_data
                            : state.backwards_of_filters);
  state.runs_in_tf32 += is_tf32 ? 1 : 0;
  state.runs_in_16_bits += is_narrow ? 1 : 0;
  state.algorithm = algorithm;
}

// A call whose turn in the stream is still to come. The descriptors
// are there for as long as it may be done.
struct Call {
  Problem problem;
  EmulatedDevice* device = nullptr;
  const Object* first = nullptr;
  const void* first_data = nullptr;
  const Object* second = nullptr;
  const void* second_data = nullptr;
  int algorithm = 0;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  bool is_kept = false;  // the result is added to
  const Object* result = nullptr;
  void* result_data = nullptr;
};

template <Pass pass>
void Compute(const Call& call) {
  const auto bytes = [](const Object* of) { return BytesOf(*of); };
  EmulatedDevice& device = *call.device;
  const char* const what = NameOf(pass);
  const size_t result_bytes = bytes(call.result);
  if (!device.MayRead(what, call.first_data, bytes(call.first)) ||
      !device.MayRead(what, call.second_data, bytes(call.second)) ||
      (call.is_kept && !device.MayRead(what, call.result_data, result_bytes)) ||
      !device.MayWrite(what, call.result_data, result_bytes)) {
    return;  // The stream says so.
  }
  if (call.workspace_bytes > 0) {
    if (!device.MayWrite(what, call.workspace, call.workspace_bytes)) return;
    std::memset(call.workspace, 0xff, call.workspace_bytes);
  }

  const bool is_tf32 = call.problem.convolution->math == cuda::kCudnnAnyMath;
  const DType type = DTypeOf(call.problem.x->type);
  const auto factor = [&](const void* array, int64_t i) -> double {
    const float value = Read(array, type, i);
    return is_tf32 ? ToTf32(value) : value;
  };
  const int64_t count = call.result->count();
  std::vector<double> sums(count);
  ForEachProduct(call.problem, [&](int64_t x, int64_t w, int64_t y) {
    if (pass == Pass::kForward) {
      sums[y] += factor(call.first_data, x) * factor(call.second_data, w);
    } else if (pass == Pass::kData) {
      sums[x] += factor(call.first_data, w) * factor(call.second_data, y);
    } else {
      sums[w] += factor(call.first_data, x) * factor(call.second_data, y);
    }
  });
  for (int64_t i = 0; i < count; ++i) {
    Write(call.result_data, type, i,
          sums[i] + (call.is_kept ? Read(call.result_data, type, i) : 0));
  }
  CountRun(pass, call.algorithm, is_tf32, call.problem.is_narrow());
}

template <Pass pass>
CudnnStatus Run(CudnnHandle handle, const void* alpha, CudnnDescriptor first,
                const void* first_data, CudnnDescriptor second,
                const void* second_data, CudnnDescriptor convolution,
                int algorithm, void* workspace, size_t workspace_bytes,
                const void* beta, CudnnDescriptor result, void* result_data) {
  if (const CudnnStatus failure = Failure("run")) return failure;
  Problem problem;
  if (const CudnnStatus status = MakeProblem(pass, handle, first, second,
                                             convolution, result, &problem)) {
    return status;
  }
  Stream* const stream = Find(handle, Object::Kind::kHandle)->stream;
  if (stream == nullptr) return Bad("no stream is set");
  const auto recommended = AlgorithmsOf(pass);
  const auto it =
      std::find_if(recommended.begin(), recommended.end(),
                   [&](const auto& a) { return a.algorithm == algorithm; });
  if (it == recommended.end() || it->determinism != 1 || it->status != 0) {
    return Bad(absl::StrCat("algorithm ", algorithm,
                            " is not deterministic, or not there"));
  }
  if (workspace_bytes < WorkspaceOf(pass, algorithm, problem)) {
    return Bad("the workspace", kTooSmall);
  }
  for (const void* const array :
       {first_data, second_data, const_cast<const void*>(result_data)}) {
    if (reinterpret_cast<uintptr_t>(array) % kAlignment != 0) {
      return Bad("an array", kMisaligned);
    }
  }
  const float scale = *static_cast<const float*>(alpha);
  const float kept = *static_cast<const float*>(beta);
  if (scale != 1 || (kept != 0 && kept != 1)) return Bad("alpha or beta");

  const Call call = {.problem = problem,
                     .device = static_cast<EmulatedDevice*>(&stream->device()),
                     .first = static_cast<const Object*>(first),
                     .first_data = first_data,
                     .second = static_cast<const Object*>(second),
                     .second_data = second_data,
                     .algorithm = algorithm,
                     .workspace = workspace,
                     .workspace_bytes = workspace_bytes,
                     .is_kept = kept != 0,
                     .result = static_cast<const Object*>(result),
                     .result_data = result_data};
  QueueWork(*stream, [call] { Compute<pass>(call); });
  return kCudnnSuccess;
}

template <Pass pass>
cuda::CudnnPass PassFunctions() {
  return {.recommend = Recommend<pass>,
          .workspace = Workspace<pass>,
          .run = Run<pass>};
}

}  // namespace

CudnnDoubleState& CudnnDouble() {
  static CudnnDoubleState& state = *new CudnnDoubleState();
  return state;
}

cuda::CudnnFunctions CudnnDoubleFunctions() {
  using Kind = Object::Kind;
  cuda::CudnnFunctions f;
  f.version = [] { return CudnnDouble().version; };
  f.error_string = [](CudnnStatus status) {
    static std::string& text = *new std::string();
    text = absl::StrCat("CUDNN_STATUS_", status);
    return text.c_str();
  };
  f.last_error_string = [](char* text, size_t bytes) {
    const std::string error = std::exchange(All().error, "");
    SYNCLINE_CHECK(error.size() < bytes);
    std::memcpy(text, error.c_str(), error.size() + 1);
  };
  f.create = [](CudnnHandle* to) {
    return Create("create", Kind::kHandle, to);
  };
  f.destroy = Destroy;
  f.set_stream = SetStream;
  f.create_tensor = [](CudnnDescriptor* to) {
    return Create("create_tensor", Kind::kTensor, to);
  };
  f.set_tensor = SetTensor;
  f.destroy_tensor = Destroy;
  f.create_filter = [](CudnnDescriptor* to) {
    return Create("create_filter", Kind::kFilter, to);
  };
  f.set_filter = SetFilter;
  f.destroy_filter = Destroy;
  f.create_convolution = [](CudnnDescriptor* to) {
    return Create("create_convolution", Kind::kConvolution, to);
  };
  f.set_convolution = SetConvolution;
  f.set_groups = SetGroups;
  f.set_math = SetMath;
  f.destroy_convolution = Destroy;
  f.forward = PassFunctions<Pass::kForward>();
  f.backward_data = PassFunctions<Pass::kData>();
  f.backward_filter = PassFunctions<Pass::kFilter>();
  return f;
}

std::unique_ptr<cuda::Cudnn> MakeCudnnDouble() {
  CudnnDouble() = CudnnDoubleState();
  auto made = cuda::Cudnn::Create(CudnnDoubleFunctions(), "the double");
  SYNCLINE_CHECK(made.ok());
  return *std::move(made);
}

}  // namespace syncline::testing

#if SYNCLINE_CUDA

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/dtype.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/library_device.h"
#include "kernels/cuda/product_library.h"
#include "kernels/cuda/product_types.h"
#include "kernels/device/product_tuner.h"

namespace syncline::cuda {
namespace {

// The library is loaded when the first product is made: it is 0.5 GB, and a
// machine without a GPU need not have it.
struct Library {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoCheck) check_algorithm;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) get_algorithm;
  decltype(&cublasLtMatmulAlgoGetHeuristic) find_algorithms;
  decltype(&cublasLtMatmulDescCreate) make_description;
  decltype(&cublasLtMatmulDescDestroy) destroy_description;
  decltype(&cublasLtMatmulDescSetAttribute) set_description;
  decltype(&cublasLtMatmulPreferenceCreate) make_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatrixLayoutCreate) make_layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout;
};

absl::Status FailedWith(const Library& library, cublasStatus_t status,
                        const char* what) {
  return absl::InternalError(
      absl::StrCat("cuBLASLt: ", what, ": ", library.status_string(status)));
}

#define SYNCLINE_RETURN_IF_CUBLAS_FAILED(library, call, what) \
  do {                                                        \
    const cublasStatus_t cublas_status = (call);              \
    if (cublas_status != CUBLAS_STATUS_SUCCESS) {             \
      return FailedWith(library, cublas_status, what);        \
    }                                                         \
  } while (false)

std::string LibraryName() {
  return absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR);
}

absl::StatusOr<Library> Load() {
  const std::string name = LibraryName();
  void* const file = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "CUDA's library of matrix products is not on this machine: ", dlerror(),
        "; install cuBLAS ", CUBLAS_VER_MAJOR,
        ", or name its folder in LD_LIBRARY_PATH"));
  }
  Library library = {};
  std::string missing;
  const auto find = [&](const char* function, auto& to) {
    void* const address = dlsym(file, function);
    if (address == nullptr && missing.empty()) missing = function;
    to = reinterpret_cast<std::decay_t<decltype(to)>>(address);
  };
  find("cublasLtCreate", library.create);
  find("cublasLtGetStatusString", library.status_string);
  find("cublasLtGetVersion", library.version);
  find("cublasLtMatmul", library.matmul);
  find("cublasLtMatmulAlgoCheck", library.check_algorithm);
  find("cublasLtMatmulAlgoConfigGetAttribute", library.get_algorithm);
  find("cublasLtMatmulAlgoGetHeuristic", library.find_algorithms);
  find("cublasLtMatmulDescCreate", library.make_description);
  find("cublasLtMatmulDescDestroy", library.destroy_description);
  find("cublasLtMatmulDescSetAttribute", library.set_description);
  find("cublasLtMatmulPreferenceCreate", library.make_preference);
  find("cublasLtMatmulPreferenceDestroy", library.destroy_preference);
  find("cublasLtMatmulPreferenceSetAttribute", library.set_preference);
  find("cublasLtMatrixLayoutCreate", library.make_layout);
  find("cublasLtMatrixLayoutDestroy", library.destroy_layout);
  find("cublasLtMatrixLayoutSetAttribute", library.set_layout);
  if (!missing.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " has no ", missing));
  }
  return library;
}

// Of this process, for all devices.
const absl::StatusOr<Library>& LoadedLibrary() {
  static const absl::StatusOr<Library>& library =
      *new absl::StatusOr<Library>(Load());
  return library;
}

// The library's state for the device that this thread has set: a handle is tied
// to the device that was set when it was made. Threads share it. It stays until
// the process ends; one that cannot be made is tried again the next time. Only
// a machine with two GPUs shows whether products use the right one.
absl::StatusOr<cublasLtHandle_t> HandleForDeviceOfThread(
    const Library& library) {
  struct Handles {
    Mutex mu;
    std::map<int, cublasLtHandle_t> by_device ABSL_GUARDED_BY(mu);
  };
  static Handles& handles = *new Handles();
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) {
    return absl::InternalError(absl::StrCat(
        "cuBLASLt: find the thread's device: ", cudaGetErrorString(error)));
  }
  MutexLock lock(&handles.mu);
  const auto it = handles.by_device.find(device);
  if (it != handles.by_device.end()) return it->second;
  cublasLtHandle_t handle = nullptr;
  SYNCLINE_RETURN_IF_CUBLAS_FAILED(library, library.create(&handle), "begin");
  handles.by_device[device] = handle;
  return handle;
}

// A row-major matrix [rows, columns] is the column-major [columns, rows] of
// cuBLASLt, so C = op(A) op(B) is computed as C' = op(B)' op(A)'.
struct Stored {
  int64_t rows;
  int64_t columns;
  int64_t row;  // elements from one row to the next
};
Stored MakeStored(int64_t rows, int64_t columns, bool is_transposed,
                  int64_t row) {
  if (is_transposed) std::swap(rows, columns);
  return {rows, columns, row == 0 ? columns : row};
}

cudaDataType_t CublasTypeOf(DType type) {
  if (type == DType::kBfloat16) return CUDA_R_16BF;
  return type == DType::kFloat16 ? CUDA_R_16F : CUDA_R_32F;
}

class LibraryEpilogueProduct;

class LibraryProduct : public MatrixProduct {
 public:
  LibraryProduct(const Library& library, cublasLtHandle_t handle,
                 const MatrixProductShape& shape, bool takes_tf32,
                 ProductTuner* tuner)
      : library_(library),
        handle_(handle),
        s_(shape),
        takes_tf32_(takes_tf32),
        tuner_(tuner) {}
  ~LibraryProduct() override {
    for (const auto& tunable : tunables_) tuner_->Remove(tunable.get());
    for (cublasLtMatrixLayout_t layout : {a_, b_, c_}) {
      if (layout != nullptr) library_.destroy_layout(layout);
    }
    for (const Compiled* compiled : {&plain_, &with_bias_}) {
      if (compiled->description == nullptr) continue;
      library_.destroy_description(compiled->description);
    }
  }

  absl::Status Init() {
    if (IsEmpty()) return absl::OkStatus();
    SYNCLINE_RETURN_IF_ERROR(DescribeMatrices());
    SYNCLINE_RETURN_IF_ERROR(Compile(CUBLASLT_EPILOGUE_DEFAULT, &plain_));
    if (!s_.has_bias) return absl::OkStatus();
    return Compile(CUBLASLT_EPILOGUE_BIAS, &with_bias_);
  }

  absl::Status Run(Stream& stream, ConstFloats a, ConstFloats b,
                   const float* bias, Floats c) override {
    if (IsEmpty()) return absl::OkStatus();
    if (bias == nullptr) return Multiply(stream, plain_, a, b, 0, c);
    SYNCLINE_RETURN_IF_CUBLAS_FAILED(
        library_,
        library_.set_description(with_bias_.description,
                                 CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                 sizeof(bias)),
        "set the bias");
    return Multiply(stream, with_bias_, a, b, 0, c);
  }
  absl::Status Accumulate(Stream& stream, ConstFloats a, ConstFloats b,
                          Floats c) override {
    if (IsEmpty()) return absl::OkStatus();
    return Multiply(stream, plain_, a, b, 1, c);
  }

 private:
  friend class LibraryEpilogueProduct;

  // A product with or without bias, or with another epilogue. Arrays of an
  // arena are aligned, parts of them may not be; the fast algorithms for 16
  // bits want 16 bytes.
  struct Compiled {
    cublasLtMatmulDesc_t description = nullptr;
    cublasLtMatmulAlgo_t aligned = {};  // for addresses that are multiples of
    cublasLtMatmulAlgo_t any = {};      // kAlignment; for all others
  };
  static constexpr uint32_t kAlignment = 16;
  // An algorithm of one of them, as a tuner changes it.
  class Tunable;

  bool IsEmpty() const { return s_.m == 0 || s_.n == 0 || s_.batch == 0; }

  absl::Status DescribeMatrices() {
    SYNCLINE_RETURN_IF_ERROR(MakeLayout(
        MakeStored(s_.m, s_.k, s_.transpose_a, s_.a_row), s_.a_type, &a_));
    SYNCLINE_RETURN_IF_ERROR(MakeLayout(
        MakeStored(s_.k, s_.n, s_.transpose_b, s_.b_row), s_.b_type, &b_));
    return MakeLayout(MakeStored(s_.m, s_.n, /*is_transposed=*/false, s_.c_row),
                      s_.c_type, &c_);
  }

  absl::Status MakeLayout(const Stored& s, DType type,
                          cublasLtMatrixLayout_t* layout) {
    SYNCLINE_RETURN_IF_CUBLAS_FAILED(
        library_,
        library_.make_layout(layout, CublasTypeOf(type), s.columns, s.rows,
                             s.row),
        "describe a matrix");
    const int32_t batch = static_cast<int32_t>(s_.batch);
    const int64_t stride = s.rows * s.row;
    SYNCLINE_RETURN_IF_CUBLAS_FAILED(
        library_,
        library_.set_layout(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                            sizeof(batch)),
        "set a batch");
    SYNCLINE_RETURN_IF_CUBLAS_FAILED(
        library_,
        library_.set_layout(*layout,
                            CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                            &stride, sizeof(stride)),
        "set a batch's stride");
    return absl::OkStatus();
  }

  absl::Status Compile(cublasLtEpilogue_t epilogue, Compiled* compiled) {
    SYNCLINE_RETURN_IF_ERROR(Describe(epilogue, &compiled->description));
    SYNCLINE_RETURN_IF_ERROR(
        Choose(compiled->description, kAlignment, &compiled->aligned));
    const auto element = static_cast<uint32_t>(
        std::min(DTypeBytes(s_.a_type), DTypeBytes(s_.c_type)));
    SYNCLINE_RETURN_IF_ERROR(
        Choose(compiled->description, element, &compiled->any));
    AddTunable(epilogue, compiled->description, kAlignment, &compiled->aligned);
    AddTunable(epilogue, compiled->description, element, &compiled->any);
    return absl::OkStatus();
  }
  // Of epilogues whose other arrays a measurement has.
  void AddTunable(cublasLtEpilogue_t epilogue, cublasLtMatmulDesc_t description,
                  uint32_t alignment, cublasLtMatmulAlgo_t* algorithm);

  absl::Status Describe(cublasLtEpilogue_t epilogue,
                        cublasLtMatmulDesc_t* description) {
    // Sums are float32, and so are products: TF32's factors have 11 bits.
    const cublasComputeType_t arithmetic =
        takes_tf32_ && s_.a_type == DType::kFloat32
            ? CUBLAS_COMPUTE_32F_FAST_TF32
            : CUBLAS_COMPUTE_32F;
    SYNCLINE_RETURN_IF_CUBLAS_FAILED(
        library_,
        library_.make_description(description, arithmetic, CUDA_R_32F),
        "describe a product");
    const cublasOperation_t first = s_.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = s_.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute,
                         const auto& value) {
      return library_.set_description(*description, attribute, &value,
                                      sizeof(value));
    };
    SYNCLINE_RETURN_IF_CUBLAS_FAILED(
        library_, set(CUBLASLT_MATMUL_DESC_TRANSA, first), "transpose");
    SYNCLINE_RETURN_IF_CUBLAS_FAILED(
        library_, set(CUBLASLT_MATMUL_DESC_TRANSB, second), "transpose");
    SYNCLINE_RETURN_IF_CUBLAS_FAILED(
        library_, set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue), "set a bias");
    return absl::OkStatus();
  }

  // The library's first choice, which depends on shapes and the GPU alone.
  absl::Status Choose(cublasLtMatmulDesc_t description, uint32_t alignment,
                      cublasLtMatmulAlgo_t* algorithm) {
    SYNCLINE_ASSIGN_OR_RETURN(const std::vector<cublasLtMatmulAlgo_t> found,
                              Find(description, alignment, 1));
    *algorithm = found[0];
    return absl::OkStatus();
  }

  // At least one. Of those that need no workspace and split no sum: always the
  // same bits.
  absl::StatusOr<std::vector<cublasLtMatmulAlgo_t>> Find(
      cublasLtMatmulDesc_t description, uint32_t alignment, int count_max) {
    cublasLtMatmulPreference_t preference = nullptr;
    SYNCLINE_RETURN_IF_CUBLAS_FAILED(
        library_, library_.make_preference(&preference), "make a preference");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute,
                         const auto& value) {
      return library_.set_preference(preference, attribute, &value,
                                     sizeof(value));
    };
    const uint32_t whole_sums = CUBLASLT_REDUCTION_SCHEME_NONE;
    const size_t workspace = 0;
    std::vector<cublasLtMatmulHeuristicResult_t> found(count_max);
    int count = 0;
    cublasStatus_t status =
        set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, whole_sums);
    }
    for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      if (status == CUBLAS_STATUS_SUCCESS) status = set(attribute, alignment);
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
      status =
          library_.find_algorithms(handle_, description, b_, a_, c_, c_,
                                   preference, count_max, found.data(), &count);
    }
    library_.destroy_preference(preference);
    SYNCLINE_RETURN_IF_CUBLAS_FAILED(library_, status, "choose an algorithm");
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < count; ++i) {
      if (found[i].state == CUBLAS_STATUS_SUCCESS) {
        algorithms.push_back(found[i].algo);
      }
    }
    if (algorithms.empty()) {
      return absl::InternalError(absl::StrCat(
          "cuBLASLt has no algorithm for ", s_.batch, " products [", s_.m, ", ",
          s_.k, "] x [", s_.k, ", ", s_.n, "]"));
    }
    return algorithms;
  }

  // It needs no workspace and splits no sum.
  bool Takes(cublasLtMatmulDesc_t description,
             const cublasLtMatmulAlgo_t& algorithm) {
    cublasLtMatmulHeuristicResult_t result = {};
    if (library_.check_algorithm(handle_, description, b_, a_, c_, c_,
                                 &algorithm,
                                 &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize != 0) {
      return false;
    }
    int32_t splits = 0;
    uint32_t reduction = 0;
    const auto get = [&](cublasLtMatmulAlgoConfigAttributes_t attribute,
                         auto* value) {
      size_t written = 0;
      return library_.get_algorithm(&algorithm, attribute, value,
                                    sizeof(*value),
                                    &written) == CUBLAS_STATUS_SUCCESS &&
             written == sizeof(*value);
    };
    return get(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits) && splits <= 1 &&
           get(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction) &&
           reduction == CUBLASLT_REDUCTION_SCHEME_NONE;
  }

  static bool IsAligned(const void* at) {
    return reinterpret_cast<uintptr_t>(at) % kAlignment == 0;
  }

  absl::Status Multiply(Stream& stream, const Compiled& compiled, ConstFloats a,
                        ConstFloats b, float keep, Floats c) {
    SYNCLINE_CHECK(a.type() == s_.a_type && b.type() == s_.b_type &&
                   c.type() == s_.c_type);
    const bool are_aligned =
        IsAligned(a.data()) && IsAligned(b.data()) && IsAligned(c.data());
    return MultiplyBy(stream, compiled.description,
                      are_aligned ? compiled.aligned : compiled.any, a, b, keep,
                      c);
  }
  absl::Status MultiplyBy(Stream& stream, cublasLtMatmulDesc_t description,
                          const cublasLtMatmulAlgo_t& algorithm, ConstFloats a,
                          ConstFloats b, float keep, Floats c) {
    SYNCLINE_RETURN_IF_CUBLAS_FAILED(
        library_,
        library_.matmul(handle_, description, &s_.alpha, b.data(), b_, a.data(),
                        a_, &keep, c.data(), c_, c.data(), c_, &algorithm,
                        /*workspace=*/nullptr, /*workspaceSizeInBytes=*/0,
                        CudaStreamOf(stream)),
        "multiply");
    NoteLaunch(stream, cudaSuccess, "a matrix product of cuBLASLt");
    return absl::OkStatus();
  }

  const Library& library_;
  const cublasLtHandle_t handle_;  // of the device that the product is for
  const MatrixProductShape s_;
  const bool takes_tf32_;
  ProductTuner* const tuner_;  // null: there is none
  cublasLtMatrixLayout_t a_ = nullptr;
  cublasLtMatrixLayout_t b_ = nullptr;
  cublasLtMatrixLayout_t c_ = nullptr;
  Compiled plain_;
  Compiled with_bias_;
  std::vector<std::unique_ptr<ProductTuner::Product>> tunables_;
};

// Two events of a device, with times.
class Stopwatch {
 public:
  Stopwatch() = default;
  ~Stopwatch() {
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // Of the work that `queue` puts into the stream. Errors: its; Internal.
  template <typename Queue>
  absl::StatusOr<absl::Duration> TimeOf(Stream& stream, Queue queue) {
    SYNCLINE_RETURN_IF_ERROR(Record(stream, &begin_));
    SYNCLINE_RETURN_IF_ERROR(queue());
    SYNCLINE_RETURN_IF_ERROR(Record(stream, &end_));
    SYNCLINE_RETURN_IF_ERROR(stream.Synchronize());
    float milliseconds = 0;
    SYNCLINE_RETURN_IF_ERROR(
        StatusOf(cudaEventElapsedTime(&milliseconds, begin_, end_)));
    return absl::Milliseconds(milliseconds);
  }

 private:
  static absl::Status StatusOf(cudaError_t error) {
    if (error == cudaSuccess) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("time a matrix product: ", cudaGetErrorString(error)));
  }
  static absl::Status Record(Stream& stream, cudaEvent_t* event) {
    const cudaStream_t in = CudaStreamOf(stream);
    if (*event == nullptr) {
      SYNCLINE_RETURN_IF_ERROR(StatusOf(cudaEventCreate(event)));
    }
    return StatusOf(cudaEventRecord(*event, in));
  }

  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

class LibraryProduct::Tunable : public ProductTuner::Product {
 public:
  Tunable(LibraryProduct& product, std::string key, bool has_bias,
          cublasLtMatmulDesc_t description, uint32_t alignment,
          cublasLtMatmulAlgo_t* algorithm)
      : product_(product),
        key_(std::move(key)),
        has_bias_(has_bias),
        description_(description),
        alignment_(alignment),
        algorithm_(*algorithm) {}

  const std::string& key() const override { return key_; }

  absl::StatusOr<std::vector<std::string>> Algorithms(int count_max) override {
    SYNCLINE_ASSIGN_OR_RETURN(
        const std::vector<cublasLtMatmulAlgo_t> found,
        product_.Find(description_, alignment_, count_max));
    std::vector<std::string> algorithms;
    for (const cublasLtMatmulAlgo_t& algorithm : found) {
      // The library's preference says the same of all of them.
      if (!algorithms.empty() && !product_.Takes(description_, algorithm)) {
        continue;
      }
      algorithms.emplace_back(reinterpret_cast<const char*>(&algorithm),
                              sizeof(algorithm));
    }
    return algorithms;
  }

  bool Takes(absl::string_view bytes) override {
    cublasLtMatmulAlgo_t algorithm;
    return Restore(bytes, &algorithm) &&
           product_.Takes(description_, algorithm);
  }
  void Use(absl::string_view bytes) override {
    SYNCLINE_CHECK(Restore(bytes, &algorithm_));
  }

  int64_t array_bytes() const override {
    const MatrixProductShape& s = product_.s_;
    return Aligned(ABytes()) + Aligned(BBytes()) + Aligned(CBytes()) +
           Aligned(s.n * static_cast<int64_t>(sizeof(float)));
  }

  absl::StatusOr<absl::Duration> Measure(Stream& stream,
                                         absl::string_view bytes,
                                         void* arrays) override {
    cublasLtMatmulAlgo_t algorithm;
    if (!Restore(bytes, &algorithm)) {
      return absl::InternalError("no algorithm of this library");
    }
    const MatrixProductShape& s = product_.s_;
    char* const memory = static_cast<char*>(arrays);
    const ConstFloats a(memory, s.a_type);
    const ConstFloats b(memory + Aligned(ABytes()), s.b_type);
    const Floats c(memory + Aligned(ABytes()) + Aligned(BBytes()), s.c_type);
    const void* const bias =
        memory + Aligned(ABytes()) + Aligned(BBytes()) + Aligned(CBytes());
    if (has_bias_) {
      SYNCLINE_RETURN_IF_CUBLAS_FAILED(
          product_.library_,
          product_.library_.set_description(description_,
                                            CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                            &bias, sizeof(bias)),
          "set the bias");
    }
    const auto run = [&](int times) {
      for (int i = 0; i < times; ++i) {
        SYNCLINE_RETURN_IF_ERROR(product_.MultiplyBy(stream, description_,
                                                     algorithm, a, b,
                                                     /*keep=*/0, c));
      }
      return absl::OkStatus();
    };
    Stopwatch watch;
    // The first one loads the kernel.
    SYNCLINE_RETURN_IF_ERROR(run(1));
    SYNCLINE_ASSIGN_OR_RETURN(const absl::Duration once,
                              watch.TimeOf(stream, [&] { return run(1); }));
    if (once >= kLong) return once;
    SYNCLINE_ASSIGN_OR_RETURN(const absl::Duration all,
                              watch.TimeOf(stream, [&] { return run(kRuns); }));
    return all / kRuns;
  }

 private:
  static constexpr int kRuns = 10;
  static constexpr absl::Duration kLong = absl::Milliseconds(10);
  static constexpr int64_t kArrayAlignment = 256;

  static int64_t Aligned(int64_t bytes) {
    return (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
  }
  static int64_t BytesOf(const Stored& stored, int64_t batch, DType type) {
    return batch * stored.rows * stored.row *
           static_cast<int64_t>(DTypeBytes(type));
  }
  int64_t ABytes() const {
    const MatrixProductShape& s = product_.s_;
    return BytesOf(MakeStored(s.m, s.k, s.transpose_a, s.a_row), s.batch,
                   s.a_type);
  }
  int64_t BBytes() const {
    const MatrixProductShape& s = product_.s_;
    return BytesOf(MakeStored(s.k, s.n, s.transpose_b, s.b_row), s.batch,
                   s.b_type);
  }
  int64_t CBytes() const {
    const MatrixProductShape& s = product_.s_;
    return BytesOf(MakeStored(s.m, s.n, /*is_transposed=*/false, s.c_row),
                   s.batch, s.c_type);
  }
  // False: they are no algorithm.
  static bool Restore(absl::string_view bytes, cublasLtMatmulAlgo_t* to) {
    static_assert(std::is_trivially_copyable_v<cublasLtMatmulAlgo_t>);
    if (bytes.size() != sizeof(*to)) return false;
    std::memcpy(to, bytes.data(), sizeof(*to));
    return true;
  }

  LibraryProduct& product_;
  const std::string key_;
  const bool has_bias_;
  const cublasLtMatmulDesc_t description_;
  const uint32_t alignment_;
  cublasLtMatmulAlgo_t& algorithm_;
};

void LibraryProduct::AddTunable(cublasLtEpilogue_t epilogue,
                                cublasLtMatmulDesc_t description,
                                uint32_t alignment,
                                cublasLtMatmulAlgo_t* algorithm) {
  const bool has_bias = epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (tuner_ == nullptr ||
      !(has_bias || epilogue == CUBLASLT_EPILOGUE_DEFAULT)) {
    return;
  }
  tunables_.push_back(std::make_unique<Tunable>(
      *this,
      ProductKeyOf(s_, has_bias ? "bias" : "plain", takes_tf32_, alignment),
      has_bias, description, alignment, algorithm));
  tuner_->Add(tunables_.back().get());
}

// The gradient of a bias is no epilogue here: cuBLASLt does not say in which
// order it adds that up, so our own kernel does.
cublasLtEpilogue_t CublasEpilogueOf(const ProductEpilogue& epilogue) {
  const auto choose = [&](cublasLtEpilogue_t plain, cublasLtEpilogue_t bias) {
    return epilogue.has_bias ? bias : plain;
  };
  switch (epilogue.function) {
    case ProductEpilogue::Function::kNone:
      return choose(CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS);
    case ProductEpilogue::Function::kRelu:
      if (epilogue.is_gradient) return CUBLASLT_EPILOGUE_DRELU;
      return epilogue.keeps
                 ? choose(CUBLASLT_EPILOGUE_RELU_AUX,
                          CUBLASLT_EPILOGUE_RELU_AUX_BIAS)
                 : choose(CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS);
    case ProductEpilogue::Function::kGeluTanh:
      if (epilogue.is_gradient) return CUBLASLT_EPILOGUE_DGELU;
      return epilogue.keeps
                 ? choose(CUBLASLT_EPILOGUE_GELU_AUX,
                          CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
                 : choose(CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS);
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

// A bias is along the rows of the library's column-major result, which are our
// columns; what is kept has that result's rows.
class LibraryEpilogueProduct : public EpilogueProduct {
 public:
  LibraryEpilogueProduct(const Library& library, cublasLtHandle_t handle,
                         const MatrixProductShape& shape, bool takes_tf32,
                         const ProductEpilogue& epilogue)
      : library_(library),
        s_(shape),
        epilogue_(epilogue),
        product_(library, handle, shape, takes_tf32, /*tuner=*/nullptr) {}
  ~LibraryEpilogueProduct() override {
    if (compiled_.description == nullptr) return;
    library_.destroy_description(compiled_.description);
  }

  absl::Status Init() {
    SYNCLINE_RETURN_IF_ERROR(product_.DescribeMatrices());
    SYNCLINE_RETURN_IF_ERROR(
        product_.Describe(CublasEpilogueOf(epilogue_), &compiled_.description));
    if (epilogue_.keeps || epilogue_.is_gradient) {
      const bool is_relu =
          epilogue_.function == ProductEpilogue::Function::kRelu;
      constexpr int64_t kBitsOfByte = 8;
      const int64_t row = is_relu ? KeptReluRowBytes(s_.n) * kBitsOfByte : s_.n;
      SYNCLINE_RETURN_IF_ERROR(
          Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, row, "set a row"));
    }
    // The library chooses by the alignment of these addresses.
    SYNCLINE_RETURN_IF_ERROR(SetArrays(reinterpret_cast<const void*>(kAddress),
                                       reinterpret_cast<void*>(kAddress)));
    absl::Status chosen = product_.Choose(
        compiled_.description, LibraryProduct::kAlignment, &compiled_.aligned);
    // Parts of a batch that is fed may begin anywhere; what has 16 bits is an
    // array of its own.
    if (chosen.ok() && s_.a_type == DType::kFloat32) {
      chosen =
          product_.Choose(compiled_.description, sizeof(float), &compiled_.any);
    } else {
      compiled_.any = compiled_.aligned;
    }
    return chosen.ok() ? chosen : absl::UnimplementedError(chosen.message());
  }

  absl::Status Run(Stream& stream, ConstFloats a, ConstFloats b,
                   ConstFloats bias, void* kept, Floats c) override {
    SYNCLINE_CHECK(s_.a_type == DType::kFloat32 ||
                   (LibraryProduct::IsAligned(a.data()) &&
                    LibraryProduct::IsAligned(b.data())));
    SYNCLINE_RETURN_IF_ERROR(SetArrays(bias.data(), kept));
    return product_.Multiply(stream, compiled_, a, b, 0, c);
  }

 private:
  // Stands for addresses that are multiples of as much.
  static constexpr uintptr_t kAddress = LibraryProduct::kAlignment;

  template <typename T>
  absl::Status Set(cublasLtMatmulDescAttributes_t attribute, const T& value,
                   const char* what) {
    SYNCLINE_RETURN_IF_CUBLAS_FAILED(
        library_,
        library_.set_description(compiled_.description, attribute, &value,
                                 sizeof(value)),
        what);
    return absl::OkStatus();
  }

  absl::Status SetArrays(const void* bias, void* kept) {
    if (epilogue_.has_bias) {
      SYNCLINE_RETURN_IF_ERROR(
          Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias, "set the bias"));
    }
    if (!epilogue_.keeps && !epilogue_.is_gradient) return absl::OkStatus();
    return Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, kept,
               "set what is kept");
  }

  const Library& library_;
  const MatrixProductShape s_;
  const ProductEpilogue epilogue_;
  LibraryProduct product_;
  LibraryProduct::Compiled compiled_;
};

// The library, its state for the device that this thread has set, and how it
// multiplies.
struct Prepared {
  const Library* library = nullptr;
  cublasLtHandle_t handle = nullptr;
  bool takes_tf32 = false;
  ProductTuner* tuner = nullptr;  // null: there is none
};

absl::StatusOr<Prepared> PrepareFor(Device& device) {
  LibraryDevice& gpu = LibraryDevice::Of(device);
  gpu.Enter();
  const absl::StatusOr<Library>& library = LoadedLibrary();
  if (!library.ok()) return library.status();
  SYNCLINE_ASSIGN_OR_RETURN(const cublasLtHandle_t handle,
                            HandleForDeviceOfThread(*library));
  return Prepared{&*library, handle, gpu.takes_tf32(), gpu.product_tuner()};
}

}  // namespace

absl::StatusOr<std::string> ProductLibraryName() {
  const absl::StatusOr<Library>& library = LoadedLibrary();
  if (!library.ok()) return library.status();
  // 130002 is 13.0.2.
  const size_t version = library->version();
  return absl::StrCat("cuBLASLt ", version / 10000, ".", version / 100 % 100,
                      ".", version % 100);
}

absl::StatusOr<std::unique_ptr<MatrixProduct>> MakeLibraryProduct(
    Device& device, const MatrixProductShape& shape) {
  SYNCLINE_ASSIGN_OR_RETURN(const Prepared prepared, PrepareFor(device));
  auto product = std::make_unique<LibraryProduct>(
      *prepared.library, prepared.handle, shape, prepared.takes_tf32,
      prepared.tuner);
  SYNCLINE_RETURN_IF_ERROR(product->Init());
  return product;
}

absl::StatusOr<std::unique_ptr<EpilogueProduct>> MakeLibraryEpilogueProduct(
    Device& device, const MatrixProductShape& shape,
    const ProductEpilogue& epilogue) {
  SYNCLINE_ASSIGN_OR_RETURN(const Prepared prepared, PrepareFor(device));
  auto product = std::make_unique<LibraryEpilogueProduct>(
      *prepared.library, prepared.handle, shape, prepared.takes_tf32, epilogue);
  SYNCLINE_RETURN_IF_ERROR(product->Init());
  return product;
}

}  // namespace syncline::cuda

#endif  // SYNCLINE_CUDA

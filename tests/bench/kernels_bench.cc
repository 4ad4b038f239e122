// Measures the work of a ps on every byte, without the ps: optimizer steps, and
// values to 16 bits and back, on memory that is larger than any cache.

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/aligned_buffer.h"
#include "common/base/element_type.h"
#include "common/base/status_macros.h"
#include "kernels/optimizer/finite.h"
#include "kernels/optimizer/lamb.h"
#include "kernels/optimizer/optimizer.h"
#include "tests/bench/benchmarks.h"

namespace syncline {
namespace {

constexpr char kMemcpy[] = "memcpy";
constexpr float kRate = 0.5f;

struct Loop {
  std::string name;
  double floats;  // read and written of each element
  std::function<void()> run;
};

struct Optimizer {
  const char* name;
  OptimizerParams params;
  // Where a value is that began at 0, after one step with gradient 1.
  float first_step;
};

std::vector<Optimizer> Optimizers() {
  using K = OptimizerKind;
  return {{"SGD", {.kind = K::kSgd}, -0.5f},
          {"momentum", {.kind = K::kMomentum}, -0.5f},
          {"Nesterov", {.kind = K::kNesterov}, -0.95f},
          {"Adagrad", {.kind = K::kAdagrad}, -0.5f},
          {"RMSProp", {.kind = K::kRmsProp, .momentum = 0}, -5},
          {"RMSProp, momentum, centered",
           {.kind = K::kRmsProp, .centered = true},
           -0.5f / std::sqrt(0.01f - 0.0001f)},
          {"Adam", {.kind = K::kAdam}, -0.5f},
          {"AdamW", {.kind = K::kAdamW}, -0.5f},
          {"LAMB", {.kind = K::kLamb}, -0.5f},
          {"FTRL", {.kind = K::kFtrl}, -0.5f}};
}

// The memory of one tensor and its slots, and all that is done to it.
class Tensor {
 public:
  explicit Tensor(size_t count)
      : gradient_(count), value_(count), narrow_(count) {
    for (float& g : gradient_.span()) g = 1;
    for (int slot = 0; slot < kOptimizerSlotsMax; ++slot) {
      slots_.emplace_back(count);
    }
  }

  void Step(const OptimizerParams& params) {
    const OptimizerStep step = {.learning_rate = kRate, .t = ++t_};
    const size_t count = value_.size();
    float* slots[kOptimizerSlotsMax];
    for (int slot = 0; slot < kOptimizerSlotsMax; ++slot) {
      slots[slot] = slots_[slot].data();
    }
    if (params.kind != OptimizerKind::kLamb) {
      return ApplyOptimizer(params, step, gradient_.data(), value_.data(),
                            slots, count);
    }
    LambNorms norms;
    AdvanceLamb(params, step, gradient_.data(), value_.data(), slots[0],
                slots[1], count, &norms);
    ApplyLamb(params, step, LambTrustRatio(norms), value_.data(), slots[0],
              slots[1], count);
  }
  absl::Status Verify(const Optimizer& optimizer) {
    t_ = 0;
    for (AlignedFloats& slot : slots_) Clear(&slot);
    Clear(&value_);
    Step(optimizer.params);
    for (const float value : value_.span()) {
      if (std::abs(value - optimizer.first_step) < 1e-3f) continue;
      return absl::InternalError(absl::StrCat(optimizer.name, ": a value is ",
                                              value, ", expected ",
                                              optimizer.first_step));
    }
    return absl::OkStatus();
  }

  void Copy() {
    std::memcpy(slots_[0].data(), gradient_.data(),
                gradient_.size() * sizeof(float));
  }
  void ToNarrow(ElementType type) {
    Narrow(type, gradient_.data(), narrow_.data(), gradient_.size());
  }
  void FromNarrow(ElementType type) {
    Widen(type, narrow_.data(), slots_[0].data(), gradient_.size());
  }
  void Look() { finite_ = AllFinite(gradient_.data(), gradient_.size()); }
  bool finite() const { return finite_; }

 private:
  static void Clear(AlignedFloats* floats) {
    for (float& value : floats->span()) value = 0;
  }

  AlignedFloats gradient_;
  AlignedFloats value_;
  AlignedFloats narrow_;
  std::vector<AlignedFloats> slots_;
  int64_t t_ = 0;
  bool finite_ = false;
};

std::vector<Loop> Loops(Tensor* tensor) {
  std::vector<Loop> loops = {{kMemcpy, 2, [=] { tensor->Copy(); }}};
  for (const Optimizer& optimizer : Optimizers()) {
    const double state = 1 + OptimizerSlots(optimizer.params);
    // LAMB's second pass reads all state once more and writes the values.
    const bool lamb = optimizer.params.kind == OptimizerKind::kLamb;
    loops.push_back({optimizer.name, lamb ? 10 : 1 + 2 * state,
                     [=] { tensor->Step(optimizer.params); }});
  }
  for (const auto& [name, type] :
       {std::pair{"bfloat16", ElementType::kBfloat16},
        std::pair{"float16", ElementType::kFloat16}}) {
    loops.push_back({absl::StrCat("to ", name), 1.5,
                     [tensor, type = type] { tensor->ToNarrow(type); }});
    loops.push_back({absl::StrCat("from ", name), 1.5,
                     [tensor, type = type] { tensor->FromNarrow(type); }});
  }
  loops.push_back({"all finite?", 1, [=] { tensor->Look(); }});
  return loops;
}

}  // namespace

absl::Status RunKernelsBench(const BenchOptions& options, Report* report) {
  const size_t count = (options.smoke ? 1 : 16) << 20;
  Tensor tensor(count);
  for (const Optimizer& optimizer : Optimizers()) {
    SYNCLINE_RETURN_IF_ERROR(tensor.Verify(optimizer));
  }
  report->Set("tensor", absl::StrCat(count >> 18, " MiB"));
  const std::vector<Loop> loops = Loops(&tensor);
  for (int i = 0; i < options.repetitions; ++i) {
    for (const Loop& loop : loops) {
      const absl::Time begin = absl::Now();
      loop.run();
      report->Add(loop.name, "GB/s",
                  loop.floats * sizeof(float) * count /
                      absl::ToDoubleNanoseconds(absl::Now() - begin));
    }
  }
  if (!tensor.finite()) return absl::InternalError("not finite");
  for (const Loop& loop : loops) {
    if (loop.name == kMemcpy) continue;
    report->AddRatio(absl::StrCat(loop.name, " / memcpy"), loop.name, kMemcpy);
  }
  return absl::OkStatus();
}

}  // namespace syncline

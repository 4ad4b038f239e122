#include "kernels/device/product_tuner.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "kernels/device/device.h"

namespace syncline {
namespace {

// Measures some algorithms of one product after the other.
class Measuring {
 public:
  Measuring(Device& device, const ProductTuner::Limits& limits)
      : device_(device),
        limits_(limits),
        give_up_(MonotonicNow() + limits.time_max) {}

  // The fastest; empty: it was not measured. The library's first choice is in
  // *first; empty: it has none to choose from. Errors: go_on's, the device's.
  absl::StatusOr<std::string> Fastest(ProductTuner::Product& product,
                                      std::string* first) {
    first->clear();
    const auto algorithms = product.Algorithms(limits_.algorithms_max);
    if (!algorithms.ok() || algorithms->empty()) return std::string();
    *first = algorithms->front();
    if (algorithms->size() == 1) return *first;
    if (MonotonicNow() >= give_up_ || !Reserve(product.array_bytes())) {
      return std::string();
    }
    std::string fastest = *first;
    absl::Duration least = absl::InfiniteDuration();
    for (const std::string& algorithm : *algorithms) {
      if (limits_.go_on) SYNCLINE_RETURN_IF_ERROR(limits_.go_on());
      const auto took = product.Measure(*stream_, algorithm, memory_.data());
      SYNCLINE_RETURN_IF_ERROR(device_.health());
      if (algorithm == *first) {
        if (!took.ok()) return std::string();
        least = *took * (1 - limits_.margin);
      } else if (took.ok() && *took < least) {
        least = *took;
        fastest = algorithm;
      }
    }
    return fastest;
  }

 private:
  // False: there is not as much memory, or no stream.
  bool Reserve(int64_t bytes) {
    if (stream_ == nullptr) {
      auto stream = device_.MakeStream();
      if (!stream.ok()) return false;
      stream_ = *std::move(stream);
    }
    if (static_cast<size_t>(bytes) <= memory_.bytes()) return true;
    memory_ = DeviceMemory();
    auto memory = device_.Allocate(bytes);
    if (!memory.ok()) return false;
    memory_ = *std::move(memory);
    stream_->Clear(memory_.data(), bytes);
    return true;
  }

  Device& device_;
  const ProductTuner::Limits& limits_;
  const absl::Time give_up_;
  std::unique_ptr<Stream> stream_;
  DeviceMemory memory_;
};

}  // namespace

ProductLibrary ProductTuner::library() const {
  MutexLock lock(&mu_);
  return following_.library();
}

void ProductTuner::Add(Product* product) {
  MutexLock lock(&mu_);
  products_.emplace(product->key(), product);
  const std::string* const algorithm = following_.Find(product->key());
  if (algorithm == nullptr) return;
  if (product->Takes(*algorithm)) {
    product->Use(*algorithm);
  } else {
    ++refused_;
  }
}

void ProductTuner::Remove(Product* product) {
  MutexLock lock(&mu_);
  auto [it, end] = products_.equal_range(product->key());
  while (it != end && it->second != product) ++it;
  if (it != end) products_.erase(it);
}

absl::Status ProductTuner::Apply(Product* product) {
  const std::string* const algorithm = following_.Find(product->key());
  if (algorithm != nullptr && product->Takes(*algorithm)) {
    product->Use(*algorithm);
    return absl::OkStatus();
  }
  refused_ += algorithm == nullptr ? 0 : 1;
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<std::string> own,
                            product->Algorithms(1));
  if (!own.empty()) product->Use(own[0]);
  return absl::OkStatus();
}

absl::Status ProductTuner::Follow(const ProductTable& table) {
  MutexLock lock(&mu_);
  const ProductLibrary& own = following_.library();
  if (!(table.library() == own)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the algorithms of matrix products are those of ",
                     table.library().name, " on ", table.library().gpu,
                     ", and here are ", own.name, " and ", own.gpu));
  }
  following_ = table;
  refused_ = 0;
  for (const auto& [key, product] : products_) {
    SYNCLINE_RETURN_IF_ERROR(Apply(product));
  }
  return absl::OkStatus();
}

int ProductTuner::refused() const {
  MutexLock lock(&mu_);
  return refused_;
}

void ProductTuner::Choose(const std::string& key, absl::string_view algorithm) {
  if (!following_.Set(key, algorithm)) return;
  const auto [begin, end] = products_.equal_range(key);
  for (auto it = begin; it != end; ++it) it->second->Use(algorithm);
}

absl::StatusOr<ProductTuner::Report> ProductTuner::Tune(
    Device& device, const ProductTable& known, const Limits& limits) {
  MutexLock lock(&mu_);
  const absl::Time begun = MonotonicNow();
  Report report;
  Measuring measuring(device, limits);
  const bool is_known = known.library() == following_.library();
  std::set<std::string> keys;
  for (const auto& [key, product] : products_) keys.insert(key);
  for (const std::string& key : keys) {
    Product& product = *products_.find(key)->second;
    const std::string* const followed = following_.Find(key);
    if (followed != nullptr && product.Takes(*followed)) {
      ++report.known;
      continue;
    }
    const std::string* const kept = is_known ? known.Find(key) : nullptr;
    if (kept != nullptr && product.Takes(*kept)) {
      ++report.known;
      Choose(key, *kept);
      continue;
    }
    std::string first;
    SYNCLINE_ASSIGN_OR_RETURN(const std::string fastest,
                              measuring.Fastest(product, &first));
    if (!fastest.empty()) {
      ++report.measured;
      report.changed += fastest == first ? 0 : 1;
      Choose(key, fastest);
    } else {
      report.unmeasured.push_back(key);
      if (!first.empty()) Choose(key, first);
    }
  }
  report.took = MonotonicNow() - begun;
  return report;
}

ProductTable ProductTuner::table() const {
  MutexLock lock(&mu_);
  return following_;
}

}  // namespace syncline

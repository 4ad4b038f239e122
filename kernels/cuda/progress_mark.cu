#include "kernels/cuda/launch.h"
#include "kernels/cuda/progress_mark.h"

namespace syncline::cuda {
namespace {

// Writes where the host reads without waiting for the kernel.
template <typename T>
SYNCLINE_DEVICE void ShowToHost(Global<T> element, T value) {
#if defined(__CUDACC__)
  *static_cast<volatile T*>(element) = value;
  __threadfence_system();
#else
  element[0] = value;
#endif
}

struct MarkKernel {
  Global<uint64_t> at;
  uint64_t word;

  SYNCLINE_DEVICE void operator()() const {
    if (threadIdx.x == 0) ShowToHost(at, word);
  }
};

}  // namespace

void WriteMark(Stream& stream, uint64_t* at, uint64_t word) {
  Launch(stream, {.blocks = 1, .threads = kWarpThreads},
         MarkKernel{OnDevice(at), word});
}

void ProgressMark::Queue(Stream& stream) {
  uint64_t wanted = 0;
  {
    MutexLock lock(&mu_);
    wanted = wanted_;
  }
  if (wanted == queued_) return;
  queued_ = wanted;  // first: the launch asks again
  WriteMark(stream, &at_, wanted);
}

void ProgressMark::UseNames(std::shared_ptr<const Stream::Marks> names) {
  MutexLock lock(&mu_);
  if (names == names_) return;
  names_ = std::move(names);
  std::erase_if(numbers_,
                [](const auto& known) { return known.first.expired(); });
  for (const auto& [known, number] : numbers_) {
    if (known.lock() != names_) continue;
    names_number_ = number;
    return;
  }
  names_number_ = ++numbers_given_;
  numbers_.emplace_back(names_, names_number_);
}

void ProgressMark::Continue(uint64_t word) {
  if (word == 0) return;
  MutexLock lock(&mu_);
  wanted_ = word;
  queued_ = word;
}

std::string ProgressMark::Running() const {
  // The device writes it, in one piece.
  const uint64_t word = *static_cast<const volatile uint64_t*>(&at_);
  MutexLock lock(&mu_);
  const auto number = static_cast<uint32_t>(word);
  for (const auto& [known, names_number] : numbers_) {
    if (names_number != word >> 32) continue;
    const std::shared_ptr<const Stream::Marks> names = known.lock();
    if (names != nullptr && number < names->size()) return (*names)[number];
  }
  return "";
}

}  // namespace syncline::cuda

#ifndef SYNCLINE_KERNELS_CUDA_PROGRESS_MARK_H_
#define SYNCLINE_KERNELS_CUDA_PROGRESS_MARK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "kernels/device/device.h"

namespace syncline::cuda {

// Queues a write of `word` to `at`, memory of the host that the device writes,
// too. A kernel of its own: a copy would have to find the word unchanged in
// memory of the host when it runs, and a graph of CUDA's takes a kernel with
// its arguments.
void WriteMark(Stream& stream, uint64_t* at, uint64_t word);

// Which of a stream's named pieces of work the device is at, for messages of
// errors: before each of them the device writes the piece's number into memory
// of the host. After a fault CUDA runs nothing more, so the number stays.
//
// A stream has one, and calls Queue before it queues anything. Of one thread,
// but Running is thread-safe.
class ProgressMark {
 public:
  // `at` outlives the work of the stream; zero so far.
  explicit ProgressMark(uint64_t* at) : at_(*at) {}

  // Stream::UseMarks. Names that come again have the number that they had, so
  // that what a graph writes stays true for as long as they are there.
  void UseNames(std::shared_ptr<const Stream::Marks> names)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Stream::Mark.
  void Set(uint32_t number) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    wanted_ = (uint64_t{names_number_} << 32) | number;
  }
  // Queues the write of the latest Set, unless that was done.
  void Queue(Stream& stream) ABSL_LOCKS_EXCLUDED(mu_);

  // Work that is queued between these two is kept, and writes all of its marks.
  // EndGraph says what the last of them writes; 0: there is none.
  void BeginGraph() { queued_ = 0; }
  uint64_t EndGraph() { return std::exchange(queued_, 0); }
  // Kept work that ends with this mark has been queued: what follows without
  // another mark is of the same.
  void Continue(uint64_t word) ABSL_LOCKS_EXCLUDED(mu_);

  // The name of the work that the device runs, or ran last; empty: it has none,
  // or one of names that are gone.
  std::string Running() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // The number of the names, from 1 on, and that of the piece.
  uint64_t& at_;
  // To be written there at the end of the queue; 0: it is not known.
  uint64_t queued_ = 0;

  mutable Mutex mu_;
  std::shared_ptr<const Stream::Marks> names_ ABSL_GUARDED_BY(mu_);
  uint32_t names_number_ ABSL_GUARDED_BY(mu_) = 0;
  // All that are still there, with their numbers.
  std::vector<std::pair<std::weak_ptr<const Stream::Marks>, uint32_t>> numbers_
      ABSL_GUARDED_BY(mu_);
  uint32_t numbers_given_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t wanted_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_PROGRESS_MARK_H_

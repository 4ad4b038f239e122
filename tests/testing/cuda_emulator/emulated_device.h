#ifndef SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_EMULATED_DEVICE_H_
#define SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_EMULATED_DEVICE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/library_device.h"
#include "kernels/device/product_tuner.h"
#include "tests/testing/cuda_emulator/block_runner.h"
#include "tests/testing/cuda_emulator/emulated_memory.h"
#include "tests/testing/cuda_emulator/product_double.h"

namespace syncline::testing {

// A GPU that this process plays: kernels of kernels/cuda on the CPU, one after
// the other, blocks and threads in an order drawn from the seed. What CUDA
// leaves undefined is an error of the stream's next Synchronize, and then of
// all others. One thread at a time.
class EmulatedDevice : public cuda::LibraryDevice {
 public:
  // `memory_bytes`: all that Allocate gives.
  // `products`: what the double of the library of products says that it is.
  explicit EmulatedDevice(uint64_t seed = 1,
                          uint64_t memory_bytes = uint64_t{1} << 40,
                          ProductLibrary products = {"emulated",
                                                     "products 1.0"});
  ~EmulatedDevice() override;

  absl::string_view name() const override { return "emulated"; }
  const KernelTable& kernels() const override;
  size_t alignment() const override { return 256; }
  int64_t channel_block() const override { return 1; }
  bool computes_in(absl::string_view op_type, DType type) const override;
  bool is_host() const override { return false; }
  bool has_graphs() const override { return has_graphs_; }
  Description description() const override;
  absl::Status health() override { return status(); }
  void AllowTf32(bool is_allowed) override { takes_tf32_ = is_allowed; }
  uint64_t FreeBytes() override { return memory_bytes_ - used_bytes_; }
  absl::StatusOr<DeviceMemory> Allocate(size_t bytes) override;
  absl::StatusOr<DeviceMemory> AllocatePinned(size_t bytes) override;
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream() override;
  absl::StatusOr<std::unique_ptr<Event>> MakeEvent() override;
  // By this process's clock.
  absl::StatusOr<std::unique_ptr<Timer>> MakeTimer() override;

  // From now on work is done as late as events and Synchronize allow, or, drawn
  // from the seed, sooner: each stream's in its order, streams among each other
  // in any order that no event forbids. A copy reads memory of the host when it
  // is done. Else all work is done when it is queued.
  void WorkLate() { works_late_ = true; }
  bool works_late() const { return works_late_; }
  bool DrawOneOf(int count) { return random_() % count == 0; }
  // Whether streams keep work as graphs, as they do at first.
  void OfferGraphs(bool has_graphs) { has_graphs_ = has_graphs; }
  // The end of each graph from now on is this error; OK: they are kept.
  void RefuseGraphs(absl::Status why) { why_no_graph_ = std::move(why); }
  const absl::Status& why_no_graph() const { return why_no_graph_; }
  int64_t graphs() const { return graphs_; }  // that there are now
  void CountGraphs(int64_t more) { graphs_ += more; }
  int64_t graph_launches() const { return graph_launches_; }
  void CountGraphLaunch() { ++graph_launches_; }

  // From now on convolutions are made by cuDNN's double (cudnn_double.h), or
  // refused with the error; null: by kernels of kernels/cuda, as at first.
  void UseCudnn(absl::StatusOr<std::unique_ptr<cuda::Cudnn>> cudnn) {
    cudnn_ = std::move(cudnn);
  }
  absl::StatusOr<cuda::Cudnn*> cudnn() const override {
    if (!cudnn_.ok()) return cudnn_.status();
    return cudnn_->get();
  }
  // Settings and records of the double of the library of products.
  ProductDoubleState& products() { return products_; }
  ProductTuner* product_tuner() override { return &product_tuner_; }
  void Enter() override {}
  bool takes_tf32() const override { return takes_tf32_; }

  // As cuda::Launch; `kernel` is one thread's.
  void Run(int64_t blocks, int threads, size_t shared_bytes,
           const std::string& name, const std::function<void()>& kernel);
  // For doubles of CUDA's libraries: whether a range may be read, or written,
  // which it then is; otherwise there is a report. `what` begins it.
  bool MayRead(absl::string_view what, const void* at, size_t bytes);
  bool MayWrite(absl::string_view what, void* at, size_t bytes);
  int64_t launches() const { return launches_; }
  // Of these, those that write a stream's mark.
  int64_t marks() const { return marks_; }
  void CountMarks(int64_t marks) { marks_ += marks; }
  int64_t blocks() const { return blocks_; }         // of all launches
  int64_t locks() const { return runner_.locks(); }  // taken by kernels
  // The launch of this number, counted from 1, and all after it fail.
  void FailAt(int64_t launch) { fails_at_ = launch; }
  // Errors: Internal: what CUDA leaves undefined has happened.
  absl::Status status() const;
  void Report(std::string what);

 protected:
  void Free(void* data, size_t bytes, bool is_pinned) override;

 private:
  // The memory that all of the range lies in, and where; otherwise there is a
  // report.
  EmulatedMemory* Find(absl::string_view what, const void* at, size_t bytes,
                       size_t* begin);

  const uint64_t memory_bytes_;
  absl::StatusOr<std::unique_ptr<cuda::Cudnn>> cudnn_ = nullptr;
  ProductDoubleState products_;
  ProductTuner product_tuner_;
  bool takes_tf32_ = false;
  uint64_t used_bytes_ = 0;
  std::mt19937_64 random_;
  BlockRunner runner_;
  bool works_late_ = false;
  bool has_graphs_ = true;
  absl::Status why_no_graph_;
  int64_t graphs_ = 0;
  int64_t graph_launches_ = 0;
  int64_t launches_ = 0;
  int64_t marks_ = 0;
  int64_t blocks_ = 0;
  int64_t fails_at_ = std::numeric_limits<int64_t>::max();
  std::vector<std::string> reports_;
};

// For doubles of CUDA's libraries: puts what they compute into a stream of an
// emulated device. It may be done later, or be kept as a part of a graph and be
// done many times: it has its arguments by value.
void QueueWork(Stream& stream, std::function<void()> work);

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_EMULATED_DEVICE_H_

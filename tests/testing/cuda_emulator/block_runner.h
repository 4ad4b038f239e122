#ifndef SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_BLOCK_RUNNER_H_
#define SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_BLOCK_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/testing/cuda_emulator/emulated_memory.h"
#include "tests/testing/cuda_emulator/fiber.h"

namespace syncline::testing {

class BlockRunner;

// A call that the lanes of a warp make together.
struct WarpCall {
  enum class Kind { kShuffleXor, kShuffleDown, kShuffle, kBallot };
  Kind kind = Kind::kShuffleXor;
  uint32_t mask = 0;
  uint64_t value = 0;  // of this lane
  int argument = 0;    // lanes, or a lane
  uint64_t result = 0;
};

struct EmulatedThread {
  enum class State { kReady, kAtBarrier, kInWarpCall, kEnded };

  uint32_t index = 0;
  State state = State::kReady;
  Fiber* fiber = nullptr;  // once it has begun
  WarpCall call;           // of kInWarpCall
  std::string line;        // of kAtBarrier and kInWarpCall: where it waits
};

// Runs the threads of one block after another, each a fiber, on the thread of
// the caller. A thread runs until it waits for others; who goes on next is
// drawn. A thread that cannot go on, and whatever its memory reports, is said
// to the report of the launch; the block is then given up.
class BlockRunner {
 public:
  explicit BlockRunner(uint64_t seed);

  struct Block {
    uint32_t launch = 0;
    uint32_t index = 0;
    uint32_t blocks = 0;  // of the launch
    int threads = 0;
    EmulatedMemory* shared = nullptr;
    EmulatedMemory::Report report;
  };
  void Run(const Block& block, const std::function<void()>& kernel);

  // The one that runs a kernel on this thread now, or null.
  static BlockRunner* Current();

  // For the running thread.
  const Block& block() const { return block_; }
  uint32_t thread() const { return running_->index; }
  Accessor accessor() const;
  void Report(absl::string_view what) const;
  void AwaitBarrier(std::string line);
  uint64_t CallInWarp(const WarpCall& call, std::string line);
  void CountLock() { ++locks_; }

  // How often a thread took the lock of an element, in all blocks so far.
  int64_t locks() const { return locks_; }

 private:
  struct GivenUp {};

  void RunOne(EmulatedThread& thread, const std::function<void()>& kernel);
  void PauseRunning(EmulatedThread::State state, std::string line);
  // Whether the lanes of the call have all come; they are then ready.
  bool CompleteCall(EmulatedThread& thread);
  void Answer(uint32_t first, uint32_t mask);
  bool OpenBarrier();
  void ReportStuck();
  void GiveUp();

  std::mt19937_64 random_;
  Block block_;
  uint32_t barriers_ = 0;  // that the block has passed
  std::vector<EmulatedThread> threads_;
  std::vector<EmulatedThread*> ready_;
  EmulatedThread* running_ = nullptr;
  bool is_given_up_ = false;
  int64_t locks_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
};

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_BLOCK_RUNNER_H_

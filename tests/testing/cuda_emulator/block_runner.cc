#include "tests/testing/cuda_emulator/block_runner.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace syncline::testing {
namespace {

constexpr uint32_t kLanes = 32;

thread_local BlockRunner* current = nullptr;

std::string Hex(uint32_t mask) {
  return absl::StrCat("0x", absl::Hex(mask, absl::kZeroPad8));
}

}  // namespace

BlockRunner::BlockRunner(uint64_t seed) : random_(seed) {}

BlockRunner* BlockRunner::Current() { return current; }

Accessor BlockRunner::accessor() const {
  return {block_.launch, block_.index, running_->index, barriers_};
}

void BlockRunner::Report(absl::string_view what) const {
  block_.report(absl::StrCat("block ", block_.index, " thread ",
                             running_->index, " ", what));
}

void BlockRunner::Run(const Block& block, const std::function<void()>& kernel) {
  BlockRunner* const before = std::exchange(current, this);
  block_ = block;
  barriers_ = 0;
  is_given_up_ = false;
  threads_.assign(block.threads, EmulatedThread());
  ready_.clear();
  for (int i = 0; i < block.threads; ++i) {
    threads_[i].index = i;
    ready_.push_back(&threads_[i]);
  }
  while (!is_given_up_) {
    if (ready_.empty() && !OpenBarrier()) break;
    const size_t drawn = random_() % ready_.size();
    EmulatedThread* const thread = ready_[drawn];
    ready_[drawn] = ready_.back();
    ready_.pop_back();
    RunOne(*thread, kernel);
  }
  if (is_given_up_) GiveUp();
  current = before;
}

void BlockRunner::RunOne(EmulatedThread& thread,
                         const std::function<void()>& kernel) {
  running_ = &thread;
  if (thread.fiber != nullptr) {
    thread.fiber->Resume();
  } else {
    if (idle_.empty()) {
      idle_.push_back(fibers_.emplace_back(std::make_unique<Fiber>()).get());
    }
    thread.fiber = idle_.back();
    idle_.pop_back();
    thread.fiber->Start([&thread, &kernel] {
      try {
        kernel();
      } catch (const GivenUp&) {
      }
      thread.state = EmulatedThread::State::kEnded;
    });
  }
  if (thread.state == EmulatedThread::State::kEnded) {
    idle_.push_back(thread.fiber);
  } else if (thread.state == EmulatedThread::State::kInWarpCall) {
    CompleteCall(thread);
  }
}

void BlockRunner::PauseRunning(EmulatedThread::State state, std::string line) {
  EmulatedThread* const thread = running_;
  thread->state = state;
  thread->line = std::move(line);
  thread->fiber->Pause();
  running_ = thread;
  if (is_given_up_) throw GivenUp();
}

void BlockRunner::AwaitBarrier(std::string line) {
  PauseRunning(EmulatedThread::State::kAtBarrier, std::move(line));
}

uint64_t BlockRunner::CallInWarp(const WarpCall& call, std::string line) {
  EmulatedThread* const thread = running_;
  if ((call.mask >> (thread->index % kLanes) & 1) == 0) {
    Report(absl::StrCat("calls with the lanes ", Hex(call.mask),
                        ", of which it is none, at ", line));
    is_given_up_ = true;
    throw GivenUp();
  }
  thread->call = call;
  PauseRunning(EmulatedThread::State::kInWarpCall, std::move(line));
  return thread->call.result;
}

bool BlockRunner::CompleteCall(EmulatedThread& thread) {
  const uint32_t first = thread.index / kLanes * kLanes;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if ((thread.call.mask >> lane & 1) == 0) continue;
    if (first + lane >= threads_.size()) return false;
    const EmulatedThread& other = threads_[first + lane];
    if (other.state != EmulatedThread::State::kInWarpCall ||
        other.call.kind != thread.call.kind ||
        other.call.mask != thread.call.mask || other.line != thread.line) {
      return false;
    }
  }
  Answer(first, thread.call.mask);
  return true;
}

// A lane that asks for the value of one outside of the mask gets nothing that
// CUDA defines; outside of the warp, its own.
void BlockRunner::Answer(uint32_t first, uint32_t mask) {
  uint64_t ballot = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    ballot |= uint64_t{threads_[first + lane].call.value != 0} << lane;
  }
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    EmulatedThread& thread = threads_[first + lane];
    WarpCall& call = thread.call;
    uint32_t from = lane;
    switch (call.kind) {
      case WarpCall::Kind::kShuffleXor:
        from = lane ^ static_cast<uint32_t>(call.argument);
        break;
      case WarpCall::Kind::kShuffleDown:
        from = lane + static_cast<uint32_t>(call.argument);
        break;
      case WarpCall::Kind::kShuffle:
        from = static_cast<uint32_t>(call.argument) % kLanes;
        break;
      case WarpCall::Kind::kBallot:
        break;
    }
    if (from >= kLanes) from = lane;
    if ((mask >> from & 1) == 0) {
      running_ = &thread;
      Report(absl::StrCat("takes the value of lane ", from,
                          ", which is not among the lanes ", Hex(mask), ", at ",
                          thread.line));
      from = lane;
    }
    call.result = call.kind == WarpCall::Kind::kBallot
                      ? ballot
                      : threads_[first + from].call.value;
    thread.state = EmulatedThread::State::kReady;
    ready_.push_back(&thread);
  }
}

// False at the end of the block: all have ended, or it is given up.
bool BlockRunner::OpenBarrier() {
  size_t ended = 0;
  size_t waiting = 0;
  for (const EmulatedThread& thread : threads_) {
    ended += thread.state == EmulatedThread::State::kEnded;
    waiting += thread.state == EmulatedThread::State::kAtBarrier &&
               thread.line == threads_[0].line;
  }
  if (ended == threads_.size()) return false;
  if (waiting != threads_.size()) {
    ReportStuck();
    is_given_up_ = true;
    return false;
  }
  ++barriers_;
  for (EmulatedThread& thread : threads_) {
    thread.state = EmulatedThread::State::kReady;
    ready_.push_back(&thread);
  }
  return true;
}

void BlockRunner::ReportStuck() {
  std::string ended;
  std::string what;
  for (const EmulatedThread& thread : threads_) {
    if (thread.state == EmulatedThread::State::kEnded && ended.empty()) {
      ended = absl::StrCat(", and thread ", thread.index, " has ended");
    }
    if (thread.state == EmulatedThread::State::kEnded || !what.empty()) {
      continue;
    }
    running_ = &threads_[thread.index];
    what = thread.state == EmulatedThread::State::kAtBarrier
               ? absl::StrCat("waits for its block at ", thread.line)
               : absl::StrCat("waits for the lanes ", Hex(thread.call.mask),
                              " at ", thread.line);
  }
  // One that waits at another place than the first.
  std::string elsewhere;
  for (const EmulatedThread& thread : threads_) {
    if (thread.state == EmulatedThread::State::kEnded ||
        thread.line == running_->line) {
      continue;
    }
    elsewhere =
        absl::StrCat(", and thread ", thread.index, " waits at ", thread.line);
    break;
  }
  Report(absl::StrCat(what, elsewhere, ended));
}

// Threads that wait unwind.
void BlockRunner::GiveUp() {
  for (EmulatedThread& thread : threads_) {
    if (thread.fiber == nullptr ||
        thread.state == EmulatedThread::State::kEnded) {
      continue;
    }
    running_ = &thread;
    thread.fiber->Resume();
    idle_.push_back(thread.fiber);
  }
}

}  // namespace syncline::testing

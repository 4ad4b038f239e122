#include "tests/testing/cuda_emulator/fiber.h"

#include <memory>
#include <utility>

#include "common/base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define SYNCLINE_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SYNCLINE_ADDRESS_SANITIZER 1
#endif
#endif

#ifdef SYNCLINE_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

namespace syncline::testing {
namespace {

constexpr size_t kStackBytes = 256 * 1024;

// Remembers the stack, which the sanitizer wants to know.
struct NotingAllocator {
  boost::context::stack_context* noted;
  boost::context::protected_fixedsize_stack stacks{kStackBytes};

  boost::context::stack_context allocate() {
    return *noted = stacks.allocate();
  }
  void deallocate(boost::context::stack_context& stack) noexcept {
    stacks.deallocate(stack);
  }
};

void StartSwitch(void** fake_stack, const void* bottom, size_t bytes) {
#ifdef SYNCLINE_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(fake_stack, bottom, bytes);
#endif
}

void FinishSwitch(void* fake_stack, const void** from, size_t* from_bytes) {
#ifdef SYNCLINE_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(fake_stack, from, from_bytes);
#endif
}

}  // namespace

Fiber::Fiber()
    : fiber_(std::allocator_arg, NotingAllocator{&stack_},
             [this](boost::context::fiber&& caller) {
               return Run(std::move(caller));
             }) {}

Fiber::~Fiber() {
  SYNCLINE_CHECK(!is_paused());
  is_ending_ = true;
  SwitchToFiber();
}

boost::context::fiber Fiber::Run(boost::context::fiber&& caller) {
  caller_ = std::move(caller);
  FinishSwitch(nullptr, &caller_stack_, &caller_stack_bytes_);
  while (!is_ending_) {
    body_();
    body_ = nullptr;
    Pause();
  }
  StartSwitch(nullptr, caller_stack_, caller_stack_bytes_);
  return std::move(caller_);
}

void Fiber::SwitchToFiber() {
  void* fake_stack = nullptr;
  StartSwitch(&fake_stack, static_cast<char*>(stack_.sp) - stack_.size,
              stack_.size);
  fiber_ = std::move(fiber_).resume();
  FinishSwitch(fake_stack, nullptr, nullptr);
}

void Fiber::Start(std::function<void()> body) {
  SYNCLINE_CHECK(!is_paused());
  body_ = std::move(body);
  SwitchToFiber();
}

void Fiber::Resume() {
  SYNCLINE_CHECK(is_paused());
  SwitchToFiber();
}

void Fiber::Pause() {
  StartSwitch(&fiber_fake_stack_, caller_stack_, caller_stack_bytes_);
  caller_ = std::move(caller_).resume();
  FinishSwitch(fiber_fake_stack_, &caller_stack_, &caller_stack_bytes_);
}

}  // namespace syncline::testing

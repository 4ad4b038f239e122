#ifndef SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_FIBER_H_
#define SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_FIBER_H_

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstddef>
#include <functional>

namespace syncline::testing {

// A function on a stack of its own that can pause, on the thread of its caller.
// The address sanitizer is told of each change of stacks. After one function
// the next one may be started.
class Fiber {
 public:
  Fiber();
  // REQUIRES: nothing is paused.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs `body` until it returns or pauses. It throws nothing. REQUIRES:
  // nothing is paused.
  void Start(std::function<void()> body);
  // Goes on until the same. REQUIRES: it is paused.
  void Resume();
  bool is_paused() const { return body_ != nullptr; }

  // From within the body.
  void Pause();

 private:
  boost::context::fiber Run(boost::context::fiber&& caller);
  void SwitchToFiber();

  boost::context::stack_context stack_;
  boost::context::fiber fiber_;
  boost::context::fiber caller_;
  std::function<void()> body_;
  bool is_ending_ = false;
  // The sanitizer's state of the two stacks.
  void* fiber_fake_stack_ = nullptr;
  const void* caller_stack_ = nullptr;
  size_t caller_stack_bytes_ = 0;
};

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_FIBER_H_

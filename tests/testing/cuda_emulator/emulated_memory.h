#ifndef SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_EMULATED_MEMORY_H_
#define SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_EMULATED_MEMORY_H_

// Memory that knows who has read and written each of its bytes, and says what
// CUDA leaves undefined: accesses outside of it, misaligned ones, reads of what
// nobody has written, and races.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace syncline::testing {

// A thread of a launch at some point of its way.
struct Accessor {
  uint32_t launch = 0;  // 0: nobody
  uint32_t block = 0;
  uint32_t thread = 0;
  uint32_t barriers = 0;  // that its block has passed
};

// Two accesses to a byte race if one of them writes and nothing orders them:
// only launches, and the barriers of a block do. Thread-compatible.
class EmulatedMemory {
 public:
  using Report = std::function<void(std::string)>;

  // `name` begins what is reported: "shared memory".
  EmulatedMemory(std::string name, size_t bytes);
  EmulatedMemory(const EmulatedMemory&) = delete;
  EmulatedMemory& operator=(const EmulatedMemory&) = delete;

  unsigned char* data() { return data_; }
  size_t bytes() const { return bytes_; }

  // Bytes that the host copies or clears are written, by no thread at all.
  void SetWritten(size_t begin, size_t bytes);
  // Whether all of it was ever written.
  bool IsWritten(size_t begin, size_t bytes) const;
  // Nobody has written anything.
  void Forget();

  // True if the access may be made; otherwise, and for races, there is a
  // report. `at` may be any address.
  bool Read(const void* at, size_t bytes, size_t alignment, const Accessor& by,
            const Report& report);
  bool Write(const void* at, size_t bytes, size_t alignment, const Accessor& by,
             const Report& report);

 private:
  // Of one byte, in the latest launch that came to it.
  struct Cell {
    Accessor writer;
    Accessor reader;               // the latest
    bool several_blocks = false;   // have read it
    bool several_threads = false;  // of `reader`'s block, at its barrier
    bool is_written = false;       // ever
  };

  bool IsInside(absl::string_view verb, const void* at, size_t bytes,
                size_t alignment, const Report& report) const;
  std::string Place(const void* at, size_t bytes) const;

  const std::string name_;
  const size_t bytes_;
  std::vector<unsigned char> storage_;
  unsigned char* data_;  // in storage_, aligned as cudaMalloc does
  std::vector<Cell> cells_;
};

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_EMULATED_MEMORY_H_

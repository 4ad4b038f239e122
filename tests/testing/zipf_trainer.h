#ifndef SYNCLINE_TESTS_TESTING_ZIPF_TRAINER_H_
#define SYNCLINE_TESTS_TESTING_ZIPF_TRAINER_H_

// The one worker of a job whose table is larger than its memory: pulls and
// pushes batches of keys with Zipf's frequencies, and knows what every row must
// be. For benchmarks and for tests of real processes.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/random.h"
#include "tests/testing/ps_processes.h"
#include "tests/testing/row_client.h"

namespace syncline {

class ZipfTrainer {
 public:
  static constexpr char kTable[] = "emb";
  static constexpr uint32_t kDim = 16;
  static constexpr size_t kBatchRows = 8192;  // draws; duplicates are combined
  // Key, values and the optimizer's sum.
  static constexpr uint64_t kRowBytes = 8 + 4 * kDim + 4;

  // One ps with a table of row-wise Adagrad, and `flags` of its own.
  static PsProcesses::Options OnePs(std::vector<std::string> flags);

  ZipfTrainer(const PsProcesses& ps, uint64_t rows);

  struct Batch {
    std::vector<uint64_t> indices;  // in the order of rows.keys
    RowBatch rows;
  };
  // Fresh draws; the same whenever it is called with the same `random`. Any
  // trainer of as many rows may take them.
  std::vector<Batch> Draw(int count, Random* random) const;

  // The first value, then pulls of keys that no row will have: what a ps takes
  // for its calls, and holds no row, it has afterwards.
  absl::Status WarmUp();
  // Pushes each row once.
  absl::Status Fill();
  // Pulls and pushes all of them, so many messages at a time.
  absl::Status Train(absl::Span<const Batch> batches);

  // Pulls `count` rows drawn from all, and compares each with what its pushes
  // make of it, bit for bit. Errors: Internal: which differs.
  absl::Status Verify(size_t count, Random* random);

  // As the ps says, once it has counted all that was pulled.
  absl::StatusOr<ShardStatus::Table> Status();

  RowClient& client() { return client_; }

 private:
  static constexpr int kInFlight = 6;

  std::vector<float> Expected(uint64_t index) const;

  const TableMap map_;
  RowClient client_;
  const uint64_t rows_;
  const std::vector<float> gradients_;
  std::vector<uint32_t> pushes_;  // by row
  uint64_t pulled_ = 0;           // rows
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_ZIPF_TRAINER_H_

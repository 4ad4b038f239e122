#ifndef SYNCLINE_WORKER_CLIENT_CUT_CALLS_H_
#define SYNCLINE_WORKER_CLIENT_CUT_CALLS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/cuts/cut_coordinator.h"
#include "common/cuts/cut_id.h"
#include "common/regime/regime_schedule.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/header_encoder.h"
#include "worker/client/transport/fanout_call.h"
#include "worker/exchange/parameter_exchange.h"

namespace syncline::worker {

// The calls of PsClient about cuts: announcing and ending one, reporting
// progress while it holds others, and scanning tables as of it.
// ParameterExchange has the contract of each. Every function blocks; one thread
// at a time.
class CutCalls {
 public:
  using RowSink = ParameterExchange::RowSink;

  struct Options {
    std::string job_id;
    std::vector<uint32_t> shards;         // those that take part
    std::vector<FanoutCall::Peer> peers;  // by shard, for messages
    CutSeries series = CutSeries::kChief;
    std::optional<int64_t> spread = {};  // CutCoordinator's
    // All cuts are at one clock of all ranks, not those for kRegime alone.
    bool equal_clocks = false;
    // How long it may take until all shards agree on a cut.
    absl::Duration patience = absl::Seconds(60);
  };
  // `headers`, `calls` and `coordinator` outlive this. `calls` is used from the
  // first call on. `coordinator` has the cuts of the rank's former client,
  // which called other shards; none: there was no such client.
  CutCalls(Options options, const HeaderEncoder* headers, FanoutCall* calls,
           std::optional<CutCoordinator>* coordinator);

  absl::StatusOr<std::vector<int64_t>> Begin(const ParameterExchange::Cut& cut,
                                             absl::Duration hold);
  absl::Status End(uint64_t cut_id, int64_t clock);
  // End of a cut for kRegime, whose regime is in force from it on.
  absl::Status Commit(uint64_t cut_id, int64_t clock);
  // Of cuts that are announced from now on: Options.spread.
  void UseSpread(std::optional<int64_t> spread) {
    coordinator_->UseSpread(spread);
  }
  // Of all shards that take part, which have the same. Errors:
  // FailedPrecondition also: they have not; names both.
  absl::StatusOr<RegimeSchedule> GetRegimes(int64_t clock);
  // The id that shards know the caller's cut by: another one if it was raised.
  // 0 for 0.
  uint64_t WireId(uint64_t cut_id) const;
  absl::Status ReportActivity(int64_t clock, absl::string_view what,
                              uint64_t done, uint64_t total);
  absl::Status ScanTable(uint32_t table, int64_t dim, uint64_t cut_id,
                         int64_t clock, RowSink sink);

 private:
  // One message of a scan.
  struct ScannedRows {
    ScanTableResponseHeader header;
    std::vector<int64_t> keys;
    std::vector<float> values;
  };

  // A shard's answer to BeginCut or EndCut, until the coordinator gets it.
  struct Answered {
    CutAction action;
    absl::Status status;
  };

  void UseCoordinator();
  // Sends what the coordinator asks for, and gives it the answers, until it has
  // one for the owner of `name`.
  absl::StatusOr<CutAction> AwaitOutcome(uint64_t name, CutActions actions);
  void Send(const CutAction& action) ABSL_LOCKS_EXCLUDED(mu_);
  void OnAnswer(const CutAction& action, absl::Status status)
      ABSL_LOCKS_EXCLUDED(mu_);
  void GiveAnswers(CutActions* actions) ABSL_LOCKS_EXCLUDED(mu_);
  // One call without payload to every shard that takes part; sets its caller.
  template <typename Request>
  absl::Status CallAll(const char* method, int64_t clock, Request* request);
  absl::Status ScanChunk(uint32_t shard, int64_t clock,
                         const ScanTableHeader& header, ScannedRows* rows);

  const Options options_;
  const HeaderEncoder& headers_;
  FanoutCall* const calls_;
  std::optional<CutCoordinator>& coordinator_;
  // Of the cut for kRegime that this client has announced last; first_clock is
  // the cut's.
  std::optional<TrainingRegime> regime_;
  uint64_t committed_ = 0;  // its name, once it is in force
  // Messages that the coordinator asks for where it goes on with these shards,
  // until the first call sends them.
  CutActions unsent_;
  Mutex mu_;
  std::vector<Answered> answered_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_CUT_CALLS_H_

#ifndef SYNCLINE_WORKER_PEERS_GROUP_EXCHANGE_H_
#define SYNCLINE_WORKER_PEERS_GROUP_EXCHANGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/base/mutex.h"
#include "common/system/periodic_task.h"
#include "common/wire/block_map.h"
#include "kernels/optimizer/finite.h"
#include "worker/client/transport/client_telemetry.h"
#include "worker/exchange/dense_tensors.h"
#include "worker/exchange/parameter_exchange.h"
#include "worker/peers/block_owners.h"
#include "worker/peers/peer_link.h"
#include "worker/peers/peer_messages.h"

namespace syncline::worker {

// The kinds of messages within a group, besides those of PeerMessage.
enum GroupMessage : uint32_t {
  kGroupSum = PeerTag::kFirstFreeKind + 64,  // of a bucket, to the leader
  kGroupHead,    // the leader's, before the values of a clock
  kGroupValues,  // of a bucket
};

// The exchange of a member of a group of workers that is one worker to the ps
// (ADR 083). The members reduce their gradients among themselves; the first of
// them, the leader, has the exchange with the ps.
//
//   facts: samples, abandoned   ─> every member     with the first gradient
//   gradient of a bucket        ─> its owner        while backward runs
//   sum of a bucket             ─> the leader       in the order of ranks
//   sums, as one gradient       ─> the ps           by the leader's exchange
//   values                      <─ the ps
//   head and values             <─ the leader       to every member
//
// A step of the group is one step to the ps: its samples are those of all
// members, and it has no gradient where a member has left its own out
// (AbandonStep). Which values the next step computes with, and whether this one
// was skipped, the leader says in the head. Between steps the members wait for
// the leader: while it waits for the ps, it says so, and their patience does
// not end. An error of the leader's exchange goes to all members.
//
// Cuts, checkpoints and first values are the leader's; group 0 has the chief.
// Where the leader reads a cut in place of the next step's values, the members
// get what it has read.
//
// The arithmetic is in float32: ((g0 + g1) + g2) ... in the order of ranks, of
// the members with samples. The regime is fixed, and there are no tables.
//
// Memory, besides the executor's, of P parameters and n members: gradients of
// the others for the own buckets, (n - 1) P / n; the leader has the sums, P,
// the others those of their own buckets, P / n.
class GroupExchange final : public ParameterExchange {
 public:
  struct Options {
    // kFailJob: the gradient that is not finite is found here, where it is
    // known whose it is. Else the group's sum is the ps' matter.
    OnNonFinite on_non_finite = OnNonFinite::kFailJob;
    BucketSizes buckets = {};
    ClientTelemetry telemetry = {};
  };
  // The exchange of the group with the ps, on tensors whose gradients are the
  // sums of the group's.
  using MakeExchange =
      std::function<std::unique_ptr<ParameterExchange>(DenseTensors)>;

  // `map` is OwnedBlocks of `tensors` over the members; the link's rank 0 is
  // the leader, which calls `make_exchange`. Errors: InvalidArgument: a map for
  // another number of members; ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<GroupExchange>> Create(
      const Options& options, BlockMap map, DenseTensors tensors,
      std::shared_ptr<PeerLink> link, const MakeExchange& make_exchange);
  // Ends the group.
  ~GroupExchange() override;

  // Of one member, besides the executor's.
  static int64_t MemoryBytes(const BlockMap& map, uint32_t member);

  void Cancel(const absl::Status& reason) override;
  absl::Status Init(int64_t total_clocks) override;
  absl::Status Pull(int64_t clock) override;
  absl::Status PullRows(int64_t clock, uint64_t cut_id,
                        absl::Span<RowBatch* const> rows) override;
  absl::Status ReportActivity(int64_t clock, absl::string_view what,
                              uint64_t done, uint64_t total) override
      ABSL_LOCKS_EXCLUDED(report_mu_);
  absl::StatusOr<std::vector<int64_t>> BeginCut(const Cut& cut) override;
  absl::Status PullCut(uint64_t cut_id, int64_t clock) override;
  absl::Status ScanTable(uint32_t table, int64_t dim, uint64_t cut_id,
                         int64_t clock, RowSink sink) override;
  absl::Status EndCut(uint64_t cut_id, int64_t clock) override;
  absl::Status AwaitCut(uint64_t cut_id, int64_t clock) override;
  std::unique_ptr<CheckpointWriting> OpenCheckpoint(uint64_t cut_id) override;
  void BeginStep(const Step& step) override;
  void PullEarly(absl::Span<RowBatch* const> next_rows,
                 int64_t min_clock) override;
  void AbandonStep(bool own_values) override;
  bool step_abandoned() const override { return abandoned_; }
  bool was_skipped(int64_t clock) const override;
  bool was_left_behind(int64_t clock) const override {
    return clock == left_out_clock_;
  }
  void OnGradientReady(uint32_t tensor) override;
  void EndBackward(absl::Span<RowBatch* const> next_rows) override;
  absl::Status Wait() override;
  WaitTimes wait_times() const override { return wait_times_; }
  absl::Status Leave(int64_t clock) override;

 private:
  // An event that a callback passes on to the thread that calls.
  struct News {
    uint32_t kind = kFacts;  // PeerMessage or GroupMessage
    uint32_t from = 0;
    uint32_t bucket = 0;
  };
  // The leader's word on the state before a step, in front of its values.
  struct Head;
  // Sums of the leader, and what keeps the tensors alive: slices on their way
  // through gRPC point into both.
  struct Sums;

  GroupExchange(const Options& options, BlockMap map,
                std::vector<Bucket> buckets, DenseTensors tensors,
                std::shared_ptr<PeerLink> link,
                const MakeExchange& make_exchange);
  bool leads() const { return link_->rank() == 0; }
  bool Owns(uint32_t bucket) const {
    return buckets_[bucket].owner == link_->rank();
  }
  // Calls `call` of the leader's exchange; meanwhile the members are told that
  // this rank waits for the ps.
  template <typename Call>
  auto AtPs(int64_t clock, Call call) ABSL_LOCKS_EXCLUDED(report_mu_);
  void TellOfWait() ABSL_LOCKS_EXCLUDED(report_mu_);
  // For the calls of a leader alone.
  absl::Status OnlyLeader(absl::string_view what) const;

  static PeerTag TagAt(int64_t clock, uint32_t kind, uint32_t item) {
    return {.clock = clock, .kind = kind, .item = item};
  }
  // The pieces stay until nothing is sent any more.
  void Send(uint32_t to, const PeerTag& tag,
            absl::Span<const ConstPeerMemory> pieces);
  void SendToOthers(const PeerTag& tag,
                    absl::Span<const ConstPeerMemory> pieces);
  void Receive(uint32_t from, const PeerTag& tag, PeerMemory memory, News news);
  // Into `tensors`.values.
  void ReceiveFloats(uint32_t from, const PeerTag& tag,
                     const DenseTensors* tensors, News news);
  void Tell(News news) ABSL_LOCKS_EXCLUDED(mu_);

  // --- A step ---
  void SendFacts();
  void ReceiveFacts(uint32_t rank);
  // On the transport's thread.
  void OnFacts(uint32_t rank, int64_t clock);
  void SendGradient(uint32_t bucket);
  // Takes what has come, does what can be done, sends what is to be sent.
  void Pump() ABSL_LOCKS_EXCLUDED(mu_);
  void Take(const News& news);
  // All facts are here.
  void Decide();
  void OnDelivered(uint32_t bucket);
  void Fold(uint32_t bucket);
  bool CheckFinite(uint32_t bucket, absl::Span<const float> sum,
                   const Block& block, size_t index);
  // The leader's: the sum of a bucket is here.
  void OnSum(uint32_t bucket);
  absl::Span<const float> GradientOf(uint32_t rank, uint32_t bucket,
                                     size_t index) const;
  float* SumOf(uint32_t bucket, size_t index);
  // This rank has done its part of the reduction.
  bool Reduced() const;
  std::string MissingText() const;
  // Until Pump has made done() true and nothing of this rank is on its way.
  absl::Status AwaitAll(absl::FunctionRef<bool()> done,
                        absl::FunctionRef<std::string()> missing);
  absl::Status WaitAsLeader();
  absl::Status WaitAsMember();

  // --- The state before step `clock` ---
  absl::Status SendState(int64_t clock, bool with_values);
  absl::Status ReceiveState(int64_t clock, bool with_values);
  // The leader's exchange has failed: tells the members why, and ends the
  // group.
  absl::Status FailGroup(int64_t clock, const absl::Status& why);
  // Returns once `done` holds, with OK, or gives the wait up; `last`: nothing
  // comes behind it, so a member that is gone has had its part.
  using AwaitMembers = absl::FunctionRef<absl::Status(
      absl::FunctionRef<bool()> done, bool last)>;
  // All members say that they are here, and the leader says that all are.
  absl::Status Meet(int64_t clock, AwaitMembers await);
  // No member leaves before all are done.
  absl::Status EndTogether(int64_t clock);
  // No member leaves before all know why the group fails: a member that saw
  // another leave first would name that one. A few seconds at most.
  void HearTogether(int64_t clock);

  const Options options_;
  const BlockMap map_;
  const std::vector<Bucket> buckets_;
  const DenseTensors tensors_;
  const std::shared_ptr<PeerLink> link_;
  const std::string label_;
  const uint64_t layout_hash_;  // all members have the same
  std::vector<std::vector<uint32_t>> tensor_buckets_;  // by tensor
  std::vector<std::vector<uint32_t>> bucket_tensors_;  // by bucket
  // Where gradients of the own buckets come, by rank; in a rank's memory a
  // bucket is at its offset.
  std::vector<AlignedFloats> gradients_;
  std::vector<size_t> own_offsets_;  // by bucket
  AlignedFloats own_sums_;           // of a rank that does not lead
  std::shared_ptr<Sums> sums_;       // the leader's
  DenseTensors sum_tensors_;         // the leader's: `values` are the sums
  std::vector<std::unique_ptr<FactsMessage>> facts_in_, facts_out_;  // by rank
  std::unique_ptr<Head> head_;
  std::unique_ptr<ParameterExchange> inner_;  // the leader's

  // The thread's that calls.
  bool is_open_ = false;
  bool finished_ = false;    // after the last step nobody waits for this rank
  bool owes_state_ = false;  // the leader's, to the members
  Step step_;
  int64_t clock_ = 0;  // of the open step, or the next one
  bool abandoned_ = false;
  bool facts_sent_ = false;
  std::vector<std::optional<FactsMessage>> facts_;  // by rank
  uint32_t facts_left_ = 0;
  uint64_t samples_ = 0;              // of the group
  uint32_t givers_ = 0;               // members with a gradient
  bool group_abandoned_ = false;      // nothing of the step is pushed
  std::vector<uint32_t> unfinished_;  // by bucket: own tensors to come
  std::vector<uint32_t> delivered_;   // by own bucket: gradients
  uint32_t unfolded_ = 0;             // own buckets
  std::vector<uint32_t> unsummed_;    // the leader's, by tensor: buckets
  std::vector<uint32_t> order_;       // in which the leader hands tensors on
  size_t handed_ = 0;                 // of order_
  uint32_t sums_left_ = 0;            // the leader's: buckets
  bool inner_open_ = false;
  uint32_t state_left_ = 0;  // messages of the state that is awaited
  int64_t skipped_through_ = 0;
  int64_t left_out_clock_ = -1;
  absl::Time heard_at_;          // the head of the state that is awaited
  absl::Status leader_failure_;  // as a member heard of it
  WaitTimes wait_times_;

  std::atomic<int64_t> sending_{0};  // messages of this rank under way
  std::atomic<uint64_t> news_count_{0};
  Mutex mu_;
  std::vector<News> news_ ABSL_GUARDED_BY(mu_);

  Mutex report_mu_;
  bool at_ps_ ABSL_GUARDED_BY(report_mu_) = false;
  int64_t at_ps_clock_ ABSL_GUARDED_BY(report_mu_) = 0;
  uint64_t waits_told_ ABSL_GUARDED_BY(report_mu_) = 0;
  std::optional<PeriodicTask> teller_;  // last: it uses the rest
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_PEERS_GROUP_EXCHANGE_H_
